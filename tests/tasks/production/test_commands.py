"""The commands as a user meets them: plan, keys, backfill, withdraw, exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from pass_core.errors import ConfigError
from tasks.production.options import state_of
from tasks.production.quarantine import read_quarantine
from tasks.production.run import plan_of
from tests.conftest import PROJECT
from tests.tasks.production.lakes import make_options, make_table, protect, released, write_lake, write_params

runner = CliRunner()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    assert runner.invoke(app, ["lake", "key", "new", str(tmp_path / "draw.key")]).exit_code == 0
    return tmp_path / "draw.key"


def _arguments(command: str, champion: Path, lake: Path, target: Path, key: Path) -> list[str]:
    params = write_params(target.parent)  # each test has a draw ledger of its own
    options = {"--dataset": "calls", "--models": str(champion), "--params": str(params), "--key-file": str(key)}
    return ["lake", command, str(lake), str(target), *(part for pair in options.items() for part in pair)]


def test_key_id_is_printed_and_the_key_is_not(key: Path) -> None:
    printed = runner.invoke(app, ["lake", "key", "id", "--key-file", str(key)]).output.strip()
    assert len(printed) == 16
    assert key.read_text().strip() not in printed


def test_plan_says_what_and_why_and_does_nothing(champion: Path, lake: Path, tmp_path: Path, key: Path) -> None:
    arguments = _arguments("plan", champion, lake, tmp_path / "out", key)
    shown = runner.invoke(app, arguments).output
    assert "day=2026-11-12: new" in shown
    assert "3 to do, 0 unchanged, 0 missing" in shown
    assert not (tmp_path / "out").exists()
    assert not state_of(str(tmp_path / "out")).exists()
    as_json = json.loads(runner.invoke(app, [*arguments, "--json"]).output)
    assert set(as_json["work"].values()) == {"new"}


def test_a_seed_in_production_is_refused(champion: Path, lake: Path, tmp_path: Path, key: Path) -> None:
    arguments = _arguments("plan", champion, lake, tmp_path / "out", key)
    with pytest.raises(ConfigError, match="seed: expected none in production"):
        runner.invoke(app, [*arguments, "--set", "seed=5"], catch_exceptions=False)


def test_backfill_writes_its_plan_publishes_what_it_can_and_retries_the_rest(champion: Path, tmp_path: Path, key: Path) -> None:
    lake = write_lake(make_table(days=4, start=2000), tmp_path / "lake")
    damaged = next((lake / "day=2026-11-12").glob("*"))
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-30])
    arguments = _arguments("backfill", champion, lake, tmp_path / "out", key)
    command = [
        sys.executable,
        "-m",
        "flows.cli",
        *arguments,
        "--from",
        "2026-11-11",
        "--to",
        "2026-11-13",
        "--workers",
        "1",
    ]
    first = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert first.returncode == 4, first.stderr
    assert "Traceback" not in first.stderr
    assert "1 partition(s) failed and are quarantined, the others are published" in first.stderr
    assert set(released(tmp_path / "out")) == {"day=2026-11-11", "day=2026-11-13"}
    paper = state_of(str(tmp_path / "out")) / "backfill.json"
    assert {name: entry["status"] for name, entry in json.loads(paper.read_text()).items()} == {
        "day=2026-11-11": "done",
        "day=2026-11-12": "failed",
        "day=2026-11-13": "done",
    }
    status = runner.invoke(app, ["lake", "status", str(tmp_path / "out")]).output
    assert "day=2026-11-12: " in status
    assert "is damaged" in status
    damaged.write_bytes(whole)
    second = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert second.returncode == 0, second.stderr
    assert json.loads(paper.read_text()) == {"day=2026-11-12": {"reason": "new", "status": "done", "message": ""}}
    assert set(released(tmp_path / "out")) == {"day=2026-11-11", "day=2026-11-12", "day=2026-11-13"}
    assert "quarantined since" not in runner.invoke(app, ["lake", "status", str(tmp_path / "out")]).output


def test_a_partition_on_which_workers_die_stops_no_other(
    champion: Path, lake: Path, tmp_path: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found out, quarantined and tried again by the next run; the exit code says that something is missing."""
    monkeypatch.setenv("PASS_CRASH_AT", "partition started@day=2026-11-12")
    command = [sys.executable, "-m", "flows.cli", *_arguments("protect", champion, lake, tmp_path / "out", key), "--workers", "2"]
    first = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert first.returncode == 4, first.stderr
    assert set(released(tmp_path / "out")) == {"day=2026-11-11", "day=2026-11-13"}
    (failed,) = read_quarantine(state_of(str(tmp_path / "out"))).items()
    assert failed[0] == "day=2026-11-12"
    assert "workers died on it 3 times" in failed[1]["message"]
    monkeypatch.delenv("PASS_CRASH_AT")
    again = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert len(released(tmp_path / "out")) == 3
    assert not read_quarantine(state_of(str(tmp_path / "out")))


def test_withdraw_lists_the_partitions_that_show_who_left(champion: Path, lake: Path, tmp_path: Path) -> None:
    protect(champion, lake, tmp_path / "out")
    pool = pq.read_table(champion / "pools" / "calls" / "part-00000.parquet")
    shown = {tuple(row) for table in released(tmp_path / "out").values() for row in table.column("vector").to_pylist()}
    position = next(k for k, row in enumerate(pool.column("payload").to_pylist()) if tuple(row) in shown)
    person = pool.column("person")[position].as_py()
    options = ["--dataset", "calls", "--models", str(champion), "--params", str(write_params(tmp_path))]
    done = runner.invoke(
        app,
        [
            "lake",
            "donors",
            "withdraw",
            person,
            "--person",
            "--to",
            str(tmp_path / "after"),
            "--target",
            str(tmp_path / "out"),
            *options,
        ],
    )
    assert done.exit_code == 0, done.output
    assert f"{tmp_path / 'out'}: day=2026-11-1" in done.output
    assert person not in done.output
    left = pq.read_table(tmp_path / "after" / "pools" / "calls" / "part-00000.parquet").column("person").to_pylist()
    assert person not in left
    assert plan_of(make_options(tmp_path / "after", lake, tmp_path / "out")).work
