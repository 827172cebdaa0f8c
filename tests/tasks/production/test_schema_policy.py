"""protect.on_schema_change: what a run does when the source's columns change, also one that `lake serve` starts."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pass_core.errors import DataError, PartitionsQuarantined, SchemaPaused
from tasks.production.options import ProtectOptions
from tasks.production.run import Hooks, execute, plan_of
from tasks.sections.running import ScheduleConfig
from tests.tasks.production.lakes import PassGate, make_options, make_table, protect, released, write_lake

DAY = "day=2026-11-12"


def _policy(name: str) -> dict[str, Any]:
    return {"params": {"protect": {"audit_records": 200, "on_schema_change": name}}}


def _rewrite(lake: Path, day: str, drop: tuple[str, ...] = (), **columns: pa.Array) -> None:
    file = next((lake / day).glob("*.parquet"))
    table = pq.read_table(file, partitioning=None).drop_columns(list(drop))
    for name, values in columns.items():
        table = table.append_column(name, values)
    pq.write_table(table, file)


def _published(champion: Path, lake: Path, target: Path, policy: str) -> Path:
    """A target with a version, and one more day in the source."""
    protect(champion, lake, target, **_policy(policy))
    write_lake(make_table(days=1, start=8000), lake)
    return target


def test_refuse_quarantines_what_differs(champion: Path, lake: Path, tmp_path: Path) -> None:
    target = _published(champion, lake, tmp_path / "out", "refuse")
    _rewrite(lake, DAY, extra=pa.array(["x"] * 200))
    with pytest.raises(PartitionsQuarantined, match="new: extra"):
        protect(champion, lake, target, **_policy("refuse"))
    assert len(released(target)) == 4


def test_unused_columns_are_ignored_and_used_ones_are_not(champion: Path, lake: Path, tmp_path: Path) -> None:
    target = _published(champion, lake, tmp_path / "out", "ignore_unused")
    for day in ("day=2026-11-11", DAY):  # in the first file, too
        _rewrite(lake, day, extra=pa.array(["x"] * 200))
    _, manifest = protect(champion, lake, target, **_policy("ignore_unused"))
    assert manifest is not None
    assert not manifest.added
    assert len(released(target)) == 4
    assert all("extra" not in table.column_names for table in released(target).values())
    _rewrite(lake, DAY, drop=("topic",))
    with pytest.raises(DataError, match="missing: topic"):
        protect(champion, lake, target, **_policy("ignore_unused"))


def test_a_used_column_that_is_new_is_not_ignored(champion: Path, lake: Path, tmp_path: Path) -> None:
    """Labels that arrive later decide what the audit is based on."""
    bare = write_lake(make_table(start=2000).drop_columns(["gender", "topic"]), tmp_path / "bare")
    protect(champion, bare, tmp_path / "out", **_policy("ignore_unused"))
    write_lake(make_table(days=1, start=8000), bare)
    with pytest.raises(DataError, match="new: gender, topic"):
        protect(champion, bare, tmp_path / "out", **_policy("ignore_unused"))


@pytest.mark.parametrize("day", ["day=2026-11-11", DAY])  # in the first file, and in another one
def test_pause_publishes_nothing_until_somebody_has_looked(champion: Path, lake: Path, tmp_path: Path, day: str) -> None:
    target = _published(champion, lake, tmp_path / "out", "pause")
    _rewrite(lake, day, extra=pa.array(["x"] * 200))
    for start in (plan_of, execute):
        with pytest.raises(SchemaPaused, match=r"new: extra .*Paused: nothing is published until then"):
            start(make_options(champion, lake, target, **_policy("pause")))
    assert len(released(target)) == 3
    protect(champion, lake, target, new_columns=True, **_policy("pause"))
    assert len(released(target)) == 4
    _rewrite(lake, day, drop=("topic",))
    with pytest.raises(SchemaPaused, match="missing: topic"):
        protect(champion, lake, target, **_policy("pause"))


def test_damage_is_no_change_of_columns(champion: Path, lake: Path, tmp_path: Path) -> None:
    target = _published(champion, lake, tmp_path / "out", "pause")
    file = next((lake / DAY).glob("*.parquet"))
    file.write_bytes(file.read_bytes()[:-50])
    with pytest.raises(PartitionsQuarantined, match="damaged"):
        protect(champion, lake, target, **_policy("pause"))
    assert len(released(target)) == 4


def test_scheduled_runs_follow_the_policy(champion: Path, lake: Path, tmp_path: Path) -> None:
    """With what a deployment of `lake serve` hands to its runs."""
    from flows.schedule import deployments

    target = _published(champion, lake, tmp_path / "out", "refuse")
    _rewrite(lake, DAY, extra=pa.array(["x"] * 200))
    for policy, published in (("pause", 3), ("ignore_unused", 4)):
        options = make_options(champion, lake, target, settings=(f"protect.on_schema_change={policy}",))
        nightly, _ = deployments(options, ScheduleConfig())
        given = ProtectOptions(**nightly.parameters["options"])
        if policy == "pause":
            with pytest.raises(SchemaPaused):
                execute(given, Hooks(gate=PassGate()))
        else:
            execute(given, Hooks(gate=PassGate()))
        assert len(released(target)) == published
