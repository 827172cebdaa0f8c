"""A Delta table as target: one commit per version, no values in its log, the same content after a kill at any step."""

import json
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from pass_core.errors import ConfigError, DataError
from tasks.expectations.suites import load_library
from tasks.production import crash_points
from tasks.production.history import open_target
from tasks.production.run import plan_of
from tests.tasks.production.lakes import SECTION, make_options, make_table, released, write_lake
from tests.tasks.production.lakes import protect as protect_parquet

# Delta's threads do not outlive a fork: processes come from a server that has loaded everything and started none.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["tests.tasks.production.lakes", "great_expectations", "deltalake"])
STEPS = ("partition staged", "ledger written", "version started", "version half linked", "version named", "pointer moved",
         "retired one", "staging cleared")  # fmt: skip


def protect(champion: Path, lake: Path, target: Path, **more: Any) -> Any:
    """A run whose target is a Delta table."""
    return protect_parquet(champion, lake, target, target_format="delta", **more)[1]


def content(target: Path, version: int | None = None) -> dict[str, list[dict[str, Any]]]:
    """Rows by day, in the table's order."""
    rows = DeltaTable(target, version=version).to_pyarrow_table().to_pylist()
    days = sorted({row["day"] for row in rows})
    return {day: [row for row in rows if row["day"] == day] for day in days}


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Three days, and the same with the first one changed and one more."""
    load_library()
    folder, table = tmp_path_factory.mktemp("lakes"), make_table(days=4, start=2000)
    before = write_lake(table.slice(0, 600), folder / "before")
    after = write_lake(pa.concat_tables([table.slice(40, 160), table.slice(200, 600)]), folder / "after")
    for day in ("12", "13"):  # the same files in both
        for path in folder.glob(f"*/day=2026-11-{day}/*"):
            os.utime(path, (1, 1))
    return before, after


def test_readers_see_the_rows_that_parquet_would_hold(champion: Path, lakes: Any, tmp_path: Path) -> None:
    manifest = protect(champion, lakes[0], tmp_path / "delta")
    protect_parquet(champion, lakes[0], tmp_path / "parquet")
    expected = released(tmp_path / "parquet")
    found = content(tmp_path / "delta")
    assert sorted(found) == ["2026-11-11", "2026-11-12", "2026-11-13"]
    for day, rows in found.items():
        assert [(row["vector"], row["topic"]) for row in rows] == [
            (row["vector"], row["topic"]) for row in expected[f"day={day}"].to_pylist()
        ]
    frame = pl.read_delta(str(tmp_path / "delta"))
    assert set(frame.columns) == {"vector", "topic", "day"}
    assert frame.group_by("day").len().sort("day")["len"].to_list() == [200, 200, 200]
    assert DeltaTable(tmp_path / "delta").version() == 0  # one commit, the first version's
    assert manifest.version == 1
    assert not plan_of(make_options(champion, lakes[0], tmp_path / "delta")).work  # found to be Delta by itself


def test_the_log_holds_no_value(champion: Path, lakes: Any, tmp_path: Path) -> None:
    target = tmp_path / "delta"
    for lake in lakes:
        protect(champion, lake, target)
    logs = sorted((target / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for path in logs for line in path.read_text().splitlines()]
    adds = [action["add"] for action in actions if "add" in action]
    assert len(adds) >= 5
    for add in adds:
        assert set(json.loads(add["stats"])) == {"numRecords"}
        assert add["modificationTime"] == 0
        assert set(add["partitionValues"]) == {"day"}
    metadata = next(action["metaData"] for action in actions if "metaData" in action)
    assert metadata["configuration"]["delta.dataSkippingNumIndexedCols"] == "0"
    for path in target.rglob("*.parquet"):
        footer = pq.read_metadata(path)
        groups = [footer.row_group(g).column(c) for g in range(footer.num_row_groups) for c in range(footer.num_columns)]
        assert not any(column.is_stats_set for column in groups)
        assert path.stat().st_mtime == 0
    # The control: an ordinary writer records the smallest and largest values.
    write_deltalake(str(tmp_path / "ordinary"), make_table(days=1))
    log = (tmp_path / "ordinary" / "_delta_log" / f"{0:020d}.json").read_text()
    assert "call-000000" in log


def test_a_new_version_replaces_partitions_in_one_commit_and_old_files_go(champion: Path, lakes: Any, tmp_path: Path) -> None:
    target = tmp_path / "delta"
    protect(champion, lakes[0], target)
    first = content(target)
    protect(champion, lakes[1], target)
    second = content(target)
    assert len(second["2026-11-11"]) == 160
    assert second["2026-11-12"] == first["2026-11-12"]
    commits = [entry["version"] for entry in DeltaTable(target).history() if entry.get("passVersion")]
    assert len(commits) == 2
    assert content(target, min(commits)) == first  # keep_versions: 2
    protect(champion, lakes[0], target, drop_missing=True)
    assert content(target) == first
    with pytest.raises(Exception, match=r"No such file|not found|NotFound"):
        content(target, min(commits))
    assert len(list((target / "_manifests").iterdir())) == 2


def _die_at(step: str, champion: Path, lake: Path, target: Path) -> None:
    os.environ[crash_points.CRASH_AT] = step
    protect(champion, lake, target)


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_step_the_next_run_gives_the_same_table(champion: Path, lakes: Any, tmp_path: Path, step: str) -> None:
    target = tmp_path / "delta"
    protect(champion, lakes[1], tmp_path / "undisturbed")
    protect(champion, lakes[0], target)
    before, after = content(target), content(tmp_path / "undisturbed")
    process = SERVER.Process(target=_die_at, args=(step, champion, lakes[1], target))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    assert content(target) in (before, after)
    protect(champion, lakes[1], target)
    assert content(target) == after
    referenced = {Path(uri.removeprefix("file://")).name for uri in DeltaTable(target).file_uris()}
    assert len(referenced) == 4


def test_a_partition_value_is_one_partition_however_its_folder_is_written(champion: Path, tmp_path: Path) -> None:
    """Spark leaves blanks, Arrow quotes them; the value is also in the log, where a newline must not end a line."""
    table = make_table(days=2, start=2000)
    column = table.column_names.index("day")
    lake, target, value = tmp_path / "lake", tmp_path / "delta", "New York\nand more"
    for slot, folder in ((0, "New York\nand more"), (1, "New%20York%0Aand%20more")):
        part = table.slice(200 * slot, 200).remove_column(column)
        (lake / f"day={folder}").mkdir(parents=True)
        pq.write_table(part, lake / f"day={folder}" / f"part-{slot}.parquet")
    protect(champion, lake, target)
    assert {day: len(rows) for day, rows in content(target).items()} == {value: 400}
    assert pl.read_delta(str(target))["day"].to_list() == [value] * 400
    (lake / "day=New%20York%0Aand%20more" / "part-1.parquet").touch()
    protect(champion, lake, target)
    assert {day: len(rows) for day, rows in content(target).items()} == {value: 400}


def test_new_columns_change_the_tables_schema(champion: Path, lakes: Any, tmp_path: Path) -> None:
    """In the commit that replaces the rows; a run that would leave rows with the old columns publishes nothing."""
    target = tmp_path / "delta"
    protect(champion, lakes[0], target)
    before = content(target)
    fewer: dict[str, Any] = {"params": {"release": {"calls": []}}}
    with pytest.raises(DataError, match=r"expected all partitions with the new columns, found 2 partition\(s\)"):
        protect(champion, lakes[0], target, last="2026-11-11", **fewer)
    assert content(target) == before
    protect(champion, lakes[0], target, **fewer)
    table = DeltaTable(target)
    assert [field.name for field in table.schema().fields] == ["vector", "day"]
    assert table.to_pyarrow_table().num_rows == 600
    assert table.metadata().configuration["delta.dataSkippingNumIndexedCols"] == "0"
    protect(champion, lakes[0], target)
    assert content(target) == before


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (range(600), pa.timestamp("us", "Europe/Berlin")),
        (range(600), pa.time64("us")),
        (range(600), pa.duration("us")),
        (np.arange(600, dtype=np.float16), pa.float16()),
        (range(600), pa.timestamp("ns")),
        (range(600), pa.uint32()),
    ],
    ids=str,
)
def test_what_delta_cannot_hold_is_refused_before_the_work(
    champion: Path, tmp_path: Path, values: Any, kind: pa.DataType
) -> None:
    table = make_table(start=2000).append_column("extra", pa.array(values, kind))
    section = {"dataset": {"calls": SECTION | {"pass_through": ["day", "extra"]}}}
    lake = write_lake(table, tmp_path / "lake")
    with pytest.raises(ConfigError, match=r"expected column types that Delta has .* found others in extra"):
        plan_of(make_options(champion, lake, tmp_path / "delta", target_format="delta", params=section))
    assert plan_of(make_options(champion, lake, tmp_path / "parquet", params=section)).work


def test_partition_values_that_delta_cannot_hold_are_refused(champion: Path, lakes: Any, tmp_path: Path) -> None:
    protect(champion, lakes[0], tmp_path / "delta")
    lake = write_lake(make_table(days=1, start=2000), tmp_path / "lake")
    (lake / "day=2026-11-11").rename(lake / "day=")
    with pytest.raises(ConfigError, match="found 1 empty text"):
        protect(champion, lake, tmp_path / "delta")
    section = {"dataset": {"calls": SECTION | {"pass_through": []}}}
    with pytest.raises(ConfigError, match=r"expected the table's partition columns \(day\), found none"):
        protect(champion, lakes[0], tmp_path / "delta", params=section)


def test_values_that_need_quoting_and_tables_of_others(champion: Path, tmp_path: Path) -> None:
    table = make_table(days=2, start=2000)
    column = table.column_names.index("day")
    odd = [f"{day} a/b%" for day in table.column("day").to_pylist()]
    lake = write_lake(table.set_column(column, "day", pa.array(odd)), tmp_path / "lake")
    target = tmp_path / "delta"
    protect(champion, lake, target)
    assert set(content(target)) == set(odd)
    assert set(pl.read_delta(str(target))["day"].to_list()) == set(odd)
    assert protect(champion, lake, target) is None
    next((lake).rglob("*.parquet")).touch()  # another time: the partition is done again, and replaced
    protect(champion, lake, target)
    assert {day: len(rows) for day, rows in content(target).items()} == dict.fromkeys(set(odd), 200)
    write_deltalake(str(tmp_path / "others"), table)
    with pytest.raises(ConfigError, match="found another table"):
        open_target(str(tmp_path / "others"), tmp_path / "state")
