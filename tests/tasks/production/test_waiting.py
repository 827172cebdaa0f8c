"""protect.min_change: a few changed rows wait, so that nobody finds a single record by comparing two versions."""

import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.cli.lake_run import run_and_report
from flows.cli.status import status_text
from pass_core.errors import PartitionsQuarantined
from tasks.production.erasure import erase
from tasks.production.history import open_target
from tasks.production.options import state_of
from tasks.production.run import Hooks, Outcome, execute
from tasks.production.status import check_target
from tasks.production.waiting import read_waiting
from tests.tasks.production.lakes import SECTION, PassGate, make_options, make_table, released, with_key, write_lake

DAY = "day=2026-11-12"
LEAST: dict[str, Any] = {"protect": {"audit_records": 200, "min_change": 20}}


def _run(champion: Path, lake: Path, target: Path, **more: Any) -> Outcome:
    return execute(make_options(champion, lake, target, **({"params": LEAST} | more)), Hooks(gate=PassGate()))


def _late(lake: Path, start: int, rows: int, day: str = DAY) -> None:
    """Late records in a day that is published."""
    table = make_table(days=1, per_day=rows, start=start).drop_columns(["day"])
    pq.write_table(table, lake / day / f"late-{start}.parquet")


def test_a_late_record_waits_until_there_are_more(champion: Path, lake: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert _run(champion, lake, target).manifest is not None  # the first version does not wait
    before = released(target)
    _late(lake, 7000, 1)
    done = _run(champion, lake, target)
    assert (done.manifest, done.waiting) == (None, {DAY: 1})
    assert done.counts() == {"partitions": 0, "rows": 0, "unchanged": 2, "waiting": 1}
    assert released(target).keys() == before.keys()
    assert len(released(target)[DAY]) == 200
    # A whole new day is published, and the late record, which its own day would show, still waits.
    write_lake(make_table(days=1, start=8000), lake)
    done = _run(champion, lake, target)
    assert done.manifest is not None
    assert done.waiting == {DAY: 1}
    assert done.counts()["partitions"] == 1
    assert len(released(target)) == 4
    assert released(target)[DAY].equals(before[DAY])
    _late(lake, 7100, 19)
    done = _run(champion, lake, target)
    assert not done.waiting
    assert len(released(target)[DAY]) == 220
    assert _run(champion, lake, target).counts() == {"partitions": 0, "rows": 0, "unchanged": 4}


def test_few_new_records_wait_in_a_new_partition_too(champion: Path, lake: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    _run(champion, lake, target)
    write_lake(make_table(days=1, per_day=19, start=8000), lake)
    assert sum(_run(champion, lake, target).waiting.values()) == 19
    assert list(open_target(str(target)).manifests()) == [1]


def test_somebody_can_decide_that_few_are_published(champion: Path, lake: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    _run(champion, lake, target)
    _late(lake, 7000, 1)
    _run(champion, lake, target)
    assert _run(champion, lake, target, publish_few="month's end").manifest is not None
    assert len(released(target)[DAY]) == 201
    decisions = (state_of(str(target)) / "decisions.jsonl").read_text()
    assert [json.loads(line)["reason"] for line in decisions.splitlines()] == ["month's end"]


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_changed_and_deleted_records_are_counted(champion: Path, lake: Path, tmp_path: Path, form: str) -> None:
    """Also where only a column changes that is published unchanged; and a change that nobody sees is no reason to wait."""
    target = tmp_path / "out"
    params = LEAST | {"dataset": {"calls": SECTION | {"pass_through": ["day", "secret"]}}}
    more = {"params": params, "target_format": form}
    _run(champion, lake, target, **more)
    file = next((lake / DAY).glob("*.parquet"))
    table = pq.read_table(file, partitioning=None)
    pq.write_table(table.slice(3), file)
    assert _run(champion, lake, target, **more).waiting == {DAY: 3}
    notes = pa.array([f"corrected {k}" if k < 7 else value for k, value in enumerate(table["secret"].to_pylist())])
    pq.write_table(table.set_column(table.column_names.index("secret"), "secret", notes), file)
    assert _run(champion, lake, target, **more).waiting == {DAY: 7}
    topics = pa.array(["t0"] * len(table))  # unused by the draw, and not published
    pq.write_table(table.set_column(table.column_names.index("topic"), "topic", topics), file)
    done = _run(champion, lake, target, **more)
    assert not done.waiting
    assert done.manifest is not None


def test_what_is_drawn_again_as_a_whole_does_not_wait(champion: Path, tmp_path: Path) -> None:
    """No row stands alone; and a withdrawn donor must not stay because a partition is small."""
    lake, target = write_lake(make_table(days=1, per_day=9, start=2000), tmp_path / "lake"), tmp_path / "out"
    _run(champion, lake, target)
    done = _run(champion, lake, target, key=with_key(1), redraw="yearly rotation")
    assert done.manifest is not None
    assert not done.waiting


def test_damaged_output_is_repaired_at_once(champion: Path, lake: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    _run(champion, lake, target)
    before = released(target)
    next((target / "current" / DAY).glob("*.parquet")).unlink()
    assert _run(champion, lake, target).manifest is not None
    assert all(table.equals(before[name]) for name, table in released(target).items())


def test_an_erasure_does_not_wait(champion: Path, lake: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    _run(champion, lake, target)
    _late(lake, 7000, 1)
    assert _run(champion, lake, target).waiting
    options = make_options(champion, lake, target, params=LEAST)
    done = erase(options, ["call-002205"], (), "request 17", hooks=Hooks(gate=PassGate()))
    assert (done.receipt.version, done.few) == (2, 20)
    assert len(released(target)[DAY]) == 200
    assert not read_waiting(state_of(str(target)))


def test_status_and_command_say_that_a_run_waits(
    champion: Path, lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out"
    _run(champion, lake, target)
    _late(lake, 7000, 2)
    counts = _run(champion, lake, target).counts()
    monkeypatch.setattr("flows.cli.lake_run.run_flow", lambda *_, **__: counts)  # a Prefect server takes seconds
    run_and_report(make_options(champion, lake, target, params=LEAST), as_json=False, quiet=True)
    assert "2 row(s) would change in others, fewer than protect.min_change: they wait for more" in capsys.readouterr().out
    found = check_target(str(target), None, datetime.timedelta(days=1), datetime.datetime.now(datetime.UTC))
    assert not found.troubles
    assert f"{DAY}: 2 row(s) would change, fewer than protect.min_change (20)" in status_text(found)
    assert found.last_run is not None
    assert found.last_run.outcome == "waiting"


def test_a_partition_that_fails_is_quarantined_while_others_wait(champion: Path, lake: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    _run(champion, lake, target)
    _late(lake, 7000, 1)
    damaged = next((lake / "day=2026-11-13").glob("*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-50])
    with pytest.raises(PartitionsQuarantined, match="quarantined, the others wait for more changes"):
        _run(champion, lake, target)
    assert np.sum([len(table) for table in released(target).values()]) == 600
