"""Old versions and audited evidence go by their age, too, also when a run finds nothing to do."""

import datetime
import json
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from pass_core.errors import ConfigError
from tasks.production import crash_points
from tasks.production.options import state_of
from tests.tasks.production.lakes import make_options, make_table, protect, released, write_lake

KEEP: dict[str, Any] = {"protect": {"audit_records": 2000, "keep_versions": 9, "keep_days": 30}}


def _age(target: Path, version: int, days: int) -> None:
    """Makes a version older."""
    path, lines = state_of(str(target)) / "versions.jsonl", []
    time = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=days)
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        if entry["version"] == version:
            entry["published"] = time.isoformat(timespec="seconds")
        lines.append(json.dumps(entry))
    path.write_text("\n".join(lines) + "\n")


def _kept(target: Path) -> tuple[list[str], list[str]]:
    versions = sorted(path.name for path in (target / "versions").iterdir())
    return versions, sorted(path.stem for path in (state_of(str(target)) / "audited").rglob("*.npz"))


def test_versions_and_evidence_go_after_their_days(champion: Path, lake: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    for number in range(3):
        write_lake(make_table(days=1, start=3000 + 200 * number), lake)
        protect(champion, lake, target, params=KEEP)
    assert _kept(target) == (["000001", "000002", "000003"], ["000001", "000002", "000003"])
    _age(target, 1, 40)
    _age(target, 2, 29)
    assert protect(champion, lake, target, params=KEEP)[1] is None  # nothing to do, and what is old goes
    assert _kept(target) == (["000002", "000003"], ["000002", "000003"])
    for version in (2, 3):
        _age(target, version, 31)
    protect(champion, lake, target, params=KEEP)
    assert _kept(target) == (["000003"], [])  # the live version stays, its audited originals go
    assert len(released(target)) == 6


def test_versions_stay_while_no_days_are_given(champion: Path, lake: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    protect(champion, lake, target)
    write_lake(make_table(days=1, start=3000), lake)
    protect(champion, lake, target)
    _age(target, 1, 4000)
    protect(champion, lake, target)
    assert _kept(target)[0] == ["000001", "000002"]
    with pytest.raises(ConfigError, match=r"keep_days: expected at least 1, found 0"):
        make_options(champion, lake, target, params={"protect": {"keep_days": 0}}).load_config()


def _die_retiring(champion: Path, lake: Path, target: Path) -> None:
    os.environ[crash_points.CRASH_AT] = "retired one"
    protect(champion, lake, target, params={"protect": {"audit_records": 200, "keep_versions": 1}})


def test_what_a_killed_run_was_deleting_goes_with_the_next_run(champion: Path, lake: Path, tmp_path: Path) -> None:
    target, retired = tmp_path / "out", state_of(str(tmp_path / "out")) / "retired"
    protect(champion, lake, target)
    write_lake(make_table(days=1, start=3000), lake)
    process = multiprocessing.get_context("fork").Process(target=_die_retiring, args=(champion, lake, target))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    assert retired.exists()
    assert protect(champion, lake, target)[1] is None
    assert not retired.exists()
