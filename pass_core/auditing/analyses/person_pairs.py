"""Whether the combination of a person's releases reveals what no single release does.

A secret can be split between two releases, such as the sum of one bit in each: every single release is then random, and no attack
on single records finds it. Here the attacker learns from pairs of releases of one person, and adds up what the pairs reveal.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import special

from pass_core.auditing.analyses._pairs import learn_pairs, pairs_within, standard_components
from pass_core.auditing.analyses.base import Analysis
from pass_core.auditing.exact_attacker import Audited
from pass_core.auditing.findings import Evidence
from pass_core.auditing.section import Block, Table
from pass_core.auditing.subject import Part
from pass_core.data import Attribute, DoubleArray, FloatArray, IntArray, Rng, combinations, with_role
from pass_core.statistics.intervals import Blocks, Estimate
from pass_core.statistics.nag import FLOOR, class_shares, guessed_hits, hits_of, label_entropy
from pass_core.statistics.score_test import Dealing, hedged, score_test

TITLE = "Pairs of one person’s releases"
COMPONENTS = 32
PAIRS = 12_000  # at most, that are learnt from, and as many that are tried
MOST_CLASSES = 10  # trees are grown for every class
FEWEST_PERSONS = 6  # with fewer, permuted classes are too few to show anything
WEIGHTS = (0.1, 0.3, 1.0)  # of what pairs add up to: pairs share records, so that the right weight is below 1 and unknown
ORDERS = ("neighbouring", "random")  # which two releases are a pair: the next record of the person, or any other


@dataclass(frozen=True, slots=True, kw_only=True)
class PairAttack:
    """A private attribute, from pairs of releases: main attack, control on originals, baseline."""

    attribute: str
    order: str  # how releases are paired
    pairs: int
    persons: int
    bundles: int  # of a person's releases, whose pairs are added up
    accuracy: Estimate  # of guessing the class of a bundle
    originals_accuracy: float  # the control: the same attack on originals
    guess: float
    evidence: Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonPairs:
    """What pairs of a person's releases reveal."""

    records_per_person: int  # at most, in a bundle: as many as the recipient can recognise
    attacks: tuple[PairAttack, ...]


@dataclass(frozen=True, slots=True)
class _Bundles:
    """Records of one person and one class, in bundles, and pairs of them."""

    left: IntArray
    right: IntArray
    of_pair: IntArray  # (pairs,) the bundle, from 0
    persons: IntArray  # (bundles,)
    labels: IntArray  # (bundles,)

    @classmethod
    def of(cls, part: Part, labels: IntArray, size: int, order: str, rng: Rng) -> "_Bundles | None":
        """Consecutive records of a person and class are a bundle; None where nobody has two."""
        groups = combinations([part.persons, labels])
        inside = np.argsort(groups, kind="stable")
        counts = np.bincount(groups)
        place = np.empty(len(groups), dtype=np.int64)
        place[inside] = np.arange(len(groups)) - np.repeat(np.cumsum(counts) - counts, counts)
        bundles = combinations([groups, place // size])
        left, right = pairs_within(bundles, PAIRS, rng if order == "random" else None)
        if not len(left):
            return None
        _, first, of_pair = np.unique(bundles[left], return_index=True, return_inverse=True)
        return cls(left, right, of_pair, part.persons[left[first]], labels[left[first]])

    def features(self, components: FloatArray) -> FloatArray:
        """(pairs, features): the same whichever of the two comes first."""
        one, other = components[self.left], components[self.right]
        return np.concatenate([one + other, np.abs(one - other), one * other], axis=1)


def find_person_pairs(audited: Audited) -> PersonPairs | None:
    """Every private attribute with few classes; None where the recipient holds single records, or nobody has two of a class."""
    subject, size = audited.subject, audited.subject.recipient.records_per_person
    if size < 2 or len(np.unique(subject.test.persons)) in (*range(FEWEST_PERSONS), len(subject.test)):
        return None
    found = []
    for attribute in with_role(subject.attributes, "private"):
        if attribute.n_classes > MOST_CLASSES:
            continue
        for order in ORDERS:
            one = _attack(audited, attribute, size, order)
            if one is not None:
                found.append(one)
    return PersonPairs(records_per_person=size, attacks=tuple(found)) if found else None


def _attack(audited: Audited, attribute: Attribute, size: int, order: str) -> PairAttack | None:
    subject, rng = audited.subject, audited.rng_for("person pairs", attribute.name, order)
    train, test = (
        _Bundles.of(part, part.records.labels[attribute.name], size, order, rng) for part in (subject.train, subject.test)
    )
    if train is None or test is None or len(np.unique(test.persons)) < FEWEST_PERSONS:
        return None
    if min(len(np.unique(train.labels)), len(np.unique(test.labels))) < 2:
        return None
    prior = class_shares(train.labels, attribute.n_classes)
    useful = subject.given(attribute)[1]
    releases = (subject.released_train(0), subject.released_test)
    originals = (subject.train.records.features, subject.test.records.features)
    guessed, unprotected = (
        _guesses(train, test, records, useful=useful, prior=prior, rng=rng) for records in (releases, originals)
    )
    blocks, hits = Blocks.of(test.persons, test.labels), hits_of(guessed, test.labels)
    test_of = score_test(
        hedged(guessed, prior), test.labels, Dealing.of(test.labels, test.persons, np.zeros_like(test.labels)), rng
    )
    return PairAttack(
        attribute=attribute.name,
        order=order,
        pairs=len(test.left),
        persons=len(np.unique(test.persons)),
        bundles=len(test.labels),
        accuracy=blocks.proportion(float(hits.mean()), blocks.spread(blocks.centred(hits, test.labels))),
        originals_accuracy=float(hits_of(unprotected, test.labels).mean()),
        guess=float(guessed_hits(test.labels).mean()),
        evidence=Evidence(
            attribute=attribute.name,
            about=f"{attribute.name} by an attacker who combines {order} pairs of a person’s releases",
            population=subject.population,
            test=test_of,
            entropy=label_entropy(test.labels),
        ),
    )


def _guesses(
    train: _Bundles, test: _Bundles, records: tuple[FloatArray, FloatArray], *, useful: IntArray, prior: DoubleArray, rng: Rng
) -> DoubleArray:
    """(bundles, classes) probabilities: what pairs reveal, added up over the bundle.

    A release is meant to keep the useful classes, and many records reveal through them what they have in common with the private
    class. This is not counted: of every pair's score, the mean over all pairs with the same useful classes is taken off.
    """
    components = standard_components(records[0], COMPONENTS, rng)
    learnt = learn_pairs(train.features(components(records[0])), train.labels[train.of_pair], len(prior), rng)
    revealed = np.log(np.maximum(learnt(test.features(components(records[1]))), FLOOR))
    both = np.sort([useful[test.left], useful[test.right]], axis=0)
    kinds = combinations(list(both))
    counts, number = np.bincount(kinds), len(test.labels)
    together = np.zeros((number, len(prior)))
    for label, column in enumerate(revealed.T):
        usual = np.bincount(kinds, weights=column) / counts
        together[:, label] = np.bincount(test.of_pair, weights=column - usual[kinds], minlength=number)
    log_prior = np.log(np.maximum(prior, FLOOR))
    return np.asarray(np.mean([special.softmax(log_prior + weight * together, axis=1) for weight in WEIGHTS], axis=0))


def _evidence(found: PersonPairs) -> Iterator[Evidence]:
    for one in found.attacks:
        yield one.evidence


def _section(found: PersonPairs | None) -> Iterator[Block]:
    if found is None:
        yield (
            "Not analysed: no pairs to learn from. This needs a recipient who can recognise several records as one person’s, "
            f"persons with several records of one private class (at least {FEWEST_PERSONS} persons among the test records), and "
            f"a private attribute with at most {MOST_CLASSES} classes."
        )
        return
    yield (
        "A secret can be split between two releases, so that each of them alone reveals nothing. Here an attacker learns from "
        f"pairs of one person’s releases, and adds up all pairs of at most {found.records_per_person} records. The verdict "
        "compares its scores with permuted classes of persons."
    )
    rows = [
        (f"{one.attribute}, {one.order} pairs", str(one.persons), one.accuracy, f"{one.guess:.1%}",
         f"{one.originals_accuracy:.1%}", f"{one.evidence.test.p_value:.2g}")
        for one in found.attacks
    ]  # fmt: skip
    columns = ("Attribute", "Persons", "Right, from releases", "Guessing", "Right, from originals", "Probability by chance")
    yield Table(TITLE, "How often the private class of a bundle of one person’s records is guessed.", columns, rows)


ANALYSIS = Analysis(
    key="person_pairs",
    rank=18,
    title=TITLE,
    finding=PersonPairs,
    quick=False,
    find=find_person_pairs,
    evidence=_evidence,
    section=_section,
)
