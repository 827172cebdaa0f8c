"""What an audit examines: original records, what was released for them, and a way to release them again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from pass_core.attacks.base import Adversary
from pass_core.auditing.findings import Population
from pass_core.auditing.recipient import Recipient
from pass_core.channel.joint_law import ChannelLaw, channel_law
from pass_core.channel.substitution import Channel
from pass_core.data import Attribute, DoubleArray, FloatArray, IntArray, Records, Role, combinations, with_role
from pass_core.errors import ConfigError
from pass_core.statistics.score_test import Dealing, baseline_shares

Split = Literal["train", "test"]
KEPT: tuple[Role, ...] = ("useful", "general")  # roles of attributes that a release is declared to keep
MOST_CLASSES = 20  # of a released column
MOST_COMBINATIONS = 256  # of a released column's classes with those of a private attribute


@dataclass(frozen=True, slots=True)
class Part:
    """Records of a split with their dependencies. A person has the same number in both splits."""

    records: Records
    persons: IntArray  # (n,)
    blocks: IntArray  # (n,) records of one block depend on each other

    def __len__(self) -> int:
        return len(self.records)

    def subset(self, rows: IntArray) -> "Part":
        """The records at these positions."""
        return Part(self.records.subset(rows), self.persons[rows], self.blocks[rows])

    def with_labels(self, name: str, labels: IntArray) -> "Part":
        """The same records with one more attribute."""
        return replace(self, records=Records(self.records.features, {**self.records.labels, name: labels}))


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnRelease:
    """A release whose records were drawn from a pool of donors."""

    channel: Callable[[Split, IntArray], Channel]  # P(x'|x) for these rows of a split, as it was used for the release
    donor_features: FloatArray  # (pool, *shape)
    drawn_test: IntArray  # (m,) donors released for the test records
    drawn_train: IntArray | None = None  # (n,) and for the training records; None: only test records were released
    donor_persons: IntArray | None = None  # (pool,) numbers as in the parts; None: donors are in neither split
    donor_rows: IntArray | None = None  # (pool,) a donor's row in train, or -1; None: donors are not in train
    fresh_draws: int  # releases of the training records that attackers learn from
    rng: np.random.Generator  # for the fresh draws


@dataclass(frozen=True, slots=True)
class MadeRelease:
    """A release of which only the records are known: made without a pool, or by others."""

    test: tuple[FloatArray, ...]  # each (m, *shape): the release, then further releases of the same records
    train: Callable[[int], FloatArray]  # draw number -> (n, *shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Substitution:
    """A drawn release with its donors identified and its exact law."""

    channel: Callable[[Split, IntArray], Channel]  # P(x'|x) for these rows of a split, as it was used for the release
    donor_features: FloatArray  # (pool, *shape)
    donor_persons: IntArray  # (pool,) numbers as in the parts; a person who is in neither split has another number
    donor_rows: IntArray  # (pool,) a donor's row in train, or -1
    train_law: ChannelLaw  # with the draws that attackers learn from
    drawn: IntArray  # (m,) donors released for the test records,
    drawn_train: IntArray  # (n,) and for the training records


@dataclass(frozen=True, slots=True)
class ColumnValues:
    """A column released beside the payload, each distinct value replaced by its rank."""

    train: IntArray  # (n,)
    test: IntArray  # (m,) ranks as in train
    ordered: bool  # whether the order of the values has a meaning


@dataclass(frozen=True, slots=True)
class ReleasedColumn:
    """A column released beside the payload: every attacker knows it."""

    attribute: Attribute  # its values in few classes; the records hold the labels under its name
    train_values: IntArray  # (n,) a number for every value itself, the same in both splits
    test_values: IntArray  # (m,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """What a recipient gets beside the meaning of payloads, as numbers per record: order, keys, form of text, low bits, files."""

    names: tuple[str, ...]  # of the f numbers: "group: what", such as "row order: position"
    train: DoubleArray  # (n, f)
    test: DoubleArray  # (m, f)
    payloads: tuple[FloatArray, FloatArray]  # as really released for the records of train and of test
    axes: tuple[str, ...] = ()  # names of orders in which test records lie between training records
    everyone: tuple[Part, Part] | None = None  # train and test with the records that the release leaves out; None: it has all
    left_out: tuple[IntArray, IntArray] | None = None  # of everyone: 1 where it is left out
    extra_rows: int = 0  # released rows that replace no record


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Everything an audit needs; `make_subject` builds it."""

    attributes: tuple[Attribute, ...]
    train: Part
    test: Part
    released_test: FloatArray  # (m, *shape), row i released for test record i
    released_train: Callable[[int], FloatArray]  # draw number -> (n, *shape)
    substitution: Substitution | None = None  # None for methods without a pool, and for other people's releases
    learnt_from: IntArray | None = None  # rows of train that the protector learnt from; None: unknown
    own_adversaries: Mapping[str, Adversary] = field(default_factory=dict)  # attribute -> the adversary it was trained against
    combines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # combined attribute -> the attributes it combines
    columns: tuple[ReleasedColumn, ...] = ()  # released beside the payload
    jointly: Attribute | None = None  # the combination of all that the recipient knows, where it is several
    recipient: Recipient = field(default_factory=Recipient)
    repeated_test: tuple[FloatArray, ...] = ()  # further releases of the test records, where they were released several times
    received: Received | None = None  # None: only payloads are known

    def labels(self, split: Split, name: str) -> IntArray:
        """Classes of an attribute."""
        return (self.train if split == "train" else self.test).records.labels[name]

    def known(self) -> tuple[Attribute, ...]:
        """What an attacker may know of a record beside its payload: other attributes, published columns, and all jointly."""
        single = (*(a for a in self.attributes if a.name not in self.combines), *(one.attribute for one in self.columns))
        return single if self.jointly is None else (*single, self.jointly)

    def published(self, known: Attribute) -> bool:
        """Whether it is a column released beside the payload: what it reveals alone counts as revealed."""
        return any(one.attribute.name == known.name for one in self.columns)

    def names(self, known: Attribute) -> bool:
        """Whether the recipient is declared to know it; published columns are known to everybody."""
        declared = self.recipient.knows or ()
        return self.published(known) or known.name in declared or (known == self.jointly and bool(declared))

    def assumes(self, known: Attribute) -> bool:
        """Whether the audit judges an attacker who knows it: where no knowledge is declared, all is assumed."""
        return self.recipient.knows is None or self.names(known)

    @property
    def population(self) -> Population:
        """Whom the test records are of: enrolled people, of whom attackers hold labelled records, or only people new to them."""
        return "enrolled people" if np.isin(self.test.persons, self.train.persons).any() else "new people"

    def dependent(self) -> IntArray:
        """(m,) test records with one number depend on each other: records of one block; all records of a stranger.

        A person seen in training is fixed. A stranger is a random draw: attacks succeed or fail on all of their records alike.
        """
        met = np.isin(self.test.persons, self.train.persons)
        return np.where(met, self.test.blocks, self.test.blocks.max(initial=0) + 1 + self.test.persons)

    def given(self, attribute: Attribute | None = None, roles: Sequence[Role] = ("useful",)) -> tuple[IntArray, IntArray]:
        """(n,) and (m,) the combination of the useful classes, which a release is meant to keep, without the attribute's own."""
        names, n = [a.name for role in roles for a in self.single(role) if a != attribute], len(self.train)
        alike = np.zeros(n + len(self.test), dtype=np.int64)  # without names all records are
        both = combinations([alike, *(np.concatenate([self.labels("train", a), self.labels("test", a)]) for a in names)])
        return both[:n], both[n:]

    def baseline(self, attribute: Attribute) -> DoubleArray:
        """(m, classes) what the useful classes of the test records reveal about the attribute: shares learnt on train."""
        train, test = self.given(attribute)
        return baseline_shares(self.labels("train", attribute.name), attribute.n_classes, train, test)

    def dealing(self, attribute: Attribute, rows: IntArray | None = None) -> Dealing:
        """How the classes of the test records, or of some, are permuted when the release reveals nothing about them."""
        chosen = np.arange(len(self.test)) if rows is None else rows
        return Dealing.of(self.labels("test", attribute.name)[chosen], self.dependent()[chosen], self.given(attribute)[1][chosen])

    def single(self, role: Role) -> tuple[Attribute, ...]:
        """The attributes of a role that are not combinations."""
        return tuple(a for a in with_role(self.attributes, role) if a.name not in self.combines)


def make_subject(
    *,
    attributes: tuple[Attribute, ...],
    train: Part,
    test: Part,
    release: DrawnRelease | MadeRelease,
    columns: Mapping[str, ColumnValues] | None = None,
    learnt_from: IntArray | None = None,
    own_adversaries: Mapping[str, Adversary] | None = None,
    combine_private: bool = True,
    recipient: Recipient | None = None,
    received: Received | None = None,
) -> Subject:
    """The subject of an audit, from arrays: attackers learn from `train` and are scored on `test`.

    Args:
        columns: released beside the payload; a column named like an attribute is renamed to `released …`.
        recipient: the attacker who is judged.
        received: what a recipient gets beside the meaning of payloads.
        combine_private: whether the combination of the private attributes is attacked as one more.
    """
    combination = _combination(attributes, train, test) if combine_private else []
    private = tuple(a.name for a in with_role(attributes, "private"))
    attributes = (*attributes, *(joint for joint, _ in combination))
    released = tuple(_released_column(name, values, attributes) for name, values in (columns or {}).items())
    recipient, n = recipient or Recipient(), len(train)
    _check_knows(recipient, attributes)
    for attribute, classes in (*combination, *((column.attribute, classes) for column, classes in released)):
        train, test = train.with_labels(attribute.name, classes[:n]), test.with_labels(attribute.name, classes[n:])
    known = [a for a in attributes if a.role != "private" and (recipient.knows is None or a.name in recipient.knows)]
    jointly = _jointly([*known, *(column.attribute for column, _ in released)], attributes, train, test)
    if jointly is not None:
        attribute, classes = jointly
        train, test = train.with_labels(attribute.name, classes[:n]), test.with_labels(attribute.name, classes[n:])
    substitution = None
    if isinstance(release, DrawnRelease):
        substitution, release = _substitution(release, attributes, train, test)
    return Subject(
        attributes=attributes,
        train=train,
        test=test,
        released_test=release.test[0],
        released_train=release.train,
        substitution=substitution,
        learnt_from=learnt_from,
        own_adversaries=own_adversaries or {},
        combines={joint.name: private for joint, _ in combination},
        columns=tuple(column for column, _ in released),
        jointly=None if jointly is None else jointly[0],
        recipient=recipient,
        repeated_test=release.test[1:],
        received=received,
    )


def _substitution(
    release: DrawnRelease, attributes: tuple[Attribute, ...], train: Part, test: Part
) -> tuple[Substitution, MadeRelease]:
    donors, records, draws = release.donor_features, train.records, release.fresh_draws
    channel = release.channel("train", np.arange(len(train)))
    law = channel_law(channel, records.features, records.labels, attributes, rng=release.rng, n_draws=draws)
    strangers = np.arange(len(donors)) + 1 + max(int(part.persons.max(initial=-1)) for part in (train, test))
    substitution = Substitution(
        channel=release.channel,
        donor_features=donors,
        donor_persons=strangers if release.donor_persons is None else release.donor_persons,
        donor_rows=np.full(len(donors), -1) if release.donor_rows is None else release.donor_rows,
        train_law=law,
        drawn=release.drawn_test,
        drawn_train=law.draws[0] if release.drawn_train is None else release.drawn_train,
    )
    return substitution, MadeRelease((donors[release.drawn_test],), lambda draw: donors[law.draws[draw % draws]])


def _released_column(name: str, values: ColumnValues, attributes: tuple[Attribute, ...]) -> tuple[ReleasedColumn, IntArray]:
    """The column, and the classes of its values for the records of train and then of test."""
    largest = max((a.n_classes for a in with_role(attributes, "private")), default=1)
    classes = few_classes(values, at_most=int(np.clip(MOST_COMBINATIONS // largest, 2, MOST_CLASSES)))
    shown = tuple(str(k + 1) for k in range(int(classes.max(initial=0)) + 1))
    taken = any(a.name == name for a in attributes)
    return ReleasedColumn(Attribute(f"released {name}" if taken else name, shown, "general"), values.train, values.test), classes


def few_classes(values: ColumnValues, at_most: int) -> IntArray:
    """Values of train and then of test in at most so many classes: themselves where they are few; else ranges of equally many
    training records where they are ordered; else the most common ones and the rest."""
    every = np.concatenate([values.train, values.test])
    n_values = int(every.max(initial=-1)) + 1
    if n_values <= at_most:
        return every
    if values.ordered:
        inner = np.quantile(values.train, np.linspace(0, 1, at_most + 1)[1:-1])
        class_of_value = np.searchsorted(inner, np.arange(n_values), side="right")
    else:
        commonest = np.argsort(-np.bincount(values.train, minlength=n_values), kind="stable")[: at_most - 1]
        class_of_value = np.full(n_values, at_most - 1)
        class_of_value[commonest] = np.arange(at_most - 1)
    return np.asarray(class_of_value[every].astype(np.int64))


def _check_knows(recipient: Recipient, attributes: tuple[Attribute, ...]) -> None:
    names = [a.name for a in attributes]
    if unknown := [name for name in recipient.knows or () if name not in names]:
        expected = f"expected attributes of the data set ({', '.join(names)}), found {', '.join(unknown)}"
        raise ConfigError(f"attacker.knows: {expected}; name attributes that are declared private, useful or general")


def _jointly(
    known: Sequence[Attribute], attributes: tuple[Attribute, ...], train: Part, test: Part
) -> tuple[Attribute, IntArray] | None:
    """The combination of all known attributes, with its classes; None where it is none or has too many classes."""
    if len(known) < 2:
        return None
    parts = [np.concatenate([train.records.labels[a.name], test.records.labels[a.name]]) for a in known]
    classes = combinations(parts)
    n_classes, largest = int(classes.max()) + 1, max((a.n_classes for a in with_role(attributes, "private")), default=2)
    if n_classes * largest > MOST_COMBINATIONS:
        return None
    return Attribute(" and ".join(a.name for a in known), tuple(str(k + 1) for k in range(n_classes)), "general"), classes


def _combination(attributes: tuple[Attribute, ...], train: Part, test: Part) -> list[tuple[Attribute, IntArray]]:
    """The combination of the private attributes: each can be hidden alone while both together leak.

    Empty where one of them already determines it; else with its classes for the records of train and then of test.
    """
    names = [a.name for a in with_role(attributes, "private")]
    parts = [np.concatenate([train.records.labels[name], test.records.labels[name]]) for name in names]
    combined = combinations(parts) if len(parts) > 1 else np.empty(0, dtype=np.int64)
    n_classes = int(combined.max(initial=-1)) + 1
    if n_classes <= max((len(np.unique(part)) for part in parts), default=0):
        return []
    return [(Attribute(" × ".join(names), tuple(str(k + 1) for k in range(n_classes)), "private"), combined)]
