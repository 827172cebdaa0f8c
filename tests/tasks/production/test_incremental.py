"""What a run does and leaves alone: new, changed, missing, drifted, damaged; keys, draws, retention, donors who leave."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyarrow import csv

from pass_core.errors import AuditFailed, ConfigError, DataError, PartitionsQuarantined, SchemaMismatch, StorageError
from tasks.audits.unlabelled import read_labelled_audit
from tasks.config import load_config
from tasks.production.draw_ledger import Ledger
from tasks.production.history import open_target
from tasks.production.ledger_upkeep import verify
from tasks.production.manifest import Receipts
from tasks.production.options import state_of
from tasks.production.run import Hooks, execute, plan_of
from tasks.production.withdrawal import withdraw
from tasks.production.writer_lock import LOCK
from tasks.registry import STEPS
from tasks.running.layout import Layout
from tasks.running.step import run_step
from tasks.storage.files import digest, read_json
from tests.tasks.production.lakes import (
    KEY,
    PARAMS,
    FailGate,
    PassGate,
    ledger_beside,
    make_options,
    make_table,
    protect,
    published,
    released,
    with_key,
    write_lake,
    write_params,
)

DAY = "day=2026-11-12"


def _rewrite(path: Path, **columns: pa.Array) -> None:
    table = pq.read_table(path, partitioning=None)
    for name, values in columns.items():
        place = table.column_names.index(name) if name in table.column_names else None
        table = table.append_column(name, values) if place is None else table.set_column(place, name, values)
    pq.write_table(table, path)


def _file(lake: Path, day: str = DAY) -> Path:
    return next((lake / day).glob("*.parquet"))


def test_only_what_changed_is_done_and_the_rest_stays_the_same_file(champion: Path, lake: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    plan, _ = protect(champion, lake, target)
    assert plan.reasons() == {"new": 3}
    before, inodes = published(target), {p.name: p.stat().st_ino for p in (target / "current").rglob("*.parquet")}
    assert protect(champion, lake, target)[1] is None
    write_lake(make_table(days=1, start=2600), lake)
    _rewrite(_file(lake), gender=pa.array(["f"] * 200))
    plan, manifest = protect(champion, lake, target)
    assert {p.name: p.reason for p in plan.work} == {DAY: "input changed", "day=2026-11-14": "new"}
    assert manifest is not None
    assert manifest.version == 2
    after = published(target)
    assert {name: data for name, data in after.items() if name in before} == before  # the changed column is no part of a draw
    kept = {p.name: p.stat().st_ino for p in (target / "current").rglob("*.parquet") if DAY not in str(p)}
    assert {name: inodes[name] for name in kept if name in inodes} == {n: i for n, i in kept.items() if n in inodes}
    assert len(after) == 4


def test_what_leaves_is_a_donors_and_nothing_else(champion: Path, lake: Path, tmp_path: Path) -> None:
    protect(champion, lake, tmp_path / "out")
    pool = _pool(champion)
    donors = {
        row.tobytes(): topic for row, topic in zip(_vectors(pool, "payload"), pool.column("topic").to_pylist(), strict=True)
    }
    source = pq.read_table(lake)
    for name, table in released(tmp_path / "out").items():
        assert table.column_names == ["vector", "topic"]
        assert table.schema.field("vector").type == source.schema.field("vector").type
        assert len(table) == 200, name
        shown = zip(_vectors(table, "vector"), table.column("topic").to_pylist(), strict=True)
        assert all(donors[row.tobytes()] == topic for row, topic in shown)
    for path in (tmp_path / "out" / "current").rglob("*.parquet"):
        footer = pq.read_metadata(path)
        assert path.stat().st_mtime == 0
        assert not footer.row_group(0).column(0).is_stats_set
        assert set(footer.metadata or {}) <= {b"ARROW:schema"}


def _pool(root: Path) -> pa.Table:
    return pq.read_table(root / "pools" / "calls" / "part-00000.parquet")


def _vectors(table: pa.Table, column: str) -> np.ndarray:
    values = table.column(column).combine_chunks().flatten().to_numpy()
    return values.reshape(len(table), -1)


def test_new_columns_need_a_flag_and_others_are_refused(champion: Path, lake: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    protect(champion, lake, target)
    _rewrite(_file(lake), extra=pa.array(["x"] * 200))
    with pytest.raises(DataError, match="new: extra"):
        protect(champion, lake, target)
    plan, manifest = protect(champion, lake, target, new_columns=True)
    assert len(plan.work) == 1
    assert "extra" not in released(target)[DAY].column_names
    _rewrite(_file(lake), extra=pa.array(["y"] * 200))
    plan, manifest = protect(champion, lake, target)  # accepted once and for all
    assert len(plan.work) == 1
    whole = _file(lake, "day=2026-11-13").read_bytes()
    _rewrite(_file(lake, "day=2026-11-13"), topic=pa.array(range(200)))
    with pytest.raises(DataError, match="of another type: topic"):
        protect(champion, lake, target, new_columns=True)
    _file(lake, "day=2026-11-13").write_bytes(whole)
    pq.write_table(pq.read_table(_file(lake), partitioning=None).drop_columns(["topic"]), _file(lake))
    with pytest.raises(DataError, match="missing: topic"):
        protect(champion, lake, target, new_columns=True)
    assert open_target(str(target), state_of(str(target))).current() == manifest
    shutil.rmtree(lake)
    write_lake(make_table(start=2000).drop_columns(["call"]), lake)
    with pytest.raises(SchemaMismatch, match="missing columns: call"):
        protect(champion, lake, target)


def test_only_used_columns_are_pinned_and_by_what_they_mean(champion: Path, lake: Path, tmp_path: Path) -> None:
    """Another writer stores texts as large strings or dictionaries, and unused columns come with other types or not at all."""
    target, form = tmp_path / "out", "day=2026-11-{}".format
    protect(champion, lake, target)
    before, digests = released(target), published(target)
    for day, kind in ((11, pa.large_string()), (12, pa.dictionary(pa.int32(), pa.string())), (13, pa.string_view())):
        table = pq.read_table(_file(lake, form(day)), partitioning=None)
        columns = {name: table.column(name).combine_chunks().cast(kind) for name in ("call", "customer", "gender", "topic")}
        _rewrite(_file(lake, form(day)), **columns, secret=pa.array(range(200)))
    table = pq.read_table(_file(lake, form(13)), partitioning=None)
    pq.write_table(table.drop_columns(["secret"]), _file(lake, form(13)))
    plan, manifest = protect(champion, lake, target)
    assert plan.reasons() == {"input changed": 3}
    assert manifest is not None
    assert {name: table.equals(before[name]) for name, table in released(target).items()} == dict.fromkeys(before, True)
    assert published(target) == digests


def test_a_missing_partition_stops_the_run_unless_dropped(champion: Path, lake: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    protect(champion, lake, target)
    shutil.rmtree(lake / DAY)
    with pytest.raises(DataError, match="1 published partition"):
        protect(champion, lake, target)
    assert DAY in released(target)
    protect(champion, lake, target, drop_missing=True)
    assert set(released(target)) == {"day=2026-11-11", "day=2026-11-13"}
    shutil.rmtree(next((target / "current").resolve().glob("day=*13")))
    assert protect(champion, lake, target)[0].reasons() == {"output missing": 1}


@pytest.mark.parametrize(
    ("damage", "day"), [("truncated", DAY), ("truncated", "day=2026-11-11"), ("flipped", DAY), ("twice", DAY)]
)
def test_a_damaged_shard_is_quarantined_and_the_others_are_published(
    champion: Path, lake: Path, tmp_path: Path, damage: str, day: str
) -> None:
    path, target = _file(lake, day), tmp_path / "out"
    whole = path.read_bytes()
    if damage == "truncated":
        path.write_bytes(whole[:-50])
    elif damage == "flipped":
        path.write_bytes(whole[:200] + bytes(byte ^ 255 for byte in whole[200:4000]) + whole[4000:])
    else:
        _rewrite(path, call=pa.array(["the same"] * 200))
    with pytest.raises(PartitionsQuarantined, match="every record id once" if damage == "twice" else "damaged") as error:
        protect(champion, lake, target)
    assert "the same" not in str(error.value)
    assert f"1 partition(s) failed and are quarantined, the others are published: {day}" in str(error.value)
    assert set(released(target)) == {"day=2026-11-11", DAY, "day=2026-11-13"} - {day}
    path.write_bytes(whole)
    assert [p.name for p in protect(champion, lake, target)[0].work] == [day]
    assert len(released(target)) == 3


def test_what_has_no_rows_is_ordinary(champion: Path, lake: Path, tmp_path: Path) -> None:
    """An empty first file that knows no types, a day without rows, a partition that becomes empty and fills again."""
    target, whole = tmp_path / "out", pq.read_table(_file(lake), partitioning=None)
    (lake / "day=2026-11-01").mkdir()
    untyped = pa.table({name: pa.nulls(0) for name in whole.column_names})
    pq.write_table(untyped, lake / "day=2026-11-01" / "none.parquet")
    pq.write_table(whole.slice(0, 0), lake / DAY / "nothing.parquet")
    _, manifest = protect(champion, lake, target)
    assert manifest is not None
    assert {name: one.rows for name, one in manifest.partitions.items()} == {
        "day=2026-11-01": 0, "day=2026-11-11": 200, DAY: 200, "day=2026-11-13": 200,
    }  # fmt: skip
    before = released(target)
    assert len(before["day=2026-11-01"]) == 0
    assert before["day=2026-11-01"].schema.equals(before[DAY].schema)
    (lake / DAY / "nothing.parquet").unlink()
    pq.write_table(whole.slice(0, 0), _file(lake))
    plan, manifest = protect(champion, lake, target)
    assert plan.reasons() == {"input changed": 1}
    assert manifest is not None
    assert manifest.audit["records"] == 0
    assert len(released(target)[DAY]) == 0
    assert protect(champion, lake, target)[1] is None
    pq.write_table(whole, _file(lake))
    protect(champion, lake, target)
    assert released(target)[DAY].equals(before[DAY])


def test_a_lake_without_any_record_can_be_published(champion: Path, lake: Path, tmp_path: Path) -> None:
    for path in lake.rglob("*.parquet"):
        pq.write_table(pq.read_table(path, partitioning=None).slice(0, 0), path)
    for form in ("parquet", "delta"):
        _, manifest = protect(champion, lake, tmp_path / form, target_format=form)
        assert manifest is not None
        assert len(manifest.partitions) == 3
    assert sum(len(table) for table in released(tmp_path / "parquet").values()) == 0
    assert len(DeltaTable(tmp_path / "delta").to_pyarrow_table()) == 0
    write_lake(make_table(start=2000), lake)
    protect(champion, lake, tmp_path / "delta")
    assert len(DeltaTable(tmp_path / "delta").to_pyarrow_table()) == 600


def test_a_csv_file_of_a_header_is_ordinary(champion: Path, tmp_path: Path) -> None:
    table, lake = make_table(days=1, start=2000).drop_columns(["day", "secret"]), tmp_path / "lake"
    vectors = np.array(table.column("vector").to_pylist())
    wide = table.drop_columns(["vector"])
    for k in range(vectors.shape[1]):
        wide = wide.append_column(f"x{k}", pa.array(vectors[:, k]))
    lake.mkdir()
    csv.write_csv(wide.slice(0, 0), lake / "a.csv")
    csv.write_csv(wide, lake / "b.csv")
    section = PARAMS["dataset"]["calls"] | {"format": "csv", "payload": [f"x{k}" for k in range(vectors.shape[1])]}
    protect(champion, lake, tmp_path / "out", params={"dataset": {"calls": section | {"pass_through": []}}})
    assert len(released(tmp_path / "out")["."]) == 200


def test_another_key_or_model_draws_again_only_when_somebody_decides(champion: Path, lake: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    protect(champion, lake, target)
    before = published(target)
    with pytest.raises(ConfigError, match="drawn 2 times"):
        protect(champion, lake, target, key=with_key(1))
    plan, manifest = protect(champion, lake, target, key=with_key(1), redraw="yearly rotation")
    assert plan.reasons() == {"key changed": 3}
    assert manifest is not None
    assert {receipt.draws for receipt in manifest.partitions.values()} == {2}
    assert not set(before) & set(published(target))
    assert verify(Ledger(ledger_beside(target)))["reasons"] == ["yearly rotation"]
    # Even for a target of its own: the ledger knows the records, not only what is published here.
    other = tmp_path / "other"
    with pytest.raises(ConfigError, match="drawn 3 times"):
        protect(champion, lake, other, key=with_key(2))
    assert not (other / "current").exists()
    # Back to the first key: the same draw as then, which is no new one.
    _, manifest = protect(champion, lake, target)
    assert published(target) == before
    assert manifest is not None
    assert {receipt.draws for receipt in manifest.partitions.values()} == {2}


def test_records_that_move_between_partitions_are_counted(champion: Path, lake: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    protect(champion, lake, target)
    moved = pq.read_table(_file(lake), partitioning=None)
    (lake / "day=2026-12-01").mkdir()
    pq.write_table(moved, lake / "day=2026-12-01" / "part-0.parquet")
    with pytest.raises(ConfigError, match="2026-12-01, hold records that would be drawn 2 times"):
        protect(champion, lake, target, key=with_key(3), first="2026-12-01", last="2026-12-01")


def test_old_versions_go(champion: Path, lake: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    for number in range(4):
        write_lake(make_table(days=1, start=3000 + 200 * number), lake)
        protect(champion, lake, target)
    assert sorted(path.name for path in (target / "versions").iterdir()) == ["000003", "000004"]
    assert len(released(target)) == 7


def test_nothing_is_published_without_the_gate(champion: Path, lake: Path, tmp_path: Path) -> None:
    target, gate = tmp_path / "out", FailGate()
    with pytest.raises(AuditFailed, match="because"):
        protect(champion, lake, target, hooks=Hooks(gate=gate))
    assert not (target / "current").exists()
    sample = gate.seen[0]
    assert 200 <= len(sample.donors) <= 203
    assert sample.of == 600
    assert set(sample.labels) == {"gender", "topic"}
    _, manifest = protect(champion, lake, target)
    assert manifest is not None
    assert (manifest.audit["records"], manifest.audit["of"]) == (len(sample.donors), 600)


def test_other_arithmetic_cannot_resume(champion: Path, lake: Path, tmp_path: Path) -> None:
    with pytest.raises(AuditFailed):
        protect(champion, lake, tmp_path / "out", hooks=Hooks(gate=FailGate()))
    pinned = state_of(str(tmp_path / "out")) / "staging" / "pinned.json"
    here = read_json(pinned)
    pinned.write_text(json.dumps(here | {"numerics": here["numerics"] | {"processor": "another"}}))
    with pytest.raises(ConfigError, match="computed with another processor"):
        protect(champion, lake, tmp_path / "out")
    pinned.write_text(json.dumps(here))
    assert protect(champion, lake, tmp_path / "out")[1] is not None


def test_a_model_swapped_under_way_is_refused(champion: Path, lake: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.copytree(champion, root)
    description = root / "models" / "calls" / "pass_substitution" / "model.json"

    def swap(_name: str, _title: str, body: Callable[[], Any]) -> Any:
        description.write_text(json.dumps(json.loads(description.read_text()), indent=3))
        return body()

    with pytest.raises(DataError, match="expected the model that the run was planned with"):
        protect(root, lake, tmp_path / "out", hooks=Hooks(gate=PassGate(), call=swap))


def test_a_partition_that_changes_under_way_is_refused(champion: Path, lake: Path, tmp_path: Path) -> None:
    def change(_name: str, _title: str, body: Callable[[], Any]) -> Any:
        _rewrite(_file(lake), topic=pa.array(["t0"] * 200))
        return body()

    with pytest.raises(DataError, match="has changed since the run was planned"):
        protect(champion, lake, tmp_path / "out", hooks=Hooks(gate=PassGate(), call=change))


def test_columns_in_folder_names_are_published_only_when_allowed(champion: Path, tmp_path: Path) -> None:
    """A folder per gender would reveal it, so both are shuffled into one partition per day."""
    lake = write_lake(make_table(start=2000), tmp_path / "lake", by=("gender", "day"))
    protect(champion, lake, tmp_path / "out")
    assert {name: len(table) for name, table in released(tmp_path / "out").items()} == {
        f"day=2026-11-{day}": 200 for day in (11, 12, 13)
    }
    assert not [path for path in (tmp_path / "out").rglob("*") if "gender" in path.name]


def test_donors_who_leave(champion: Path, lake: Path, tmp_path: Path) -> None:
    target, after = tmp_path / "out", Layout(tmp_path / "after")
    protect(champion, lake, target)
    pool = _pool(champion)
    state, manifest = state_of(str(target)), open_target(str(target), state_of(str(target))).current()
    assert manifest is not None
    receipts = Receipts(state / "receipts")
    counts = {name: receipts.donors(receipt) for name, receipt in manifest.partitions.items()}
    # A donor that one day shows and the others do not.
    shown = np.stack([counts[name] > 0 for name in sorted(counts)])
    position = int(np.flatnonzero(shown.sum(axis=0) == 1)[0])
    where = sorted(counts)[int(np.flatnonzero(shown[:, position])[0])]
    section = load_config(write_params(tmp_path)).dataset["calls"]
    gone = withdraw(Layout(champion), after, "calls", section, [pool.column("record_id")[position].as_py()], by="record")
    assert gone.donors == (position,)
    assert receipts.showing(manifest, digest(champion / "pools" / "calls"), gone.donors) == [where]
    left = _vectors(pool, "payload")[position].tobytes()
    assert left in {row.tobytes() for row in _vectors(released(target)[where], "vector")}
    plan = plan_of(make_options(after.root, lake, target, redraw="a donor left"))
    assert [p.name for p in plan.work] == [where]
    protect(after.root, lake, target, redraw="a donor left")
    for table in released(target).values():
        assert left not in {row.tobytes() for row in _vectors(table, "vector")}
    assert protect(after.root, lake, target)[1] is None
    with pytest.raises(DataError, match="1 of 1 that are not in the pool") as error:
        withdraw(Layout(champion), after, "calls", section, ["nobody-we-know"], by="record")
    assert "nobody-we-know" not in str(error.value)


def test_a_foreign_folder_and_a_state_inside_the_target_are_refused(champion: Path, lake: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="found other files"):
        plan_of(make_options(champion, lake, tmp_path / "out"))
    with pytest.raises(ConfigError, match="outside the target"):
        plan_of(make_options(champion, lake, tmp_path / "new", state=tmp_path / "new" / "state"))


def test_too_little_space_is_reported_first(champion: Path, lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1))
    with pytest.raises(StorageError, match="free space"):
        protect(champion, lake, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [LOCK]  # nothing but the lock


def test_labelled_and_unlabelled_gates(champion: Path, lake: Path, tmp_path: Path) -> None:
    """The audit itself where classes are known; the champion's where not, as long as new records are like its own."""
    key = with_key(4)
    manifest = execute(make_options(champion, lake, tmp_path / "a", key=key)).manifest
    assert manifest is not None
    found = manifest.audit["details"]["attributes"]["gender"]
    assert manifest.audit["basis"] == "labelled"
    assert found["low"] <= found["nag"] <= found["high"]
    bare = write_lake(make_table(start=5000).drop_columns(["gender", "topic"]), tmp_path / "bare")
    manifest = execute(make_options(champion, bare, tmp_path / "b", key=key)).manifest
    assert manifest is not None
    assert manifest.audit["basis"] == "unlabelled"
    assert {"labelled_audit", "valid_days", "feature_drift_at_most", "usage_drift_at_most"} <= set(
        manifest.audit["details"]["checks"]
    )
    moved = make_table(start=9000).drop_columns(["gender", "topic"])
    vectors = (2.0 * np.array(moved.column("vector").to_pylist()) + 1).astype(np.float32)
    moved = moved.set_column(
        moved.column_names.index("vector"), "vector", pa.array(list(vectors), moved.schema.field("vector").type)
    )
    drifted = write_lake(moved, tmp_path / "moved")
    with pytest.raises(AuditFailed, match="more than chance"):
        execute(make_options(champion, drifted, tmp_path / "d", key=key))
    assert not (tmp_path / "d" / "current").exists()
    strict: dict[str, object] = {"audit": PARAMS["audit"] | {"thresholds": {}}}
    with pytest.raises(AuditFailed, match="expected a passed audit before publishing"):
        execute(make_options(champion, lake, tmp_path / "c", key=key, params=strict))
    assert not (tmp_path / "c" / "current").exists()


def test_nothing_is_published_by_quick_audits(champion: Path, lake: Path, tmp_path: Path) -> None:
    """Neither by a quick gate, nor with a model whose own audit was quick; a full audit of the model repairs it."""
    quick = PARAMS["audit"] | {"effort": "quick"}
    with pytest.raises(ConfigError, match=r"audit\.effort: expected full before anything is published, found quick; set it"):
        execute(make_options(champion, lake, tmp_path / "a", key=with_key(4), params={"audit": quick}))
    root = Path(shutil.copytree(champion, tmp_path / "root"))
    for effort in ("quick", "full"):
        config = load_config(write_params(tmp_path, audit=PARAMS["audit"] | {"effort": effort}))
        run_step(STEPS["audit"], KEY, config, Layout(root), "test")
        if effort == "quick":
            with pytest.raises(DataError, match=r"audit\.json: expected full .* found an audit with audit\.effort quick; audit"):
                execute(make_options(root, lake, tmp_path / "a", key=with_key(4)))
            with pytest.raises(DataError, match=r"expected a full audit, found a quick one; audit the model again"):
                read_labelled_audit(Layout(root), KEY)
            assert not (tmp_path / "a").exists()
    assert execute(make_options(root, lake, tmp_path / "a", key=with_key(4))).manifest is not None
