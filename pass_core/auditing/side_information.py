"""Attackers who know another attribute of the record, and subgroups in which protection may be worse than on average."""

from collections.abc import Mapping

import numpy as np

from pass_core.attacks import logistic_regression
from pass_core.attacks.base import AttackTask
from pass_core.auditing.exact_attacker import ExactPass, information, known_pairs
from pass_core.auditing.findings import Information, SideInformation, Subgroup
from pass_core.auditing.subject import ReleasedColumn, Subject
from pass_core.auditing.thresholds import Depth
from pass_core.auditing.trained_attacks import Attacked, RngFor
from pass_core.data import Attribute, DoubleArray, IntArray
from pass_core.statistics.intervals import Blocks, Estimate
from pass_core.statistics.nag import Scoring, hits_of, majority_class

MOST_SUBGROUPS = 20  # classes of an attribute that subgroups are made of; identities make none


def find_conditional(
    subject: Subject, passed: ExactPass | None, attacked: Attacked, depth: Depth, rng_for: RngFor
) -> tuple[tuple[Subgroup, ...], tuple[SideInformation, ...]]:
    """What the classes of every other attribute change for this one."""
    attribute = attacked.attribute
    pairs = {known.name for private, known in known_pairs(subject) if private.name == attribute.name}
    columns = {one.attribute.name: one for one in subject.columns}
    subgroups: list[Subgroup] = []
    side: list[SideInformation] = []
    for known in subject.known():
        if known.name in (attribute.name, *subject.combines.get(attribute.name, ())):
            continue
        hits, whole, each = (
            _knowing(subject, passed, attacked, known, depth, rng_for) if known.name in pairs else (None, None, {})
        )
        if hits is not None and known.name in columns:
            side.append(_beside(subject, attacked, columns[known.name], hits, whole))
        elif hits is not None:
            side.append(_side_information(subject, attacked, known, hits, whole))
        if known.n_classes <= MOST_SUBGROUPS:
            subgroups += _subgroups(subject, attacked, known, None if passed is None else hits, each, depth)
    return tuple(subgroups), tuple(side)


def _knowing(
    subject: Subject, passed: ExactPass | None, attacked: Attacked, known: Attribute, depth: Depth, rng_for: RngFor
) -> tuple[DoubleArray, Information | None, Mapping[int, Information]]:
    """Where an attacker is right who learns a rule for every known class: the exact one, or a linear one without a pool."""
    attribute = attacked.attribute
    if passed is not None:
        told, each = information(subject, passed, attribute, depth, rng_for("null", attribute.name, known.name), known)
        return passed.known_hits[attribute.name, known.name], told, each
    rng = rng_for("knowing", attribute.name, known.name)
    released, test = subject.released_train(0), subject.released_test
    return _linear_hits(subject, attribute, known, released, test, rng), None, {}


def _linear_hits(
    subject: Subject, attribute: Attribute, known: Attribute, train: np.ndarray, test: np.ndarray, rng: np.random.Generator
) -> DoubleArray:
    """Hits of one logistic regression per known class."""
    hits: DoubleArray = np.zeros(len(test))
    labels, side = subject.labels("train", attribute.name), subject.labels("train", known.name)
    test_side, test_labels = subject.labels("test", known.name), subject.labels("test", attribute.name)
    for label in np.unique(test_side):
        inside, rows = np.flatnonzero(side == label), np.flatnonzero(test_side == label)
        found = np.unique(labels[inside])
        if len(found) < 2:  # nothing to learn: one class, or none
            hits[rows] = test_labels[rows] == (found[0] if len(found) else majority_class(labels))
            continue
        task = AttackTask(
            released_train=lambda _, inside=inside: train[inside],  # type: ignore[misc]
            train_labels=labels[inside],
            n_classes=attribute.n_classes,
        )
        config = logistic_regression.LogisticRegressionConfig()
        adversary = logistic_regression.ATTACK.learn(task, config, rng, lambda _: None)
        hits[rows] = hits_of(adversary.probabilities(test[rows]), test_labels[rows])
    return hits


def _guess_knowing(subject: Subject, attribute: Attribute, known: Attribute) -> IntArray:
    """(known classes,) the commonest class of the attribute among training records of every known class."""
    labels, side = subject.labels("train", attribute.name), subject.labels("train", known.name)
    overall = majority_class(labels)
    guesses: IntArray = np.array(
        [majority_class(labels[side == k]) if (side == k).any() else overall for k in range(known.n_classes)]
    )
    return guesses


def _side_information(
    subject: Subject, attacked: Attacked, known: Attribute, hits: DoubleArray, told: Information | None
) -> SideInformation:
    labels, side = attacked.scoring.labels, subject.labels("test", known.name)
    guessed = (_guess_knowing(subject, attacked.attribute, known)[side] == labels).astype(np.float64)
    accuracy = attacked.scoring.accuracy(hits)
    return SideInformation(known.name, False, float(guessed.mean()), accuracy, _gain(attacked.scoring, hits, guessed), told)


def _beside(
    subject: Subject, attacked: Attacked, column: ReleasedColumn, hits: DoubleArray, told: Information | None
) -> SideInformation:
    """A column that left with the record: the worse of what its very value tells alone and what both tell together."""
    attribute, scoring = attacked.attribute, attacked.scoring
    alone = _lookup_hits(column, subject.labels("train", attribute.name), scoring)
    worse = alone if alone.mean() > hits.mean() else hits
    name = column.attribute.name
    return SideInformation(name, True, float(alone.mean()), scoring.accuracy(worse), scoring.nag(worse), told)


def _lookup_hits(column: ReleasedColumn, labels: IntArray, scoring: Scoring) -> DoubleArray:
    """Hits of who guesses the commonest class among training records of the same value, of a new value the commonest of all."""
    n_values = int(max(column.train_values.max(), column.test_values.max())) + 1
    counts = np.zeros((n_values, int(labels.max()) + 1), dtype=np.int64)
    np.add.at(counts, (column.train_values, labels), 1)
    guesses = np.where(counts.any(axis=1), counts.argmax(axis=1), scoring.guess)
    hits: DoubleArray = (guesses[column.test_values] == scoring.labels).astype(np.float64)
    return hits


def _gain(scoring: Scoring, hits: DoubleArray, guessed: DoubleArray) -> Estimate | None:
    """NAG above a guess that differs from record to record; None where originals add nothing to it."""
    span = float(scoring.control.mean() - guessed.mean())
    if span <= 0:
        return None
    value = float(hits.mean() - guessed.mean()) / span
    influence = scoring.blocks.centred(hits - guessed - value * (scoring.control - guessed), scoring.labels) / span
    ends = scoring.blocks.spread(influence).around(value)
    return Estimate(max(0.0, value), max(0.0, ends.low), max(0.0, ends.high))


def _subgroups(
    subject: Subject,
    attacked: Attacked,
    known: Attribute,
    exact_hits: DoubleArray | None,
    told: Mapping[int, Information],
    depth: Depth,
) -> list[Subgroup]:
    guesses, side = _guess_knowing(subject, attacked.attribute, known), subject.labels("test", known.name)
    found = []
    for label in range(known.n_classes):
        rows = np.flatnonzero(side == label)
        if len(rows) < depth.subgroup_records:
            continue
        labels = attacked.scoring.labels[rows]
        scoring = Scoring(
            labels, Blocks.of(subject.dependent()[rows], labels), int(guesses[label]), attacked.scoring.control[rows]
        )
        figures = _subgroup_nags(attacked, scoring, rows, exact_hits)
        found.append(Subgroup(known.name, label, len(rows), *figures[:2], told.get(label), figures[2]))
    return found


def _subgroup_nags(
    attacked: Attacked, scoring: Scoring, rows: IntArray, exact_hits: DoubleArray | None
) -> tuple[Estimate | None, Estimate | None, Estimate | None]:
    """NAG of the attack that counts, of the exact attacker who knows the subgroup, and of a downstream model."""
    if float(scoring.control.mean()) <= scoring.majority:
        return None, None, None
    private = attacked.attribute.role == "private"
    # An attack may find only here what it was made for; utility is that of one model, whichever subgroup it meets.
    counts = attacked.strongest(rows if private else None)
    return (
        scoring.nag(attacked.hits[counts][rows]),
        None if exact_hits is None else scoring.nag(exact_hits[rows]),
        None if private else scoring.nag(attacked.downstream[rows]),
    )
