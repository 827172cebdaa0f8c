"""What a search learns from and judges by: training records only, some of whose people and recordings are held out."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pass_core.auditing.subject import ColumnValues, Part
from pass_core.channel.pool import Column
from pass_core.data import Attribute, IntArray, combinations, shown_classes, with_role
from pass_core.errors import DataError
from pass_core.randomness import stream
from pass_core.training.held_out import hold_out
from tasks.audits.release import column_values
from tasks.sections.dataset import DatasetConfig
from tasks.storage.parquet import PERSON, SPLIT, TableInfo, class_indices, read_features, read_folder

HELD_OUT = 0.2  # of the people; then of the recordings of the others
MOST_RECORDS = 20_000  # of the training set: more make a point slower and hardly change which setting is best
FEWEST_PEOPLE = 3  # of a private class, from which one can be held out


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """The training records of a data set, split for a search. Everything here comes from the training set."""

    attributes: tuple[Attribute, ...]
    part: Part
    ids: tuple[str, ...]
    names: tuple[str, ...]  # of the persons, by their number in `part`
    columns: dict[str, Column]  # every attribute that donors are chosen by
    learnt: IntArray  # rows that protectors and attackers learn from
    enrolled: IntArray  # held out from people who are among them; empty where everybody has one recording
    strangers: IntArray  # records of held-out people
    passed: dict[str, ColumnValues]  # published beside the payload, of all rows: ranks are under `train`
    by_person: bool  # whether the data set's own test part holds new people only
    digest: str  # of all this

    def judged(self) -> tuple[str, ...]:
        """The parts that decide, the first one for the verdict: that like the data set's own test part."""
        parts = ("strangers", "enrolled") if self.by_person else ("enrolled", "strangers")
        return tuple(name for name in parts if len(getattr(self, name)))


def read_study(features: Path, dataset: DatasetConfig, seed: int) -> Study:
    """The study of the training records in a folder of features.

    Of test records only person and recording are used, to hold out in the same way: other people, recordings or records.
    """
    info = TableInfo.load(features)
    attributes = dataset.attributes(info.classes)
    table = read_features(features, attributes)
    train, test = table.rows("train"), table.rows("test")
    persons_of = np.array(table.persons)
    by_person = not np.isin(persons_of[test], persons_of[train]).any()
    by_record = bool(np.isin(table.blocks[test], table.blocks[train]).any())
    if len(train) > MOST_RECORDS:
        train = np.sort(stream(seed, "tune", "records").permutation(train)[:MOST_RECORDS])
    names, persons = np.unique(persons_of[train], return_inverse=True)
    part = Part(table.subset(train), persons.astype(np.int64), table.blocks[train])
    learnt, enrolled, strangers = split_people(part, attributes, seed, by_record=by_record)
    raw = read_folder(features, [SPLIT, PERSON, *info.classes, *info.pass_through]).take(train)
    passed = column_values(raw.select(list(info.pass_through)), np.arange(len(train)), np.arange(0))
    people = [table.persons[row] for row in train]
    columns = {}
    for name, classes in info.classes.items():
        labels = class_indices(raw, name, classes)
        columns[name] = Column(classes, labels, shown_classes(classes, labels, people))
    ids = tuple(table.record_ids[row] for row in train)
    numbers: list[np.ndarray] = [part.records.features, part.persons, part.blocks, learnt, enrolled, strangers]
    numbers += [*(column.labels for column in columns.values()), *(values.train for values in passed.values())]
    return Study(
        attributes=attributes,
        part=part,
        ids=ids,
        names=tuple(names.tolist()),
        columns=columns,
        learnt=learnt,
        enrolled=enrolled,
        strangers=strangers,
        passed=passed,
        by_person=by_person,
        digest=_digest(numbers, [*ids, *map(str, attributes), str(by_person)]),
    )


def split_people(
    part: Part, attributes: tuple[Attribute, ...], seed: int, *, by_record: bool
) -> tuple[IntArray, IntArray, IntArray]:
    """Rows to learn from, held-out recordings (or records) of the same people, and records of held-out people."""
    private = [part.records.labels[a.name] for a in with_role(attributes, "private")]
    kinds = [labels for labels in private if len(np.unique(labels)) < len(np.unique(part.persons))]
    kind = combinations(kinds) if kinds else np.zeros(len(part), dtype=np.int64)
    held: list[int] = []
    for label in np.unique(kind):
        people = np.setdiff1d(np.unique(part.persons[kind == label]), held)
        if len(people) >= FEWEST_PEOPLE:
            number = max(1, round(HELD_OUT * len(people)))
            held += stream(seed, "tune", "people", str(label)).permutation(people)[:number].tolist()
    stranger = np.isin(part.persons, held)
    rest = np.flatnonzero(~stranger)
    units = rest if by_record else part.blocks[rest]
    if len(np.unique(units)) < 2:
        raise DataError("tune: expected training records of at least two people or recordings, found one; add records")
    tested = rest[hold_out(units, HELD_OUT, stream(seed, "tune", "recordings"))]
    learnt = np.setdiff1d(rest, tested)
    met = np.isin(part.persons[tested], part.persons[learnt])
    strangers = np.sort(np.concatenate([np.flatnonzero(stranger), tested[~met]]))
    return learnt.astype(np.int64), tested[met].astype(np.int64), strangers.astype(np.int64)


def _digest(numbers: Iterable[np.ndarray], words: Iterable[str]) -> str:
    whole = hashlib.sha256()
    for values in numbers:
        whole.update(f"{values.dtype}{values.shape}".encode() + np.ascontiguousarray(values).tobytes())
    for word in words:
        whole.update(f"{word}\0".encode())
    return whole.hexdigest()
