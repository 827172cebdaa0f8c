"""What is audited: originals, what was released for them, and the means to ask for more releases."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from pass_core.attacks.base import Adversary
from pass_core.channel.joint_law import ChannelLaw
from pass_core.channel.substitution import Channel
from pass_core.data import Attribute, FloatArray, IntArray, Records, Role, combinations, with_role

Split = Literal["train", "test"]


@dataclass(frozen=True, slots=True)
class Part:
    """Records of a split, with what depends on what. Persons have the same numbers in both splits."""

    records: Records
    persons: IntArray  # (n,)
    blocks: IntArray  # (n,) records with one number depend on each other

    def __len__(self) -> int:
        return len(self.records)


@dataclass(frozen=True, slots=True)
class Substitution:
    """What is known of a release that was drawn from a pool of donors."""

    channel: Callable[[Split, IntArray], Channel]  # P(x'|x) for these rows of a split, as it was used for the release
    donor_features: FloatArray  # (pool, *shape)
    donor_persons: IntArray  # (pool,) numbers as of the records; a person who is in neither split has another number
    donor_rows: IntArray  # (pool,) the training record that a donor is, or -1
    train_law: ChannelLaw  # with the draws that attackers learn from
    drawn: IntArray  # (m,) donors released for the test records,
    drawn_train: IntArray  # (n,) and for the training records


@dataclass(frozen=True, slots=True)
class ReleasedColumn:
    """A column that left beside the payload, so that every attacker knows it."""

    attribute: Attribute  # its values in few classes; the records hold the labels under its name
    train_values: IntArray  # (n,) a number for every value itself, the same in both splits
    test_values: IntArray  # (m,)


@dataclass(frozen=True, slots=True)
class Subject:
    """Everything an audit needs to know."""

    attributes: tuple[Attribute, ...]
    train: Part
    test: Part
    released_test: FloatArray  # (m, *shape), row i released for test record i
    released_train: Callable[[int], FloatArray]  # draw number -> (n, *shape)
    substitution: Substitution | None  # None for methods without a pool, and for other people's releases
    learnt_from: IntArray | None = None  # rows of train that the protector learnt from; None: unknown
    own_adversaries: Mapping[str, Adversary] = field(default_factory=dict)  # attribute -> whom the protector was trained against
    combines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # attribute -> those whose combination it is
    columns: tuple[ReleasedColumn, ...] = ()  # that left beside the payload
    repeated_test: tuple[FloatArray, ...] = ()  # further releases of the test records, where they were released several times

    def labels(self, split: Split, name: str) -> IntArray:
        """Classes of an attribute."""
        return (self.train if split == "train" else self.test).records.labels[name]

    def known(self) -> tuple[Attribute, ...]:
        """What an attacker may know of a record beside its payload: other attributes, and the columns that left with it."""
        return (*(a for a in self.attributes if a.name not in self.combines), *(one.attribute for one in self.columns))

    def dependent(self) -> IntArray:
        """(m,) test records with one number depend on each other: those of one recording; of a stranger, all of the person's.

        Whoever was met in training is given; a stranger is drawn, and is read well or badly in all records alike.
        """
        met = np.isin(self.test.persons, self.train.persons)
        return np.where(met, self.test.blocks, self.test.blocks.max(initial=0) + 1 + self.test.persons)

    def single(self, role: Role) -> tuple[Attribute, ...]:
        """The attributes of a role that are no combinations."""
        return tuple(a for a in with_role(self.attributes, role) if a.name not in self.combines)


def with_combination(
    attributes: tuple[Attribute, ...], train: Records, test: Records
) -> tuple[tuple[Attribute, ...], Records, Records, dict[str, tuple[str, ...]]]:
    """The same with the combination of the private attributes as one more: each can be hidden alone and both together leak.

    A combination that one of them determines already is left out.
    """
    private = with_role(attributes, "private")
    names = tuple(a.name for a in private)
    parts = [np.concatenate([train.labels[name], test.labels[name]]) for name in names]
    combined = combinations(parts) if len(parts) > 1 else np.empty(0, dtype=np.int64)
    n_classes = int(combined.max(initial=-1)) + 1
    if n_classes <= max((len(np.unique(part)) for part in parts), default=0):
        return attributes, train, test, {}
    name = " × ".join(names)
    joint = Attribute(name, tuple(str(k + 1) for k in range(n_classes)), "private")
    return (
        (*attributes, joint),
        Records(train.features, {**train.labels, name: combined[: len(train)]}),
        Records(test.features, {**test.labels, name: combined[len(train) :]}),
        {name: names},
    )
