"""Attackers who know another attribute of the record, and subgroups in which protection may be worse than on average."""

from collections.abc import Mapping

import numpy as np

from pass_core.attacks.base import AttackTask
from pass_core.attacks.logistic_regression import ATTACK, LogisticRegressionConfig
from pass_core.auditing.exact_attacker import Audited, information, known_pairs
from pass_core.auditing.findings import Information, SideInformation, Subgroup
from pass_core.auditing.subject import ReleasedColumn, Subject
from pass_core.auditing.trained_attacks import Attacked
from pass_core.data import Attribute, DoubleArray, IntArray
from pass_core.statistics.intervals import Blocks, Estimate
from pass_core.statistics.nag import Scoring, hits_of, majority_class

MOST_SUBGROUPS = 20  # classes of an attribute that subgroups are made of; identities make none


def find_conditional(audited: Audited, attacked: Attacked) -> tuple[tuple[Subgroup, ...], tuple[SideInformation, ...]]:
    """How the classes of every other attribute change the figures of this one."""
    subject, attribute, rng_for = audited.subject, attacked.attribute, audited.rng_for
    pairs = {known.name for private, known in known_pairs(subject) if private.name == attribute.name}
    subgroups: list[Subgroup] = []
    side: list[SideInformation] = []
    for known in subject.known():
        if known.name in (attribute.name, *subject.combines.get(attribute.name, ())):
            continue
        exact_hits, whole, each = None, None, dict[int, Information]()
        if known.name in pairs:  # the attacker learns a rule for every known class: the exact one, or a linear one without a pool
            if audited.passed is not None:
                exact_hits = audited.passed.known_hits[attribute.name, known.name]
                whole, each = information(audited, attribute, rng_for("null", attribute.name, known.name), known)
            hits = exact_hits
            if hits is None:
                hits = _linear_hits(subject, attribute, known, rng_for("knowing", attribute.name, known.name))
            side.append(_side_information(subject, attacked, known, hits, whole))
        if known.n_classes <= MOST_SUBGROUPS:
            subgroups += _subgroups(audited, attacked, known, exact_hits, each)
    return tuple(subgroups), tuple(side)


def _linear_hits(subject: Subject, attribute: Attribute, known: Attribute, rng: np.random.Generator) -> DoubleArray:
    """Hits of one logistic regression per known class."""
    train, test = subject.released_train(0), subject.released_test
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
        adversary = ATTACK.learn(task, LogisticRegressionConfig(), rng, lambda _: None)
        hits[rows] = hits_of(adversary.probabilities(test[rows]), test_labels[rows])
    return hits


def _guess_knowing(subject: Subject, attribute: Attribute, known: Attribute) -> IntArray:
    """(known classes,) the commonest class of the attribute among training records of every known class."""
    labels, side = subject.labels("train", attribute.name), subject.labels("train", known.name)
    overall = majority_class(labels)
    every = range(known.n_classes)
    return np.array([majority_class(labels[side == k]) if (side == k).any() else overall for k in every])


def _side_information(
    subject: Subject, attacked: Attacked, known: Attribute, hits: DoubleArray, whole: Information | None
) -> SideInformation:
    """With a column published beside the record, the worse of what its value reveals alone and what both reveal together."""
    attribute, scoring = attacked.attribute, attacked.scoring
    column = next((one for one in subject.columns if one.attribute.name == known.name), None)
    if column is None:
        guesses = _guess_knowing(subject, attribute, known)[subject.labels("test", known.name)]
        alone = (guesses == scoring.labels).astype(np.float64)
        nag = _gain(scoring, hits, alone)
    else:
        alone = _lookup_hits(column, subject.labels("train", attribute.name), scoring)
        hits = alone if alone.mean() > hits.mean() else hits
        nag = scoring.nag(hits)
    guess, accuracy, released = float(alone.mean()), scoring.accuracy(hits), column is not None
    return SideInformation(known=known.name, released=released, guess=guess, accuracy=accuracy, nag=nag, information=whole)


def _lookup_hits(column: ReleasedColumn, labels: IntArray, scoring: Scoring) -> DoubleArray:
    """Hits of guessing the commonest class among training records of the same value; for a new value, the commonest of all."""
    n_values = int(max(column.train_values.max(), column.test_values.max())) + 1
    counts = np.zeros((n_values, int(labels.max()) + 1), dtype=np.int64)
    np.add.at(counts, (column.train_values, labels), 1)
    guesses = np.where(counts.any(axis=1), counts.argmax(axis=1), scoring.guess)
    return np.asarray((guesses[column.test_values] == scoring.labels).astype(np.float64))


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
    audited: Audited, attacked: Attacked, known: Attribute, exact_hits: DoubleArray | None, each: Mapping[int, Information]
) -> list[Subgroup]:
    subject, private = audited.subject, attacked.attribute.role == "private"
    guesses, side = _guess_knowing(subject, attacked.attribute, known), subject.labels("test", known.name)
    found = []
    for label in range(known.n_classes):
        rows = np.flatnonzero(side == label)
        if len(rows) < audited.depth.subgroup_records:
            continue
        labels = attacked.scoring.labels[rows]
        blocks = Blocks.of(subject.dependent()[rows], labels)
        scoring = Scoring(labels, blocks, int(guesses[label]), attacked.scoring.control[rows])
        defined = float(scoring.control.mean()) > scoring.majority
        # An attack may succeed only in here; utility is that of one model, whichever subgroup it is used on.
        counts = attacked.hits[attacked.strongest(rows if private else None)]
        found.append(
            Subgroup(
                attribute=known.name,
                label=label,
                records=len(rows),
                nag=scoring.nag(counts[rows]) if defined else None,
                exact_nag=scoring.nag(exact_hits[rows]) if defined and exact_hits is not None else None,
                information=each.get(label),
                trained_on_released=scoring.nag(attacked.downstream[rows]) if defined and not private else None,
            )
        )
    return found
