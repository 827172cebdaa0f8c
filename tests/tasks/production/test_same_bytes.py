"""The same draws whatever the workers, the partitioning, the format and the store; and an order that reveals nothing."""

import dataclasses
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import write_deltalake
from scipy import stats

from pass_core.errors import ConfigError
from tasks.production.interfaces import Job
from tasks.production.run import Hooks, plan_of
from tasks.production.staging import Staging
from tasks.production.worker import Worker
from tests.tasks.production.lakes import (
    DRAW_KEY,
    SECTION,
    PassGate,
    make_options,
    make_table,
    protect,
    published,
    released,
    write_lake,
)


def _staged_samples(job: Job) -> list[dict[str, np.ndarray]]:
    """All records of every partition as a worker stages them for the gate, in released order."""
    worker = Worker(job)
    for partition in worker.source.partitions().values():
        worker.protect(dataclasses.replace(partition, sampled=10**6))
    return [staged.sample() for staged in Staging(job.staging).finished().values()]


def _donors_by_record(job: Job) -> dict[bytes, int]:
    """Record -> donor; a record is known by its vector, which no other record has."""
    samples = _staged_samples(job)
    return {row.tobytes(): int(donor) for one in samples for row, donor in zip(one["features"], one["donors"], strict=True)}


@pytest.fixture
def ready(champion: Path, tmp_path: Path) -> Any:
    """The job of a run over a lake."""

    def make(lake: Path, **more: Any) -> Job:
        gate = PassGate()
        protect(champion, lake, tmp_path / f"out-{lake.name}", hooks=Hooks(gate=gate), **more)
        return gate.jobs[0]

    return make


def test_workers_do_not_change_a_byte(champion: Path, tmp_path: Path) -> None:
    lake = write_lake(make_table(days=6, per_day=300, start=2000), tmp_path / "lake")
    results = []
    for workers in (1, 2, 4):
        protect(champion, lake, tmp_path / str(workers), workers=workers)
        results.append(published(tmp_path / str(workers)))
    assert results[0] == results[1] == results[2]
    assert len(results[0]) == 6


def test_another_partitioning_gives_every_record_the_same_donor(ready: Any, tmp_path: Path) -> None:
    table = make_table(days=3, per_day=700, start=2000)
    by_day = write_lake(table, tmp_path / "by_day")
    shuffled = table.take(pa.array(np.random.default_rng(0).permutation(len(table))))
    by_topic = write_lake(shuffled, tmp_path / "by_topic", by=("topic",))
    one = _donors_by_record(ready(by_day))
    other = _donors_by_record(ready(by_topic))
    assert one == other
    assert len(one) == 2100
    assert len(set(one.values())) > 5


def test_order_of_input_and_output_are_unrelated(ready: Any, tmp_path: Path) -> None:
    """Rank correlation of a record's place and its released row's place; the control is the order before shuffling."""
    table = make_table(days=1, per_day=4000, start=2000)
    (sample,) = _staged_samples(ready(write_lake(table, tmp_path / "lake")))
    vectors = table.column("vector").combine_chunks().flatten().to_numpy().reshape(4000, -1)
    place = {row.tobytes(): number for number, row in enumerate(vectors)}
    order = [place[row.tobytes()] for row in sample["features"]]
    assert len(order) == 4000
    assert abs(stats.spearmanr(order, np.arange(4000)).statistic) < 0.1  # six standard deviations of unrelated ranks
    assert stats.spearmanr(np.arange(4000), np.arange(4000)).statistic > 0.999


def _formats(table: pa.Table, folder: Path, kind: str) -> str:
    if kind == "delta":
        write_deltalake(str(folder), table, partition_by=["day"])
    elif kind == "csv":
        flat = {f"v{k}": table.column("vector").combine_chunks().flatten()[k::12] for k in range(12)}
        wide = table.drop_columns(["vector"])
        for name, column in flat.items():
            wide = wide.append_column(name, column)
        ds.write_dataset(wide, folder, format="csv", partitioning=["day"], partitioning_flavor="hive")
    elif kind == "memory":
        filesystem = fsspec.filesystem("memory")
        ds.write_dataset(
            table, "/same", filesystem=filesystem, format="parquet", partitioning=["day"], partitioning_flavor="hive"
        )
        return "memory://same"
    return str(folder)


@pytest.mark.parametrize("kind", ["delta", "csv", "memory"])
def test_formats_and_stores_release_the_same_donors(champion: Path, tmp_path: Path, kind: str) -> None:
    table = make_table(start=2000)
    protect(champion, write_lake(table, tmp_path / "plain"), tmp_path / "plain-out")
    expected = released(tmp_path / "plain-out")
    section = SECTION | {"format": kind if kind != "memory" else "parquet"}
    section |= {"payload": [f"v{k}" for k in range(12)]} if kind == "csv" else {}
    protect(champion, _formats(table, tmp_path / "lake", kind), tmp_path / "out", params={"dataset": {"calls": section}})
    found = released(tmp_path / "out")
    assert set(found) == set(expected)
    for name, one in found.items():
        assert one.column("topic") == expected[name].column("topic")
        if kind == "csv":
            first = expected[name].column("vector").combine_chunks().flatten()[0::12]
            assert np.allclose(one.column("v0").to_numpy(), first.to_numpy(), rtol=1e-6)
        else:
            numbers = [row.as_py() for row in one.column("vector")]
            assert numbers == [row.as_py() for row in expected[name].column("vector")]


def test_object_store_target(champion: Path, lake: Path, tmp_path: Path) -> None:
    """Versions under names of their own, unchanged partitions where they were, the pointer last, old files gone."""
    place = f"file://{tmp_path}/bucket"
    protect(champion, lake, tmp_path / "plain")
    _, first = protect(champion, lake, place, state=tmp_path / "state")
    assert first is not None
    write_lake(make_table(days=1, start=2600), lake)
    plan, second = protect(champion, lake, place, state=tmp_path / "state")
    assert second is not None
    assert len(plan.work) == 1
    assert len(set(second.places.values())) == 2
    assert protect(champion, lake, place, state=tmp_path / "state")[1] is None
    filesystem, base = fsspec.core.url_to_fs(place)
    expected = published(tmp_path / "plain")
    for name, receipt in first.partitions.items():
        for file in receipt.files:
            assert filesystem.cat(f"{base}/{second.places[name]}/{file.path}") == expected[file.path]


def test_stores_without_conditional_writes_are_refused(champion: Path, lake: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs conditional writes, found memory"):
        plan_of(make_options(champion, lake, "memory://kept", state=tmp_path / "state"))


class _Vectors:
    """A lake's table with another type of payload column."""

    def __init__(self, kind: pa.DataType) -> None:
        self.table = make_table(start=2000)
        values = self.table.column("vector").combine_chunks().flatten()
        rows = values.to_numpy().reshape(len(self.table), -1).tolist()
        self.table = self.table.set_column(self.table.column_names.index("vector"), "vector", pa.array(rows, kind))


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.float64()), pa.large_list(pa.float32())], ids=str)
def test_payloads_come_out_in_the_columns_own_type(champion: Path, tmp_path: Path, kind: pa.DataType) -> None:
    protect(champion, write_lake(_Vectors(kind).table, tmp_path / "lake"), tmp_path / "out")
    for table in released(tmp_path / "out").values():
        assert table.schema.field("vector").type.equals(kind)
        assert all(len(row.as_py()) == 12 for row in table.column("vector"))


def test_no_worker_object_prints_the_key(ready: Any, lake: Path) -> None:
    job: Job = ready(lake)
    assert job.key == DRAW_KEY
    assert DRAW_KEY.hex() not in repr(job)
    assert str(DRAW_KEY) not in repr(job)
