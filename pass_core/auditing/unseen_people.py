"""People whom training never saw, attacked by rules learnt on others and on half of their own records."""

import numpy as np

from pass_core.auditing.exact_attacker import ExactPass, described
from pass_core.auditing.findings import StrangerFindings, Strangers
from pass_core.auditing.subject import Subject, Substitution
from pass_core.auditing.thresholds import Depth
from pass_core.auditing.trained_attacks import Attacked, RngFor
from pass_core.channel.joint_law import accumulate, best_rule, channel_law
from pass_core.data import Attribute, DoubleArray, IntArray, combinations, one_hot
from pass_core.statistics.intervals import Blocks
from pass_core.statistics.nag import Scoring
from pass_core.statistics.null_distribution import choose_units, compare_with_null, donor_sums


def find_strangers(
    subject: Subject, passed: ExactPass | None, attacked: tuple[Attacked, ...], depth: Depth, rng_for: RngFor
) -> Strangers:
    """Private attributes of test persons who are not in the training records; none where everybody is."""
    rows = np.flatnonzero(~np.isin(subject.test.persons, subject.train.persons))
    persons = len(np.unique(subject.test.persons[rows]))
    found = []
    for one in attacked:
        if one.attribute.role != "private":
            continue
        # A class that training never saw, such as the stranger's own name, cannot be guessed.
        met = rows[np.isin(subject.labels("test", one.attribute.name)[rows], subject.labels("train", one.attribute.name))]
        labels = subject.labels("test", one.attribute.name)[met]
        if len(np.unique(labels)) < 2:
            continue
        scoring = Scoring(labels, Blocks.of(subject.test.persons[met], labels), one.scoring.guess, one.scoring.control[met])
        if float(scoring.control.mean()) > scoring.majority:
            found.append(_attribute(subject, passed, one, met, scoring, depth, rng_for))
    return Strangers(persons, tuple(found))


def _attribute(
    subject: Subject, passed: ExactPass | None, one: Attacked, rows: IntArray, scoring: Scoring, depth: Depth, rng_for: RngFor
) -> StrangerFindings:
    name = one.attribute.name
    by_others = one.hits[one.strongest(rows)][rows]
    if passed is None or subject.substitution is None:
        return StrangerFindings(name, scoring.nag(by_others), None, None)
    exactly = passed.hits[name][rows]
    by_others = max(by_others, exactly, key=lambda hits: float(hits.mean()))
    channel = subject.substitution.channel("test", rows)
    features, persons = subject.test.records.features[rows], subject.test.persons[rows]
    useful = [subject.labels("test", a.name)[rows] for a in subject.single("useful")]
    units = choose_units(scoring.labels, useful, persons, subject.test.blocks[rows])
    sums = donor_sums(channel, features, [persons, subject.test.blocks[rows], *useful, scoring.labels])
    comparison, _ = compare_with_null(sums, scoring.labels, units, rng_for("strangers", name), permutations=depth.permutations)
    half = _own_half_hits(subject.substitution, one.attribute, subject, rows, rng_for("halves", name))
    return StrangerFindings(name, scoring.nag(by_others), scoring.nag(half), described(comparison, units))


def _own_half_hits(
    substitution: Substitution, attribute: Attribute, subject: Subject, rows: IntArray, rng: np.random.Generator
) -> DoubleArray:
    """Probability that a rule learnt on half of every stranger's records is right on the other half, both ways round."""
    labels = subject.labels("test", attribute.name)[rows]
    half = _halves(subject.test.persons[rows], subject.test.blocks[rows], rng)
    features = subject.test.records.features[rows]
    channel = substitution.channel("test", rows)
    sums = accumulate(channel, features, half * attribute.n_classes + labels, 2 * attribute.n_classes)
    tables = sums.reshape(2, attribute.n_classes, -1)
    rules = {f"from {k}": one_hot(best_rule(table), attribute.n_classes) for k, table in enumerate(tables)}
    law = channel_law(channel, features, {attribute.name: labels}, (attribute,), rng=rng, n_draws=0, readouts=rules)
    records = np.arange(len(rows))
    hits: DoubleArray = np.where(half == 0, law.readouts["from 1"][records, labels], law.readouts["from 0"][records, labels])
    return hits


def _halves(persons: IntArray, blocks: IntArray, rng: np.random.Generator) -> IntArray:
    """(n,) 0 or 1: half of everybody's recordings; half of the records of persons who have one recording only."""
    recordings = combinations([persons, blocks])
    _, first = np.unique(recordings, return_index=True)
    several = np.isin(persons, np.flatnonzero(np.bincount(persons[first]) > 1))
    _, units = np.unique(np.where(several, recordings, len(first) + np.arange(len(persons))), return_inverse=True)
    _, first = np.unique(units, return_index=True)
    order = np.lexsort((rng.random(len(first)), persons[first]))
    half = np.empty(len(first), dtype=np.int64)
    half[order] = np.arange(len(first)) % 2
    return half[units]
