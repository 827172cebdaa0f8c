"""What a search sees: training records only, some of them held out."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pass_core.auditing.subject import Part
from pass_core.data import Attribute, Records
from pass_core.errors import DataError
from pass_core.randomness import stream
from tasks.config import Config
from tasks.tuning.study import Study, read_study, split_people
from tests.conftest import run_all

DATASET = "synthetic_motion"


@pytest.fixture(scope="module")
def features(tiny_config: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny project's features."""
    root = tmp_path_factory.mktemp("features")
    run_all(tiny_config, root, "identity", upto="extract")
    return root / "features" / DATASET


def with_garbage_for_tests(features: Path, folder: Path) -> Path:
    """The same features, with random numbers and classes in all test records."""
    copy = folder / DATASET
    shutil.copytree(features, copy)
    rng, changed = stream(1, "garbage"), 0
    for path in sorted(copy.rglob("*.parquet")):
        table = pq.read_table(path)
        test = np.array(table.column("split").to_pylist()) == "test"
        changed += int(test.sum())
        columns: dict[str, pa.Array] = {}
        for name in ("gender", "id", "activity"):
            values = np.array(table.column(name).to_pylist(), dtype=object)
            columns[name] = pa.array(np.where(test, rng.permutation(values), values).tolist(), table.schema.field(name).type)
        vectors = np.stack(table.column("features").to_pylist()).astype(np.float32)
        vectors[test] = rng.normal(size=vectors[test].shape) * 1000
        columns["features"] = pa.array(list(vectors), table.schema.field("features").type)
        for name, column in columns.items():
            table = table.set_column(table.column_names.index(name), table.schema.field(name), column)
        pq.write_table(table, path)
    assert changed > 100
    return copy


def people(study: Study, rows: np.ndarray) -> set[int]:
    return set(study.part.persons[rows].tolist())


def test_a_study_holds_out_records_and_people(features: Path, tiny_config: Config) -> None:
    study = read_study(features, tiny_config.dataset[DATASET], seed=3)
    parts = [study.learnt, study.enrolled, study.strangers]
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(study.part)))
    assert people(study, study.enrolled) <= people(study, study.learnt)
    assert not people(study, study.strangers) & people(study, study.learnt)
    assert not study.by_person
    assert study.judged()[0] == "enrolled"


def test_test_records_change_nothing(features: Path, tiny_config: Config, tmp_path: Path) -> None:
    garbled = with_garbage_for_tests(features, tmp_path)
    section = tiny_config.dataset[DATASET]
    one, other = (read_study(folder, section, seed=3) for folder in (features, garbled))
    assert one.digest == other.digest
    np.testing.assert_array_equal(one.part.records.features, other.part.records.features)
    assert one.ids == other.ids
    for name in one.columns:
        np.testing.assert_array_equal(one.columns[name].labels, other.columns[name].labels)


def test_another_seed_and_other_training_records_are_another_study(features: Path, tiny_config: Config) -> None:
    section = tiny_config.dataset[DATASET]
    assert read_study(features, section, seed=3).digest != read_study(features, section, seed=4).digest


def made(n_people: int, blocks_each: int, private: Mapping[str, int]) -> tuple[Part, tuple[Attribute, ...]]:
    """People with recordings of four records; private attributes have so many classes, dealt to people in turn."""
    blocks = np.repeat(np.arange(n_people * blocks_each), 4)
    persons = blocks // blocks_each
    labels = {name: persons % classes for name, classes in private.items()}
    attributes = tuple(Attribute(name, tuple(map(str, range(n))), "private") for name, n in private.items())
    return Part(Records(np.zeros((len(blocks), 2), dtype=np.float32), labels), persons, blocks), attributes


def test_people_of_every_private_class_are_held_out() -> None:
    part, attributes = made(20, 5, {"gender": 2, "id": 20})
    learnt, enrolled, strangers = split_people(part, attributes, 0, by_record=False)
    held = np.unique(part.persons[strangers])
    assert sorted(held % 2) == [0, 0, 1, 1]
    assert not set(part.blocks[enrolled]) & set(part.blocks[learnt])
    learnt, enrolled, _ = split_people(part, attributes, 0, by_record=True)
    assert set(part.blocks[enrolled]) & set(part.blocks[learnt]), "the test part shares recordings, so the held-out part does"


def test_people_with_one_recording_are_held_out_whole() -> None:
    part, attributes = made(40, 1, {"gender": 2})
    learnt, enrolled, strangers = split_people(part, attributes, 0, by_record=False)
    assert len(enrolled) == 0
    assert len(strangers) > 40
    assert not set(part.persons[learnt]) & set(part.persons[strangers])


def test_one_recording_cannot_be_split() -> None:
    part, attributes = made(1, 1, {"gender": 1})
    with pytest.raises(DataError, match="at least two people or recordings, found one"):
        split_people(part, attributes, 0, by_record=False)
