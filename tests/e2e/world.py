"""A small company: a lake, a model, a stack of servers, a receiver of notifications; and what must hold, kept in memory."""

import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from typer.testing import CliRunner

from flows.cli.main import app
from tasks.production.crash_points import CRASH_AT
from tasks.storage.parquet import read_folder
from tests.conftest import PROJECT
from tests.e2e.receiver import Receiver
from tests.stacks import answers, environment_of, free_ports, left_of, port_options
from tests.tasks.production.lakes import SECTION, make_table, published, released, write_lake, write_params
from tests.tasks.production.test_serving import FINAL, _Api, _until

PROGRAM = [sys.executable, "-m", "flows.cli"]
PER_DAY = 200
PATIENCE = 900.0  # seconds that a run may take on a busy machine
WELL = ("Yes", "Yes", "Yes")  # Fresh? Correct? On time?


class World:
    """Does what people and cron do there, and compares what is published with what must hold."""

    def __init__(self, folder: Path, champion: Path, store: Path, posted: Receiver) -> None:
        self.folder, self.posted = folder, posted
        self.lake, self.target, self.state = folder / "lake", folder / "out", folder / ".out.state"
        self.models = "data"  # where a deployment looks for them
        shutil.copytree(champion, folder / "data")
        self.write_params(store)
        shutil.copy(PROJECT / "prefect.yaml", folder)
        self.ports = free_ports(4)
        self.api = _Api(self.ports[0])
        self.key = folder / "draw.key"
        more = {"PASS_DRAW_KEY_FILE": str(self.key), "PASS_WEBHOOK_URL": posted.address, "PREFECT_API_URL": self.api.url}
        more |= {"PREFECT_WORKER_QUERY_SECONDS": "2", "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "2"}
        self.environment = environment_of(folder, **more)
        self.columns: dict[str, str] = {}  # of the days to come, besides those of the first, each with its value
        # What must hold:
        self.people: dict[str, list[str]] = {}  # partition -> the customer of each published row
        self.version, self.draws = 0, 1
        self.bytes: dict[str, bytes] = {}

    def write_params(self, store: Path, **changes: object) -> None:
        """The project's parameters."""
        schedule = {"source": str(self.lake), "target": str(self.target), "dataset": "calls"}
        tracking = {"enabled": True, "store": str(store)}
        section = SECTION | {"source": str(self.lake)}
        write_params(self.folder, schedule=schedule, tracking=tracking, dataset={"calls": section}, **changes)

    # What arrives.

    def add_day(self, number: int) -> str:
        """A new day of calls in the source; its partition."""
        table = make_table(days=1, per_day=PER_DAY, start=2000 + PER_DAY * number)
        for name, value in self.columns.items():
            table = table.append_column(name, pa.array([value] * len(table)))
        write_lake(table, self.lake)
        return f"day={table.column('day')[0]}"

    def expect(self, *partitions: str) -> set[str]:
        """Notes that these must be published as they are in the source, as one new version."""
        self.version += 1
        for name in partitions:
            files = sorted((self.lake / name).glob("*.parquet"))
            self.people[name] = [one for path in files for one in pq.read_table(path, partitioning=None)["customer"].to_pylist()]
        return set(partitions)

    # What people and cron do.

    def up(self) -> None:
        """Starts the stack in the background."""
        done = self.command("up", "--detach", *port_options(self.ports))
        assert done.returncode == 0, done.stderr
        assert all(answers(address) for address in self.stack()["health"].values())

    def stack(self) -> dict[str, Any]:
        """What `up` has noted."""
        return dict(json.loads((self.folder / "data" / "stack" / "stack.json").read_text()))

    def left(self) -> list[str]:
        """Processes of the stack and of its runs."""
        return left_of(self.folder)

    def command(self, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
        """Runs `pass-pipeline`, as from a terminal or from cron."""
        environment = self.environment | more
        return subprocess.run(
            [*PROGRAM, *words], cwd=self.folder, env=environment, capture_output=True, text=True, check=False, timeout=600
        )

    def protect(self, *more: str, source: str = "lake", target: str = "out", **environment: str) -> None:
        """A run by hand, which succeeds."""
        words = ["lake", "protect", source, target, "--dataset", "calls", "--models", self.models, "--workers", "1"]
        done = self.command(*words, *more, **environment)
        assert done.returncode == 0, done.stderr

    def deploy(self) -> None:
        """Makes the deployments of prefect.yaml, as the documentation says; at another time of the day than now."""
        path, hour = self.folder / "prefect.yaml", (datetime.datetime.now(datetime.UTC).hour + 12) % 24
        described = yaml.safe_load(path.read_text())
        for deployment in described["deployments"]:
            for schedule in deployment["schedules"]:
                minute, _, rest = schedule["cron"].split(" ", 2)
                schedule["cron"] = f"{minute} {hour} {rest}"
        path.write_text(yaml.safe_dump(described))
        places = {"PASS_SOURCE": self.lake, "PASS_TARGET": self.target, "PASS_PROJECT": self.folder}
        names = {"PASS_DATASET": "calls", "PASS_LAKE": "calls-out"}
        environment = self.environment | names | {name: str(place) for name, place in places.items()}
        command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        self.nightly = str(self.api.deployment("pass-protect/nightly-calls-out")["id"])

    def night(self, ends: str = "COMPLETED", parameters: dict[str, Any] | None = None, crash_at: str = "") -> None:
        """A run of the deployment on the stack's worker, and how it ends."""
        body = {"parameters": parameters or {}, "job_variables": {"env": {CRASH_AT: crash_at}} if crash_at else {}}
        run = str(self.api.get(f"/deployments/{self.nightly}/create_flow_run", body)["id"])
        self.until(lambda: self.api.state(run) in FINAL)
        assert self.api.state(run) == ends, self.log()[-4000:]

    def until(self, what: Callable[[], Any]) -> None:
        """Waits until something holds."""
        _until(what, self.log, PATIENCE)

    def log(self) -> str:
        """What the stack's servers have said."""
        return (self.folder / "data" / "stack" / "stack.log").read_text(errors="replace")

    # What must hold.

    def check(
        self,
        code: int = 0,
        kinds: tuple[str, ...] = (),
        *,
        posted: tuple[str, ...] = (),
        shown: tuple[str, ...] = WELL,
        changed: set[str] | None = None,
    ) -> dict[str, Any]:
        """Compares status, published bytes, console and notifications; `changed` partitions have new bytes."""
        found = self._check_status(code, kinds)
        self._check_published(changed or set())
        assert self._console() == shown
        assert self.posted.take() == posted
        return found

    def check_never(self) -> None:
        """What holds before the first run."""
        done = CliRunner().invoke(app, ["lake", "status", str(self.target), "--json"], catch_exceptions=False)
        (one,) = json.loads(done.output)["targets"]
        assert (done.exit_code, [trouble["kind"] for trouble in one["troubles"]], one["live"]) == (17, ["never"], None)
        assert self.posted.take() == ()

    def _check_status(self, code: int, kinds: tuple[str, ...]) -> dict[str, Any]:
        done = CliRunner().invoke(app, ["lake", "status", str(self.target), "--json", "--notify"], catch_exceptions=False)
        found = json.loads(done.output)
        (one,) = found["targets"]
        assert (done.exit_code, found["exit_code"], tuple(trouble["kind"] for trouble in one["troubles"])) == (code, code, kinds)
        live = one["live"]
        rows = sum(map(len, self.people.values()))
        assert (live["version"], live["rows"], live["partitions"]) == (self.version, rows, len(self.people))
        assert (one["audit"]["verdict"], one["draws"]) == ("pass", self.draws)
        assert one["writer"] is None or kinds == ("failed",)  # the lease of a run that was killed expires later
        assert (one["withdrawn_shown"] > 0) == ("withdrawn" in kinds)
        return dict(one)

    def _check_published(self, changed: set[str]) -> None:
        """Rows, columns, donors, and which bytes are those of the night before."""
        tables, donors = released(self.target), self.donors()
        assert {name: len(table) for name, table in tables.items()} == {n: len(people) for n, people in self.people.items()}
        for table in tables.values():
            assert sorted(table.column_names) == ["topic", "vector"]
            topics, vectors = table["topic"].to_pylist(), table["vector"].to_pylist()
            assert all((tuple(vector), topic) in donors for vector, topic in zip(vectors, topics, strict=True))
        now = published(self.target)
        different = {name.rpartition("/")[0] for name in now | self.bytes if now.get(name) != self.bytes.get(name)}
        assert different == changed
        self.bytes = now

    def donors(self) -> set[tuple[tuple[float, ...], str]]:
        """Whose records may be published: the pool's. Until the models without a donor are in use, that one may be, too."""
        pool = read_folder(self.folder / self.models / "pools" / "calls", ["payload", "topic"])
        return {
            (tuple(vector), topic) for vector, topic in zip(pool["payload"].to_pylist(), pool["topic"].to_pylist(), strict=True)
        }

    def _console(self) -> tuple[str, ...]:
        """Builds the site as cron does, and reads what its index answers; from the stack's server where it runs."""
        site = self.folder / "data" / "stack" / "console"
        words = ["console", "build", str(self.target), "--params", str(self.folder / "params.yaml"), "--out", str(site)]
        done = CliRunner().invoke(app, [*words, "--models", str(self.folder / self.models)], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        text = (site / "index.html").read_text()
        if self.left():
            with urllib.request.urlopen(self.stack()["pages"]["console"]) as page:
                assert page.read().decode() == text
        row = re.search(r'<tr><th scope="row"><a href="calls.html">.*?</tr>', text, re.DOTALL)
        assert row is not None, text
        return tuple(re.findall(r"</span> (Yes|No|Unsure)</span>", row.group()))


def environ_for_checks(world: World) -> dict[str, str]:
    """What `lake status` and `console build` read from the environment, for checks in this process."""
    return {name: world.environment[name] for name in ("PASS_WEBHOOK_URL", "PREFECT_API_URL")} | {
        "MLFLOW_DISABLE_TELEMETRY": "true"
    }


def age(state: Path, days: int) -> None:
    """Makes all noted times of a target older, as if so many days had passed."""
    for path in (state / "versions.jsonl", state / "runs.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines() if line]
        for entry in lines:
            for key in {"published", "started", "ended"} & set(entry):
                entry[key] = (datetime.datetime.fromisoformat(entry[key]) - datetime.timedelta(days=days)).isoformat()
        path.write_text("".join(json.dumps(entry) + "\n" for entry in lines))


def die(process: int) -> None:
    """What a power cut is to a process."""
    os.kill(process, 9)
