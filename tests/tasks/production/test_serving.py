"""Schedules with real servers: a run fires on time, a second one is refused, and prefect.yaml's deployments run on a worker."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import yaml

from pass_core.errors import ConfigError
from tasks.config import load_config
from tasks.sections.running import ScheduleConfig
from tests.conftest import PROJECT
from tests.tasks.production.lakes import DRAW_KEY, make_table, protect, published, write_lake, write_params

FINAL = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}
SECONDS = 240.0  # after which a test gives up, on a busy machine


@pytest.fixture
def project(champion: Path, tmp_path: Path) -> Path:
    """A project with a champion of its own and a lake of two days."""
    shutil.copytree(champion, tmp_path / "root")
    write_params(tmp_path)
    write_lake(make_table(days=2, start=2000), tmp_path / "lake")
    return tmp_path


def _environment(folder: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return kept | {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")])),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_RUNNER_POLL_FREQUENCY": "2",
        "PREFECT_WORKER_QUERY_SECONDS": "2",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "OMP_NUM_THREADS": "1",
        "PASS_DRAW_KEY": DRAW_KEY.hex(),
        **more,
    }


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def _running(folder: Path, environment: dict[str, str], *command: str) -> Iterator[Callable[[], str]]:
    """A process with its children; gives what it has said so far."""
    log = folder / f"{command[1]}-{command[2]}.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=folder, env=environment, stdout=file, stderr=file, start_new_session=True
        )
    try:
        yield log.read_text
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class _Api:
    """Prefect's server as its pages use it."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/api"

    def get(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, {"Content-Type": "application/json"})
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    text = answer.read()
                return json.loads(text) if text else None
            except urllib.error.HTTPError as error:
                # On a busy machine its database is locked for a while: it did nothing, and says that it may be asked again.
                if error.code != HTTPStatus.SERVICE_UNAVAILABLE or time.monotonic() > deadline:
                    raise
                time.sleep(1)

    def deployment(self, name: str) -> Any:
        try:
            return self.get(f"/deployments/name/{name}")
        except (urllib.error.URLError, OSError):
            return None

    def named(self, prefix: str) -> Any:
        """The only deployment whose name begins like this; None before it is made."""
        try:
            found = [one for one in self.get("/deployments/filter", {}) if one["name"].startswith(prefix)]
        except (urllib.error.URLError, OSError):
            return None
        assert len(found) <= 1
        return found[0] if found else None

    def start(self, deployment: str, **parameters: Any) -> str:
        return str(self.get(f"/deployments/{deployment}/create_flow_run", {"parameters": parameters})["id"])

    def runs(self, deployment: str) -> list[Any]:
        found: list[Any] = self.get("/flow_runs/filter", {"deployments": {"id": {"any_": [deployment]}}})
        return found

    def state(self, run: str) -> str:
        return str(self.get(f"/flow_runs/{run}")["state_type"])


def _until(what: Callable[[], Any], said: Callable[[], str], seconds: float = SECONDS) -> Any:
    """Waits for an answer that is not empty."""
    deadline = time.monotonic() + seconds
    while not (answer := what()):
        assert time.monotonic() < deadline, said()[-4000:]
        time.sleep(0.5)
    return answer


def _expected(champion: Path, project: Path) -> dict[str, bytes]:
    protect(champion, project / "lake", project / "directly")
    return published(project / "directly")


def test_serve_brings_its_server_fires_on_time_and_refuses_a_second_run(champion: Path, project: Path) -> None:
    port = _free_port()
    api, target = _Api(port), project / "out"
    options = ["--dataset", "calls", "--models", "root", "--port", str(port), "--workers", "1", "--target-format", "parquet"]
    command = ["flows.cli", "lake", "serve", "lake", "out", *options, "--protect", "* * * * *", "--timezone", "Europe/Berlin"]
    with _running(project, _environment(project), *command) as said:
        nightly = _until(lambda: api.named("nightly-calls-"), said)
        assert nightly["schedules"][0]["schedule"] == {"cron": "* * * * *", "timezone": "Europe/Berlin", "day_or": True}
        assert {name: nightly["parameters"]["options"][name] for name in ("executor", "target_format")} == {
            "executor": "local",
            "target_format": "parquet",
        }
        weekly = _until(lambda: api.named("weekly-calls-"), said)
        assert weekly["schedules"][0]["schedule"]["cron"] == "0 4 * * 0"
        assert weekly["concurrency_options"]["collision_strategy"] == "CANCEL_NEW"

        def fired() -> list[Any]:
            # On a busy machine a run outlasts its minute, and the next one is cancelled: that is asked for further down.
            ended = FINAL - {"CANCELLED"}
            return [run for run in api.runs(nightly["id"]) if run["auto_scheduled"] and run["state_type"] in ended]

        run = _until(fired, said)[-1]
        assert run["state_type"] == "COMPLETED", said()[-4000:]
        assert published(target) == _expected(champion, project)

        api.get(f"/deployments/{nightly['id']}/pause_deployment", {})  # no other run comes between
        _until(lambda: not any(run["state_type"] in {"PENDING", "RUNNING"} for run in api.runs(nightly["id"])), said)
        gate = project / "gate.yaml"  # a run reads its parameters from here, and waits until somebody writes them
        os.mkfifo(gate)
        first = api.start(nightly["id"], options=nightly["parameters"]["options"] | {"params": str(gate)})
        _until(lambda: api.state(first) == "RUNNING", said)
        second = api.start(nightly["id"])
        _until(lambda: api.state(second) in FINAL, said)
        assert api.state(second) == "CANCELLED"
        assert "concurrency limit" in api.get(f"/flow_runs/{second}")["state"]["message"]
        assert api.state(first) == "RUNNING"
        with gate.open("w") as waiting:  # the run, which waits here, reads this; whatever it reads later is an ordinary file
            (project / "gate.ready").write_text((project / "params.yaml").read_text())
            (project / "gate.ready").replace(gate)
            waiting.write(gate.read_text())
        _until(lambda: api.state(first) in FINAL, said)
        assert api.state(first) == "COMPLETED", said()[-4000:]
    with pytest.raises(OSError, match="refused"):
        api.get("/health")  # the server ended with the command


def test_lakes_on_one_server_keep_their_own_schedules(project: Path) -> None:
    """Two targets of one data set; the second command must not replace the first one's deployments."""
    port = _free_port()
    api = _Api(port)
    environment = _environment(project, PREFECT_API_URL=api.url)
    (project / "other").mkdir()
    shutil.copy(project / "params.yaml", project / "other")
    with _running(project, environment, "prefect", "server", "start", "--port", str(port)) as said:
        _until(lambda: _answers(api), said)
        options = ["--dataset", "calls", "--models", str(project / "root"), "--workers", "1"]
        command = ["flows.cli", "lake", "serve", str(project / "lake"), "out", *options, "--protect"]
        other = project / "other"
        with _running(project, environment, *command, "0 1 * * *"), _running(other, environment, *command, "0 2 * * *"):

            def crons() -> dict[str, str]:
                every = [one for one in api.get("/deployments/filter", {}) if one["name"].startswith("nightly-")]
                return {one["parameters"]["options"]["target"]: one["schedules"][0]["schedule"]["cron"] for one in every}

            _until(lambda: len(crons()) == 2, said)
            assert crons() == {str(project / "out"): "0 1 * * *", str(other / "out"): "0 2 * * *"}
            _until(lambda: len(api.get("/deployments/filter", {})) == 4, said)  # a weekly one of each, too


def test_deployments_of_prefect_yaml_run_on_a_process_worker(champion: Path, project: Path) -> None:
    """The key is the server's secret; a missing block is reported."""
    port = _free_port()
    api = _Api(port)
    places = {"PASS_SOURCE": "lake", "PASS_TARGET": "out", "PASS_DATASET": "calls", "PASS_LAKE": "calls-out"}
    places["PASS_PROJECT"] = str(project)
    environment = _environment(project, PREFECT_API_URL=api.url, **places)
    environment.pop("PASS_DRAW_KEY")
    shutil.copy(PROJECT / "prefect.yaml", project)
    with _running(project, environment, "prefect", "server", "start", "--port", str(port)) as said:
        _until(lambda: api.deployment("none/none") is None and _answers(api), said)
        block = f"from prefect.blocks.system import Secret; Secret(value={DRAW_KEY.hex()!r}).save('draw-key')"
        for command in (
            ["-c", block],
            ["-m", "prefect", "work-pool", "create", "pass", "--type", "process"],
            ["-m", "prefect", "--no-prompt", "deploy", "--all"],
        ):
            done = subprocess.run(
                [sys.executable, *command],
                cwd=project,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
        nightly, weekly = api.deployment("pass-protect/nightly-calls-out"), api.deployment("pass-audit/weekly-calls-out")
        monthly = api.deployment("pass-retrain/retrain-calls-out")
        assert monthly["schedules"] == []
        assert monthly["parameters"]["options"]["models"] == "data/champions/calls"
        for deployment in (nightly, weekly, monthly):
            assert deployment["concurrency_options"]["collision_strategy"] == "CANCEL_NEW"
            assert deployment["global_concurrency_limit"]["limit"] == 1
            schema = deployment["parameter_openapi_schema"]
            described = [schema, *schema.get("definitions", {}).values()]
            fields = [field for one in described for field in one["properties"].values()]
            assert all(field.get("description") for field in fields), fields
        with _running(project, environment, "prefect", "worker", "start", "--pool", "pass") as worker:
            options = nightly["parameters"]["options"] | {"models": "root", "key_block": "draw-key"}
            runs = [api.start(nightly["id"], options=options), api.start(weekly["id"], root="root")]
            _until(lambda: all(api.state(run) in FINAL for run in runs), worker)
            assert [api.state(run) for run in runs] == ["COMPLETED", "COMPLETED"], worker()[-4000:]
            astray = api.start(nightly["id"], options=options | {"key_block": "no-such-key"})
            _until(lambda: api.state(astray) in FINAL, worker)
            assert api.state(astray) == "FAILED"
            assert "expected a Secret block" in api.get(f"/flow_runs/{astray}")["state"]["message"]
            assert DRAW_KEY.hex() not in worker()
    assert published(project / "out") == _expected(champion, project)


def _answers(api: _Api) -> bool:
    try:
        return bool(api.get("/health"))
    except OSError:
        return False


def test_prefect_yaml_and_params_yaml_say_the_same_times() -> None:
    schedule = load_config(PROJECT / "params.yaml").schedule
    found = {one["name"]: one["schedules"] for one in yaml.safe_load((PROJECT / "prefect.yaml").read_text())["deployments"]}
    assert found == {
        "nightly-{{ $PASS_LAKE }}": [{"cron": schedule.protect, "timezone": schedule.timezone}],
        "weekly-{{ $PASS_LAKE }}": [{"cron": schedule.audit, "timezone": schedule.timezone}],
        "retrain-{{ $PASS_LAKE }}": [],
    }


@pytest.mark.parametrize(("name", "value"), [("timezone", "Mars/Base"), ("protect", "nightly"), ("audit", "0 4 * *")])
def test_a_wrong_time_is_rejected(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: expected"):
        ScheduleConfig(**{name: value})
