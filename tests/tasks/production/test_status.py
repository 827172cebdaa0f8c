"""`lake status`: a lake without trouble, and one test for every fault with its own exit code."""

import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from pass_core.errors import AuditFailed, ConfigError, DataError, DriftFound, PassError, SchemaPaused, StorageError
from tasks.production.crash_points import CRASH_AT
from tasks.production.erasure import erase
from tasks.production.history import open_target, roll_back
from tasks.production.interfaces import GateResult, Job, Sample
from tasks.production.options import state_of
from tasks.production.run import Hooks, execute
from tasks.production.troubles import EXIT_CODES
from tests.conftest import PROJECT
from tests.tasks.production.lakes import FailGate, PassGate, make_options, make_table, protect, with_key, write_lake, write_params


def _check(*places: Path | str, more: tuple[str, ...] = ()) -> tuple[int, list[dict[str, Any]]]:
    done = CliRunner().invoke(app, ["lake", "status", *map(str, places), "--json", *more], catch_exceptions=False)
    found = json.loads(done.output)
    assert found["exit_code"] == done.exit_code
    return done.exit_code, found["targets"]


def _kinds(place: Path | str, *more: str) -> tuple[int, list[str]]:
    code, (one,) = _check(place, more=more)
    return code, [trouble["kind"] for trouble in one["troubles"]]


@pytest.fixture(scope="module")
def made(champion: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a lake and its protected version; tests get copies."""
    folder = tmp_path_factory.mktemp("made")
    write_lake(make_table(days=2, start=2000), folder / "lake")
    protect(champion, folder / "lake", folder / "out")
    return folder


@pytest.fixture
def target(made: Path, tmp_path: Path) -> Path:
    """A protected lake without trouble."""
    shutil.copytree(made, tmp_path / "made", symlinks=True)
    place = tmp_path / "made" / "out"
    assert _kinds(place) == (0, [])
    return place


def _lake(target: Path) -> Path:
    return target.parent / "lake"


def _age(state: Path, days: int, *names: str) -> None:
    """Makes all times in these files older."""
    for name in names:
        lines = []
        for line in filter(None, (state / name).read_text().splitlines()):
            entry = json.loads(line)
            for key in {"published", "started", "ended"} & set(entry):
                entry[key] = (datetime.datetime.fromisoformat(entry[key]) - datetime.timedelta(days=days)).isoformat()
            lines.append(json.dumps(entry))
        (state / name).write_text("\n".join(lines) + "\n")


def test_a_lake_without_trouble(target: Path) -> None:
    code, (one,) = _check(target)
    assert code == 0
    assert (one["dataset"], one["live"]["version"], one["live"]["rows"], one["draws"]) == ("calls", 1, 400, 1)
    assert one["audit"]["verdict"] == "pass"
    assert 0 <= one["age_hours"] < 1
    assert one["stale_after_hours"] == 26
    assert len(one["live"]["keys"][0]) == 16
    assert one["last_run"]["outcome"] == "published"
    assert one["next_run"] is None
    text = CliRunner().invoke(app, ["lake", "status", str(target)]).output
    assert "version 1" in text
    assert "no trouble" in text


def test_a_check_loads_nothing_heavy_and_needs_no_server(target: Path) -> None:
    code = f"""
import sys
from typer.testing import CliRunner
from flows.cli.main import app
done = CliRunner().invoke(app, ["lake", "status", {str(target)!r}])
heavy = {{"torch", "prefect", "mlflow", "great_expectations", "scipy", "ray", "deltalake"}} & set(sys.modules)
print(done.exit_code, heavy or "light")
"""
    environment = {**os.environ, "PREFECT_API_URL": "http://127.0.0.1:9/api"}  # a server that is down
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0 light"


@pytest.mark.parametrize("harm", ["cut manifest", "lost state", "other files", "damaged withdrawal"])
def test_damaged(target: Path, harm: str) -> None:
    state = state_of(str(target))
    if harm == "cut manifest":
        path = target / "current" / "_manifest.json"
        path.write_text(path.read_text()[:-40])
    elif harm == "lost state":
        shutil.rmtree(state)
    elif harm == "other files":
        shutil.rmtree(target / "versions")
    else:
        (state / "withdrawals").mkdir()
        (state / "withdrawals" / "x.json").write_text("{}")
    assert _kinds(target) == (10, ["damaged"])


def test_erasing(champion: Path, target: Path) -> None:
    """An erasure that was noted, and killed before its run."""

    def killed(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        erase(make_options(champion, _lake(target), target), ["call-002005"], (), "request 17", run=killed)
    assert _kinds(target) == (21, ["erasing"])
    protect(champion, _lake(target), target)
    assert _kinds(target) == (0, [])


def test_paused(champion: Path, target: Path) -> None:
    file = next(_lake(target).rglob("*.parquet"))
    table = pq.read_table(file, partitioning=None)
    pq.write_table(table.append_column("extra", pa.array(["x"] * len(table))), file)
    with pytest.raises(SchemaPaused):
        protect(champion, _lake(target), target, settings=("protect.on_schema_change=pause",))
    assert _kinds(target) == (22, ["paused"])


def test_unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    started = time.monotonic()
    assert _kinds("s3://lakes/out", "--state", str(tmp_path)) == (11, ["unreachable"])
    assert time.monotonic() - started < 60


def test_withdrawn_also_after_a_rollback(champion: Path, target: Path, tmp_path: Path) -> None:
    pool = pq.read_table(champion / "pools" / "calls" / "part-00000.parquet")
    shown = {tuple(row) for row in pq.read_table(target / "current", columns=["vector"]).column("vector").to_pylist()}
    donor = next(k for k, row in enumerate(pool.column("payload").to_pylist()) if tuple(row) in shown)
    after = tmp_path / "after"
    arguments = ["lake", "donors", "withdraw", pool.column("record_id")[donor].as_py(), "--dataset", "calls", "--to", str(after)]
    places = ["--models", str(champion), "--params", str(write_params(tmp_path)), "--target", str(target)]
    assert CliRunner().invoke(app, [*arguments, *places], catch_exceptions=False).exit_code == 0
    assert _kinds(target) == (12, ["withdrawn"])
    _, (one,) = _check(target)
    assert str(after) in one["troubles"][0]["next"]
    protect(after, _lake(target), target, redraw="donors have withdrawn")
    assert _kinds(target) == (0, [])
    roll_back(open_target(str(target)))
    assert _kinds(target) == (12, ["withdrawn"])


def test_draws(champion: Path, target: Path) -> None:
    with pytest.raises(ConfigError, match="draws_at_most"):
        protect(champion, _lake(target), target, key=with_key(3))
    assert _kinds(target) == (13, ["draws"])
    protect(champion, _lake(target), target, key=with_key(3), redraw="the key was rotated")
    code, (one,) = _check(target)
    assert (code, one["draws"]) == (0, 2)  # somebody decided


def test_audit(champion: Path, target: Path) -> None:
    write_lake(make_table(days=3, start=2000), _lake(target))
    with pytest.raises(AuditFailed):
        protect(champion, _lake(target), target, hooks=Hooks(gate=FailGate()))
    code, (one,) = _check(target)
    assert (code, [trouble["kind"] for trouble in one["troubles"]]) == (14, ["audit"])
    assert one["audit"]["verdict"] == "pass"  # of the live version
    assert one["last_run"]["audit"]["verdict"] == "fail"


def test_audit_of_the_live_version(target: Path) -> None:
    path = target / "current" / "_manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | {"audit": manifest["audit"] | {"verdict": "undecided"}}))
    assert _kinds(target) == (14, ["audit"])
    details = {"accepted_undecided": "the privacy officer"}
    path.write_text(json.dumps(manifest | {"audit": manifest["audit"] | {"verdict": "undecided", "details": details}}))
    assert _kinds(target) == (0, [])


def test_drift(champion: Path, tmp_path: Path) -> None:
    """The real audit: new records without labels that are like those of the champion's, then others."""
    lake, target = tmp_path / "lake", tmp_path / "out"
    write_lake(make_table(start=5000).drop_columns(["gender", "topic"]), lake)
    execute(make_options(champion, lake, target, key=with_key(4)))
    code, (one,) = _check(target)
    assert code == 0
    assert one["audit"]["details"]["checks"]["feature_drift_at_most"]["passed"]
    text = CliRunner().invoke(app, ["lake", "status", str(target)]).output
    assert all(f"{name} drift " in text for name in ("feature", "entropy", "exposure", "usage"))
    moved = make_table(start=9000).drop_columns(["gender", "topic"])
    vectors = (2.0 * np.array(moved.column("vector").to_pylist()) + 1).astype(np.float32)
    place = moved.column_names.index("vector")
    write_lake(moved.set_column(place, "vector", pa.array(list(vectors), moved.schema.field("vector").type)), lake)
    with pytest.raises(DriftFound):
        execute(make_options(champion, lake, target, key=with_key(4)))
    assert _kinds(target) == (15, ["drift"])


def test_failed(champion: Path, target: Path) -> None:
    file = next((_lake(target) / "day=2026-11-11").glob("*"))
    whole = file.read_bytes()
    file.write_bytes(whole[:-30])
    with pytest.raises(DataError):
        protect(champion, _lake(target), target)
    assert _kinds(target) == (16, ["failed", "quarantined"])
    file.write_bytes(whole)
    protect(champion, _lake(target), target, redraw="a copy of the same records")
    assert _kinds(target) == (0, [])


def test_quarantined(champion: Path, target: Path) -> None:
    write_lake(make_table(days=4, start=2000), _lake(target))
    file = next((_lake(target) / "day=2026-11-14").glob("*"))
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(PassError, match="quarantined"):
        protect(champion, _lake(target), target, redraw="a copy of the same records")
    assert _kinds(target) == (20, ["quarantined"])


def test_failed_because_it_was_killed(champion: Path, target: Path) -> None:
    write_lake(make_table(days=3, start=2000), _lake(target))
    options = make_options(champion, _lake(target), target)
    code = "import sys\nfrom tasks.production.options import ProtectOptions\nfrom tasks.production.run import execute\n"
    code += "execute(ProtectOptions.model_validate_json(sys.argv[1]))"
    command = [sys.executable, "-c", code, options.model_dump_json()]
    environment = {**os.environ, CRASH_AT: "pinned"}
    killed = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert _kinds(target) == (16, ["failed"])
    _, (one,) = _check(target)
    assert "killed" in one["troubles"][0]["reason"]


def test_a_run_under_way_is_no_trouble(target: Path) -> None:
    state = state_of(str(target))
    with open_target(str(target)).lock() as held:
        entry = {"run": "now", "started": "2026-11-19T00:00:00+00:00", "writer": held.owner, "source": "lake", "command": "x"}
        with (state / "runs.jsonl").open("a") as file:
            file.write(json.dumps(entry) + "\n")
        code, (one,) = _check(target)
    assert (code, one["writer"]) == (0, held.owner)


def test_never(tmp_path: Path) -> None:
    assert _kinds(tmp_path / "nothing") == (17, ["never"])


def test_late(target: Path) -> None:
    state = state_of(str(target))
    _age(state, 2, "versions.jsonl", "runs.jsonl")
    assert _kinds(target) == (18, ["late"])
    assert _kinds(target, "--stale-after", "3d") == (0, [])
    (state / "versions.jsonl").unlink()
    (state / "runs.jsonl").unlink()
    assert _kinds(target) == (18, ["late"])  # nobody knows when


def test_stale(champion: Path, target: Path, tmp_path: Path) -> None:
    _age(state_of(str(target)), 2, "versions.jsonl", "runs.jsonl")
    protect(champion, _lake(target), target)  # finds nothing to do
    assert _kinds(target) == (19, ["stale"])
    params = write_params(tmp_path, schedule={"stale_after": "8d"})
    assert _kinds(target, "--params", str(params)) == (0, [])


def test_of_several_targets_the_worst_trouble_decides(target: Path, tmp_path: Path) -> None:
    old = tmp_path / "old"
    shutil.copytree(target.parent, old, symlinks=True)
    _age(state_of(str(old / "out")), 2, "versions.jsonl", "runs.jsonl")
    code, found = _check(target, old / "out", tmp_path / "nothing")
    assert code == 17
    assert [[trouble["kind"] for trouble in one["troubles"]] for one in found] == [[], ["late"], ["never"]]
    with pytest.raises(ConfigError, match="expected one for each of 2"):
        _check(target, old / "out", more=("--state", str(tmp_path)))


def test_a_rejected_check_is_no_trouble_of_a_lake(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flows.cli", "lake", "status"]
    for wrong in (["--params", "none.yaml", "x"], ["s3://lakes/out"], ["x", "--stale-after", "soon"], ["x", "--notify"]):
        done = subprocess.run([*command, *wrong], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2, done.stdout
        assert done.stderr.startswith("error: ")


def test_every_kind_has_a_code_of_its_own_and_a_test() -> None:
    codes = list(EXIT_CODES.values())
    assert len(codes) == len(set(codes))
    assert not set(codes) & {0, 1, 2, 3, 75, 130}
    text = Path(__file__).read_text()
    assert all(f'({code}, ["{kind}"])' in text for kind, code in EXIT_CODES.items())


def test_the_table_for_monitors_lists_every_code_and_the_most_urgent_first() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", (PROJECT / "docs" / "monitoring.md").read_text(), re.MULTILINE)
    assert [(kind, int(code)) for code, kind in rows] == list(EXIT_CODES.items())


def test_a_monitor_sees_the_code_of_the_process(tmp_path: Path, target: Path) -> None:
    command = [sys.executable, "-m", "flows.cli", "lake", "status"]
    for place, code in ((tmp_path / "nothing", EXIT_CODES["never"]), (target, 0)):
        assert subprocess.run([*command, str(place)], cwd=tmp_path, capture_output=True, check=False).returncode == code


class _Interrupting(PassGate):
    """While it judges, somebody else starts a second run, which is rejected."""

    def __init__(self, second: Callable[[], object]) -> None:
        super().__init__()
        self._second = second

    def judge(self, sample: Sample, job: Job) -> GateResult:
        with pytest.raises(StorageError, match="is writing"):
            self._second()
        time.sleep(1.1)  # times are noted in seconds
        return super().judge(sample, job)


def test_a_run_that_was_rejected_because_of_another_is_forgotten_once_that_one_succeeds(champion: Path, target: Path) -> None:
    write_lake(make_table(days=3, start=2000), _lake(target))
    gate = _Interrupting(lambda: protect(champion, _lake(target), target))
    protect(champion, _lake(target), target, hooks=Hooks(gate=gate))
    assert _kinds(target) == (0, [])


def test_another_writer_is_reported(champion: Path, target: Path) -> None:
    write_lake(make_table(days=3, start=2000), _lake(target))
    with open_target(str(target)).lock(), pytest.raises(StorageError):
        protect(champion, _lake(target), target)
    _, (one,) = _check(target)
    assert "another writer" in one["troubles"][0]["reason"]
