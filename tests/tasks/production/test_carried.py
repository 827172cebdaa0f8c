"""Classes that records carry select their donors in production as in the audited release; a lake without them is rejected."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pass_core.channel.substitution import channel_of_records, exclusion_among
from pass_core.devices import resolve_device
from pass_core.errors import SchemaMismatch
from tasks.production.interfaces import Job
from tasks.production.run import Hooks, execute
from tasks.release.draw import KeyedRelease, donor_units
from tasks.release.protector import read_protector
from tasks.running.step_io import RunKey
from tests.tasks.production.lakes import KEY, PassGate, make_options, make_table, train_champion, write_lake

METHOD = "transport_substitution"
TRAINED: dict[str, Any] = {
    "methods": [METHOD],
    "method": {METHOD: {"epsilon": 0.2, "carried": ["topic"]}},
    "train": {"epochs": 3, "batch_size": 64},
}


@pytest.fixture(scope="module")
def carrying(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_champion(tmp_path_factory.mktemp("carrying"), key=RunKey(KEY.dataset, METHOD), **TRAINED)


def _donors(job: Job, table: pa.Table, *, carried: bool) -> list[int]:
    """The donors that the formula draws for these records; as they are without their topics, unless `carried`."""
    topics = ("t0", "t1", "t2")
    attributes = job.lake.attributes({"gender": ("f", "m"), "topic": topics})
    protector, ids = read_protector(job.model, job.pool, attributes, resolve_device("cpu")), table.column("call").to_pylist()
    channel = protector.fitted.channel
    assert channel is not None
    features = np.array(table.column("vector").to_pylist(), dtype=np.float32)
    topic = np.array([topics.index(name) if carried else -1 for name in table.column("topic").to_pylist()])
    exclusion = exclusion_among(ids, donor_units(protector.pool, job.forbid))
    keyed = KeyedRelease(run=job.run, model=job.pins.model, forbid=job.forbid, key=job.key)
    return keyed.donors(channel_of_records(channel, {"topic": topic}, exclusion), features, ids).tolist()


def test_carried_classes_select_donors_with_and_without_other_labels(carrying: Path, tmp_path: Path) -> None:
    table = make_table(days=1, start=2000).append_column("number", pa.array(range(200)))
    rolled = np.roll(np.array(table.column("topic").to_pylist()), 1)  # mostly not the topic that the vector says
    table = table.set_column(table.column_names.index("topic"), "topic", pa.array(rolled))
    place = {row.tobytes(): k for k, row in enumerate(np.array(table.column("vector").to_pylist(), dtype=np.float32))}
    for name, columns in (("labelled", table), ("unlabelled", table.drop_columns(["gender"]))):
        gate, lake = PassGate(), write_lake(columns, tmp_path / name)
        options = make_options(carrying, lake, tmp_path / f"out {name}", params=TRAINED, method=METHOD)
        assert execute(options, Hooks(gate=gate)).manifest is not None
        (sample,), (job,) = gate.seen, gate.jobs
        assert bool(sample.labels) == (name == "labelled")
        rows = [place[row.tobytes()] for row in sample.features]
        drawn = dict(zip(rows, sample.donors.tolist(), strict=True))
        expected, guessed = (_donors(job, table, carried=carried) for carried in (True, False))
        assert [drawn[row] for row in range(200)] == expected
        assert expected != guessed
        assert np.array_equal(sample.carried["topic"], [("t0", "t1", "t2").index(str(rolled[row])) for row in rows])


@pytest.mark.parametrize("dropped", [[], ["gender"]])
def test_the_gate_audits_the_channel_with_carried_classes(carrying: Path, tmp_path: Path, dropped: list[str]) -> None:
    lake = write_lake(make_table(start=2000).drop_columns(dropped), tmp_path / "lake")
    manifest = execute(make_options(carrying, lake, tmp_path / "out", params=TRAINED, method=METHOD)).manifest
    assert manifest is not None
    assert manifest.audit["basis"] == ("unlabelled" if dropped else "labelled")


def test_a_lake_without_the_carried_column_is_rejected(carrying: Path, tmp_path: Path) -> None:
    lake = write_lake(make_table(start=2000).drop_columns(["gender", "topic"]), tmp_path / "lake")
    with pytest.raises(SchemaMismatch, match="missing columns: topic; found"):
        execute(make_options(carrying, lake, tmp_path / "out", params=TRAINED, method=METHOD), Hooks(gate=PassGate()))
