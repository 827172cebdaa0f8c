"""What several released records reveal together when they are known to be one person's.

A leak too small to matter in one record adds up: evidence of independent releases is multiplied.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pass_core.attacks.base import AttackTask
from pass_core.attacks.logistic_regression import ATTACK, LogisticRegressionConfig
from pass_core.auditing.section import Block, Curve, Part, Series
from pass_core.auditing.subject import Subject
from pass_core.channel.draws import inverse_cdf, uniform_words
from pass_core.data import Attribute, DoubleArray, IntArray, with_role
from pass_core.statistics.intervals import Blocks, Estimate
from pass_core.statistics.nag import FLOOR, class_shares

BUNDLES = 2000  # over all persons, and the largest number of persons
BUNDLES_PER_PERSON = 100
RECORDS_PER_PERSON = 1000  # at most, unless a bundle is larger: memory does not grow with the records

Evidence = Callable[[int, IntArray], DoubleArray]  # (bundle, places) -> (records, classes) ln P(release|class), up to a constant


@dataclass(frozen=True, slots=True)
class Bundle:
    """Several released records known to be one person's, together."""

    records: int
    accuracy: Estimate


@dataclass(frozen=True, slots=True)
class Bundles:
    """An attribute of a person, guessed from several of the person's released records."""

    attribute: str
    guess: float  # accuracy of guessing, over persons
    persons: int
    sizes: tuple[Bundle, ...]

    def series(self, name: str, style: str) -> Series:
        """For a figure of accuracy over records."""
        return Series(name, [one.records for one in self.sizes], [one.accuracy for one in self.sizes], self.guess, style=style)


@dataclass(frozen=True, slots=True)
class _Persons:
    """Persons with some of their test records, a person's side by side."""

    rows: IntArray  # (n,) positions among the test records
    starts: IntArray  # (persons + 1,) where a person's begin
    bundles: int  # of every person
    sizes: Sequence[int]  # of bundles, ascending

    @classmethod
    def drawn(cls, persons: IntArray, sizes: Sequence[int], rng: np.random.Generator) -> "_Persons":
        chosen = np.sort(rng.permutation(np.unique(persons))[:BUNDLES])
        at_most = max(RECORDS_PER_PERSON, *sizes)
        rows = [rng.permutation(np.flatnonzero(persons == person))[:at_most] for person in chosen]
        bundles = min(BUNDLES_PER_PERSON, -(-BUNDLES // len(chosen)))
        return cls(np.concatenate(rows), np.cumsum([0, *map(len, rows)]), bundles, sizes)

    @property
    def counts(self) -> IntArray:
        """(persons,) records of each."""
        return np.diff(self.starts)

    def classes(self, labels: IntArray) -> IntArray | None:
        """(persons,) the class of each; None where a person's records have several."""
        inside = labels[self.rows]
        classes: IntArray = inside[self.starts[:-1]]
        return classes if (np.repeat(classes, self.counts) == inside).all() else None


def find_bundles(subject: Subject, sizes: Sequence[int], rng_for: Callable[..., np.random.Generator]) -> tuple[Bundles, ...]:
    """Every private attribute that belongs to persons and is one that training records have."""
    if not sizes:
        return ()
    persons = _Persons.drawn(subject.test.persons, sorted(set(sizes)), rng_for("linkage", "persons"))
    draws = _fresh_draws(subject, persons, rng_for("linkage", "releases"))
    found = []
    for attribute in with_role(subject.attributes, "private"):
        classes = persons.classes(subject.test.records.labels[attribute.name])
        prior = class_shares(subject.train.records.labels[attribute.name], attribute.n_classes)
        if classes is None or (prior > 0).sum() < 2 or (prior[classes] > 0).sum() < 2:
            continue
        evidence = _evidence(subject, persons, attribute, draws, rng_for("linkage", "attack", attribute.name))
        rng = rng_for("linkage", "bundles", attribute.name)
        found.append(_bundles_of(attribute.name, persons, classes, prior, evidence, rng=rng))
    return tuple(found)


def _bundles_of(
    name: str, persons: _Persons, classes: IntArray, prior: DoubleArray, evidence: Evidence, *, rng: np.random.Generator
) -> Bundles:
    """Among the persons whose class the attacker has met: others are beyond any attack that learns."""
    met = np.flatnonzero(prior[classes] > 0)
    counts = persons.counts[met]
    kept = [size for size in persons.sizes if 2 * (counts >= size).sum() >= len(met)]
    log_prior = np.log(prior, out=np.full(len(prior), -np.inf), where=prior > 0)
    rates = np.full((len(kept), len(met)), np.nan)  # stays so where a person has too few records
    for place, person in enumerate(met):
        within = np.array([size for size in kept if size <= counts[place]], dtype=np.int64)
        if not len(within):
            continue
        hits = np.zeros(len(within))
        for bundle in range(persons.bundles):
            # The first records of one order are a random bundle, whatever their number: one order does for all sizes.
            order = persons.starts[person] + rng.permutation(counts[place])[: within[-1]]
            together = np.cumsum(evidence(bundle, order), axis=0)[within - 1] + log_prior
            hits += together.argmax(axis=1) == classes[person]
        rates[: len(within), place] = hits / persons.bundles
    found = []
    for size, values in zip(kept, rates, strict=True):
        enough = ~np.isnan(values)
        blocks = Blocks.of(np.flatnonzero(enough), classes[met][enough])
        spread = blocks.spread(blocks.centred(values[enough], classes[met][enough]))
        found.append(Bundle(size, blocks.proportion(float(values[enough].mean()), spread)))
    guess = float((classes[met] == prior.argmax()).mean())
    return Bundles(name, guess, len(met), tuple(found))


def _fresh_draws(subject: Subject, persons: _Persons, rng: np.random.Generator) -> IntArray | None:
    """(bundles, n): another release of the records for every bundle; None without a pool."""
    if subject.substitution is None:
        return None
    draws: IntArray = np.empty((persons.bundles, len(persons.rows)), dtype=np.int64)
    channel = subject.substitution.channel("test", persons.rows)
    for rows, p in channel.blocks(subject.test.records.features[persons.rows]):
        draws[:, rows] = inverse_cdf(p, uniform_words(rng, persons.bundles * len(p)).reshape(persons.bundles, len(p)))
    return draws


def donor_log_likelihood(joint: DoubleArray, records: int) -> DoubleArray:
    """(pool, classes) ln P(X'=d|A=a) learnt on so many records, as if each class had one average record more.

    A donor that a class never got counts against it, but does not rule it out; one that no class got reveals nothing.
    """
    marginal, shares = joint.sum(axis=0), joint.sum(axis=1, keepdims=True)
    likelihood = (records * joint + marginal) / (records * shares + 1)
    return np.asarray(np.log(likelihood, out=np.zeros_like(likelihood), where=marginal > 0).T.copy())


def _evidence(
    subject: Subject, persons: _Persons, attribute: Attribute, draws: IntArray | None, rng: np.random.Generator
) -> Evidence:
    """From the donors; without a pool from a linear attack on what was really released.

    There P(x'|a) is P(a|x')/P(a), up to what does not depend on a.
    """
    labels = subject.train.records.labels[attribute.name]
    if subject.substitution is not None and draws is not None:
        of_donors = donor_log_likelihood(subject.substitution.train_law.joint[attribute.name], len(labels))
        return lambda bundle, places: of_donors[draws[bundle, places]]
    task = AttackTask(released_train=subject.released_train, train_labels=labels, n_classes=attribute.n_classes)
    adversary = ATTACK.learn(task, LogisticRegressionConfig(), rng, lambda _: None)
    probabilities = adversary.probabilities(subject.released_test[persons.rows])
    prior = class_shares(labels, attribute.n_classes)
    evidences = np.log(np.maximum(probabilities, FLOOR)) - np.log(np.maximum(prior, FLOOR))
    return lambda _, places: evidences[places]


def bundles_part(found: Sequence[Bundles]) -> Block:
    """The words and figures of the report."""
    figures = [
        Curve(
            name=f"bundles_{bundle.attribute}",
            title=f"{bundle.attribute}, {bundle.persons} persons",
            unit="records known to be one person’s",
            series=[bundle.series("", "private")],
            label=f"Accuracy of guessing a person's {bundle.attribute}",
            caption="How often the attacker is right; band: 95 % interval; dashed: guessing.",
        )
        for bundle in found
        if bundle.sizes
    ]
    if not figures:
        why = "no private attribute here belongs to persons with several test records"
        return f"Several records of one person were not analysed: {why}."
    words = (
        "A small leak per record becomes a larger one per person. If some releases are known to be one person’s, an attacker "
        "combines them. Publish records in a way that they cannot be grouped by person."
    )
    return Part("Several records of one person", (words, figures))
