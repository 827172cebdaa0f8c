"""People not seen in training, attacked by rules learnt on others and on half of their own records."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pass_core.auditing.analyses.base import Analysis
from pass_core.auditing.exact_attacker import Audited
from pass_core.auditing.findings import Comparison, Information
from pass_core.auditing.section import Block, Table
from pass_core.auditing.subject import Subject, Substitution
from pass_core.auditing.trained_attacks import Attacked
from pass_core.channel.joint_law import accumulate, best_rule, channel_law
from pass_core.data import Attribute, DoubleArray, IntArray, combinations, one_hot
from pass_core.statistics.intervals import Estimate
from pass_core.statistics.nag import Scoring
from pass_core.statistics.null_distribution import choose_units, compare_with_null, donor_sums

TITLE = "People not seen in training"


@dataclass(frozen=True, slots=True)
class StrangerFindings:
    """A private attribute of people not seen in training."""

    attribute: str
    by_others: Estimate  # NAG of the worst attack, or of the exact rule if that is worse, learnt on other people
    by_own_half: Estimate | None  # NAG of the rule learnt on half of these very people's records; None without a pool
    information: Information | None


@dataclass(frozen=True, slots=True)
class Strangers:
    """Test persons who are not in the training records; `attributes` is empty when there are none."""

    persons: int
    attributes: tuple[StrangerFindings, ...]


def find_strangers(audited: Audited) -> Strangers:
    """Private attributes of test persons who are not in the training records."""
    subject = audited.subject
    rows = np.flatnonzero(~np.isin(subject.test.persons, subject.train.persons))
    persons = len(np.unique(subject.test.persons[rows]))
    found = []
    for one in audited.attacked:
        if one.attribute.role != "private":
            continue
        # A class that training never saw, such as the stranger's own name, cannot be guessed.
        met = rows[np.isin(subject.labels("test", one.attribute.name)[rows], subject.labels("train", one.attribute.name))]
        labels = subject.labels("test", one.attribute.name)[met]
        if len(np.unique(labels)) < 2:
            continue
        scoring = one.scoring.on(met, subject.test.persons)
        if scoring.readable:
            found.append(_attribute(audited, one, met, scoring))
    return Strangers(persons, tuple(found))


def _attribute(audited: Audited, one: Attacked, rows: IntArray, scoring: Scoring) -> StrangerFindings:
    subject, passed, rng_for, name = audited.subject, audited.passed, audited.rng_for, one.attribute.name
    by_others = one.hits[one.strongest(rows)][rows]
    if passed is None or subject.substitution is None:
        return StrangerFindings(name, scoring.nag(by_others), None, None)
    by_others = max(by_others, passed.hits[name][rows], key=lambda hits: float(hits.mean()))
    channel = subject.substitution.channel("test", rows)
    features, persons = subject.test.records.features[rows], subject.test.persons[rows]
    useful = [subject.labels("test", a.name)[rows] for a in subject.single("useful")]
    units = choose_units(scoring.labels, useful, persons, subject.test.blocks[rows])
    sums = donor_sums(channel, features, [persons, subject.test.blocks[rows], *useful, scoring.labels])
    rng, permutations = rng_for("strangers", name), audited.depth.permutations
    comparison, _ = compare_with_null(sums, scoring.labels, units, rng, permutations=permutations)
    half = _own_half_hits(subject.substitution, one.attribute, subject, rows, rng_for("halves", name))
    return StrangerFindings(name, scoring.nag(by_others), scoring.nag(half), Information.of(comparison, units))


def _own_half_hits(
    substitution: Substitution, attribute: Attribute, subject: Subject, rows: IntArray, rng: np.random.Generator
) -> DoubleArray:
    """Probability that a rule learnt on half of every stranger's records is right on the other half, both ways round."""
    labels = subject.labels("test", attribute.name)[rows]
    half = _halves(subject.test.persons[rows], subject.test.blocks[rows], rng)
    channel, features = substitution.channel("test", rows), subject.test.records.features[rows]
    sums = accumulate(channel, features, half * attribute.n_classes + labels, 2 * attribute.n_classes)
    rules = {f"from {k}": one_hot(best_rule(table), attribute.n_classes) for k, table in enumerate(np.split(sums, 2))}
    law = channel_law(channel, features, {attribute.name: labels}, (attribute,), readouts=rules)
    by_first, by_second = (law.readouts[rule][np.arange(len(rows)), labels] for rule in rules)
    return np.where(half == 0, by_second, by_first)


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


def _comparisons(strangers: Strangers) -> Iterator[Comparison]:
    for one in strangers.attributes:
        if one.information is not None:
            yield Comparison(one.attribute, f"{one.attribute} of unseen people", one.information)


def _section(strangers: Strangers | None) -> Iterator[Block]:
    if strangers is None or not strangers.persons:
        yield (
            "Not analysed: every person of the test records is also in the training records. The figures on this page hold for "
            "such people. Split the data by person to measure what new people can expect."
        )
        return
    if not strangers.attributes:
        yield (
            f"{strangers.persons} test persons are not in the training records, but none of their private attributes can be "
            "guessed from other people."
        )
        return
    yield (
        f"{strangers.persons} test persons are not in the training records. They are attacked by rules learnt on other people, "
        "and by rules learnt on half of these very people’s records."
    )
    rows = [
        (one.attribute, one.by_others, one.by_own_half,
         *((f"{one.information.excess:.5f}", f"{one.information.p_value:.2g}") if one.information else (None, None)))
        for one in strangers.attributes
    ]  # fmt: skip
    caption = "NAG of private attributes of new people: 0 % is blind guessing, 100 % is as good as on unprotected records."
    learnt = ("Attribute", "Learnt on others", "Learnt on half of their own")
    yield Table(TITLE, caption, (*learnt, "Information above chance, nats", "Probability by chance"), rows)


ANALYSIS = Analysis(
    key="strangers", rank=30, title=TITLE, finding=Strangers, find=find_strangers, comparisons=_comparisons, section=_section
)
