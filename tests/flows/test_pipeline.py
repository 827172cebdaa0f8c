"""The flow under Prefect: names, artifacts, retries, order; ephemeral and against a real server."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.testing.utilities import prefect_test_harness

from flows.engines import DvcEngine, InProcessEngine, make_engine, stage_name
from flows.pipeline import chain, pipeline, prefect_runner
from flows.prefect_setup import POLICY, is_transient
from pass_core.errors import ConfigError, DataError, StageFailed, StorageError, TrackingError, TransientError
from tasks.config import Config
from tasks.registry import STEPS
from tasks.running.layout import Layout
from tasks.running.step import Step, StepReport
from tasks.running.step_io import Reporter, RunKey
from tasks.storage.files import digest
from tests.conftest import PROJECT, write_params

KEY = RunKey("synthetic_motion", "pass_substitution")


def _report(step: Step, key: RunKey) -> StepReport:
    return StepReport(
        step=step.name,
        dataset=key.dataset,
        method=key.method,
        counts={},
        metrics={},
        verdict="pass" if step.name == "audit" else None,
        digests={},
    )


def test_chain_runs_shared_steps_once_and_in_an_order_the_files_allow() -> None:
    done: list[tuple[str, RunKey]] = []
    available: set[Path] = set()
    layout = Layout(Path("data"))

    def run(step: Step, key: RunKey) -> StepReport:
        assert {layout.artefact(name, key) for name in step.inputs} <= available, (step.name, key)
        available.update(layout.artefact(name, key) for name in step.outputs)
        done.append((step.name, key))
        return _report(step, key)

    audits = chain(run, ["synthetic_motion"], ["pass_substitution", "identity"])
    assert len(done) == len(set(done)) == 5 + 2 * 4
    assert [(audit.step, audit.method) for audit in audits] == [("audit", "pass_substitution"), ("audit", "identity")]


def test_chain_generates_only_what_is_generated() -> None:
    steps: list[str] = []

    def run(step: Step, key: RunKey) -> StepReport:
        steps.append(step.name)
        return _report(step, key)

    chain(run, ["motionsense"], ["identity"])
    assert "generate" not in steps
    assert steps[0] == "ingest"


def test_every_step_has_a_policy_and_only_passing_faults_are_retried() -> None:
    assert set(POLICY) == set(STEPS)
    assert all(policy.timeout_minutes > 0 and policy.retries >= 1 for policy in POLICY.values())
    assert is_transient(StorageError("x"))
    assert is_transient(TrackingError("x"))
    assert not is_transient(StageFailed("x"))
    assert not is_transient(TimeoutError())
    assert is_transient(ConnectionResetError())
    assert not is_transient(DataError("x"))
    assert not is_transient(ConfigError("x"))


def test_in_process_engine_refuses_what_dvc_owns(tiny_config: Config, tmp_path: Path) -> None:
    for owned in (PROJECT / "data", PROJECT, PROJECT / "data" / "models", PROJECT / "data" / "models" / "x"):
        with pytest.raises(ConfigError, match="which DVC owns: expected a scratch folder"):
            InProcessEngine(tiny_config, owned, PROJECT)
    assert InProcessEngine(tiny_config, PROJECT / "data" / "runs" / "x", PROJECT).root.name == "x"
    assert InProcessEngine(tiny_config, tmp_path, PROJECT).root == tmp_path


def test_dvc_engine_takes_no_other_parameters(tiny_config: Config, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"parameters and paths come from params\.yaml"):
        make_engine("dvc", tiny_config, None, PROJECT, overridden=True)
    with pytest.raises(ConfigError, match=r"parameters and paths come from params\.yaml"):
        make_engine("dvc", tiny_config, tmp_path, PROJECT, overridden=False)
    assert isinstance(make_engine("dvc", tiny_config, None, PROJECT, overridden=False), DvcEngine)
    assert stage_name(STEPS["train"], KEY) == "train@synthetic_motion-pass_substitution"
    assert stage_name(STEPS["generate"], RunKey("synthetic_motion")) == "generate@synthetic_motion"


def _write_stage(folder: Path, command: str) -> None:
    """A DVC project of one stage."""
    stage = {"matrix": {"dataset": ["synthetic_motion"]}, "cmd": command, "outs": ["data/raw"]}
    (folder / "dvc.yaml").write_text(json.dumps({"stages": {"generate": stage}}))
    subprocess.run([sys.executable, "-m", "dvc", "init", "--no-scm", "--quiet"], cwd=folder, check=True)


@pytest.mark.parametrize(("code", "kind"), [(2, StageFailed), (75, TransientError)])
def test_dvc_engine_tells_a_passing_fault_from_a_lasting_one(tmp_path: Path, code: int, kind: type[Exception]) -> None:
    command = f"echo 'error: the disk is away' && exit {code}"
    _write_stage(tmp_path, command)
    with pytest.raises(kind, match="stage generate@synthetic_motion failed: the disk is away") as error:
        DvcEngine(tmp_path).run(STEPS["generate"], RunKey("synthetic_motion"), lambda *_: None)
    assert is_transient(error.value) == (code == 75)


def test_interrupted_dvc_engine_ends_its_stage(tmp_path: Path) -> None:
    """A timeout or Ctrl-C reaches the engine as an exception while the stage runs; nothing of the stage lives on."""
    _write_stage(tmp_path, "echo started && sleep 300")

    def interrupt(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(15)
    started = time.monotonic()
    try:
        with pytest.raises(TimeoutError):
            DvcEngine(tmp_path).run(STEPS["generate"], RunKey("synthetic_motion"), lambda *_: None)
    finally:  # an alarm that is still due would end the test process
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - started < 100


@pytest.fixture(scope="module")
def harness() -> Iterator[None]:
    """A Prefect of the tests' own."""
    with prefect_test_harness(server_startup_timeout=180):
        yield


@pytest.fixture(scope="module")
def flow_run(harness: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """The tiny project through the flow, once."""
    folder = tmp_path_factory.mktemp("flow")
    params = write_params(folder, lineage={"file": "events.jsonl"})
    outcomes = pipeline(
        engine="in-process",
        datasets=["synthetic_motion"],
        methods=["pass_substitution"],
        root=str(folder / "root"),
        params=str(params),
    )
    return folder, outcomes


def test_flow_gives_the_same_bytes_as_bare_steps(flow_run: tuple[Path, list[Any]], tiny_root: Path) -> None:
    folder, outcomes = flow_run
    for name in ("model", "protected", "linkage", "audit", "report"):
        assert digest(Layout(folder / "root").artefact(name, KEY)) == digest(Layout(tiny_root).artefact(name, KEY)), name
    assert outcomes[0].report_path.exists()
    assert outcomes[0].verdict in {"pass", "undecided", "fail"}


def test_runs_are_named_and_audits_are_artifacts(flow_run: tuple[Path, list[Any]]) -> None:
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs()
        assert "synthetic_motion · pass_substitution" in {run.name for run in runs}
        tasks = {run.name for run in client.read_task_runs()}
        assert "train synthetic_motion/pass_substitution" in tasks
        assert "ingest synthetic_motion" in tasks
        artifacts = {artifact.key: artifact for artifact in client.read_artifacts()}
    table = json.loads(artifacts["nag-synthetic-motion-pass-substitution"].data)
    assert [row["attribute"] for row in table] == ["gender", "id", "activity"]
    markdown = artifacts["audit-synthetic-motion-pass-substitution"].data
    assert "mNAG" in markdown
    assert "| gender | private |" in markdown


def test_lineage_names_what_was_read_and_made(flow_run: tuple[Path, list[Any]]) -> None:
    folder, _ = flow_run
    start, end = map(json.loads, (folder / "events.jsonl").read_text().splitlines())
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert start["job"]["name"] == end["job"]["name"] == "run-synthetic_motion-pass_substitution"
    layout = Layout(folder / "root")
    assert [one["name"] for one in end["inputs"]] == [str(layout.artefact("raw", KEY))]
    made = {one["name"]: one["facets"]["version"]["datasetVersion"] for one in end["outputs"]}
    assert made == {str(layout.artefact(name, KEY)): digest(layout.artefact(name, KEY)) for name in ("protected", "model")}
    columns = {field["name"] for field in end["outputs"][0]["facets"]["schema"]["fields"]}
    assert "activity" in columns
    assert not columns & {"gender", "id"}


class _Failing:
    """An engine whose step fails a few times."""

    root = Path()

    def __init__(self, error: Exception, times: int) -> None:
        self.error, self.times, self.calls = error, times, 0

    def run(self, step: Step, key: RunKey, progress: Reporter) -> StepReport:  # noqa: ARG002 (the engine's interface)
        self.calls += 1
        if self.calls <= self.times:
            raise self.error
        return _report(step, key)


def test_passing_fault_is_retried_and_lasting_one_is_not(harness: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect import flow

    from flows import prefect_setup as policy

    monkeypatch.setitem(POLICY, "train", policy.Policy(1, 0, 1))

    def run(engine: _Failing) -> StepReport:
        return flow(lambda: prefect_runner(engine, lambda *_: None)(STEPS["train"], KEY), name="retries")()

    passing = _Failing(StorageError("no space"), 1)
    assert run(passing).step == "train"
    assert passing.calls == 2
    lasting = _Failing(DataError("damaged"), 5)
    with pytest.raises(DataError, match="damaged"):
        run(lasting)
    assert lasting.calls == 1


def test_flow_reports_to_a_real_server(tmp_path: Path) -> None:
    """A server in a process of its own, the flow in another, joined by PREFECT_API_URL alone."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "PREFECT_HOME": str(tmp_path / "prefect"), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    server = subprocess.Popen(
        [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    api = f"http://127.0.0.1:{port}/api"
    try:
        _wait_for(f"{api}/health", server)
        write_params(tmp_path)
        program = Path(sys.executable).parent / "pass-pipeline"
        done = subprocess.run(
            [
                program,
                "run",
                "--quiet",
                "--root",
                "root",
                "--method",
                "identity",
                "--set",
                "audit.attacks={logistic_regression: {}}",
            ],
            cwd=tmp_path,
            env={**environment, "PREFECT_API_URL": api},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 3, done.stderr  # no protection: the audit must fail
        request = urllib.request.Request(f"{api}/flow_runs/filter", b"{}", {"Content-Type": "application/json"})
        runs = json.load(urllib.request.urlopen(request))
        assert [(run["name"], run["state"]["type"]) for run in runs] == [("all datasets · identity", "COMPLETED")]
    finally:
        server.terminate()
        server.wait()


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            urllib.request.urlopen(url).close()
        except OSError:
            assert server.poll() is None, "the server stopped"
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.5)
        else:
            return
