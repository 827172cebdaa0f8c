"""A partition that takes longer than `partition_minutes`: it stops no other."""

from pathlib import Path

import pytest

from pass_core.errors import PartitionsQuarantined
from tasks.production import attempts, crash_points
from tasks.production.options import state_of
from tasks.production.quarantine import read_quarantine
from tests.tasks.production.lakes import make_table, protect, released, write_lake

MINUTES = 0.3  # the others take far less than a second, on a machine that has time for them


@pytest.mark.parametrize("executor", ["local", "ray"])
def test_a_partition_that_takes_too_long_stops_no_other(
    champion: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: str
) -> None:
    """Its worker is ended as if it had died, although it hangs; test_commands.py shows how often deaths are tried again."""
    monkeypatch.setattr(attempts, "GIVEN_UP", 1)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    lake, target = write_lake(make_table(days=3, per_day=20, start=200), tmp_path / "lake"), tmp_path / "out"
    monkeypatch.setenv(crash_points.HANG_AT, "partition started@day=2026-11-12")
    with pytest.raises(PartitionsQuarantined, match=f"longer than {MINUTES} minutes"):
        protect(champion, lake, target, workers=1, partition_minutes=MINUTES, executor=executor)
    assert set(released(target)) == {"day=2026-11-11", "day=2026-11-13"}
    assert list(read_quarantine(state_of(str(target)))) == ["day=2026-11-12"]
    monkeypatch.delenv(crash_points.HANG_AT)
    protect(champion, lake, target)
    assert len(released(target)) == 3
