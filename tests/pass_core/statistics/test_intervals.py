"""Intervals against simulation: those of 95 % cover the truth in 93 % of 1,000 repetitions, and only if they know the blocks."""

import itertools
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from scipy import special

from pass_core.data import DoubleArray, IntArray
from pass_core.randomness import stream
from pass_core.statistics.intervals import Blocks, Estimate, wilson
from pass_core.statistics.nag import Scoring, mean_nag_estimate
from pass_core.statistics.score_test import Dealing, score_test

REPETITIONS = 1000
COVERED = 0.93


@dataclass(frozen=True)
class Design:
    """Records in blocks, and classes that are of blocks or of records."""

    name: str
    sizes: IntArray  # records of every block
    by_block: bool  # a block is of one class
    n_classes: int = 2

    @property
    def indices(self) -> IntArray:
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def labels(self, rng: np.random.Generator) -> IntArray:
        """Every third block is of class 1, or classes are drawn anew for every record."""
        if self.by_block:
            return np.repeat((np.arange(len(self.sizes)) % 3) % self.n_classes, self.sizes)
        return (rng.random(int(self.sizes.sum())) < 1 / 3).astype(np.int64)

    def luck(self, rng: np.random.Generator, spread: float = 1.0) -> DoubleArray:
        """(n,) standard normal; records of a block share half of its variance."""
        shared, own = rng.normal(size=len(self.sizes))[self.indices], rng.normal(size=int(self.sizes.sum()))
        return spread * (shared + own) / np.sqrt(2)


DESIGNS = (
    Design("independent records", np.ones(300, dtype=np.int64), by_block=True),
    Design("recordings of one class", np.full(60, 8), by_block=True),
    Design("recordings of several classes", np.full(60, 8), by_block=False),
    Design("recordings of very different lengths", np.tile([1, 2, 4, 40], 10), by_block=True),
    Design("twelve recordings", np.full(12, 40), by_block=True),
    Design("three classes", np.full(60, 8), by_block=True, n_classes=3),
)


def _below(luck: DoubleArray, shares: DoubleArray) -> DoubleArray:
    """Hits with these probabilities, together where luck is shared."""
    return (luck < special.ndtri(shares)).astype(np.float64)


def _scoring(design: Design, labels: IntArray, control: DoubleArray, aware: bool) -> Scoring:
    blocks = design.indices if aware else np.arange(len(labels))
    return Scoring(labels, Blocks.of(blocks, labels), (labels == 0).astype(np.float64), control)


HIT_SHARES = np.array([0.8, 0.5, 0.6])  # of an attack, per class
CONTROL_SHARES = np.array([0.97, 0.9, 0.95])


def _mix(design: Design) -> DoubleArray:
    if not design.by_block:
        return np.array([2 / 3, 1 / 3])
    labels = design.labels(NOTHING_TO_DRAW)
    return np.bincount(labels) / len(labels)


def _true_nag(design: Design, hits: DoubleArray) -> float:
    mix = _mix(design)
    n = len(mix)
    return float((mix @ hits[:n] - mix[0]) / (mix @ CONTROL_SHARES[:n] - mix[0]))


def _hit_figures(design: Design, rng: np.random.Generator, aware: bool) -> dict[str, tuple[Estimate, float]]:
    """Accuracy, NAG, balanced accuracy and mNAG with their truths. NAG's control has part of the attack's luck."""
    labels, luck = design.labels(rng), design.luck(rng)
    control = _below(0.6 * luck + 0.8 * design.luck(rng), CONTROL_SHARES[labels])
    scoring = _scoring(design, labels, control, aware)
    hits, better = _below(luck, HIT_SHARES[labels]), _below(design.luck(rng), CONTROL_SHARES[labels] - 0.05)
    mix = _mix(design)
    n = len(mix)
    as_good_as_guessing = np.concatenate([[0.8], np.full(n - 1, 0.2 * mix[0] / (1 - mix[0]))])
    nothing = _below(design.luck(rng), as_good_as_guessing[labels])
    everything = Blocks.of(design.indices if aware else np.arange(len(labels)), np.zeros_like(labels))
    return {
        "accuracy": (scoring.accuracy(hits), float(mix @ HIT_SHARES[:n])),
        "NAG": (scoring.nag(hits), _true_nag(design, HIT_SHARES)),
        "NAG near 1": (scoring.nag(better), _true_nag(design, CONTROL_SHARES - 0.05)),
        "NAG at 0": (scoring.nag(nothing), 0.0),
        "balanced accuracy": (scoring.balanced_accuracy(hits), float(HIT_SHARES[:n].mean())),
        "mNAG": (
            mean_nag_estimate([(scoring, hits)], [(scoring, better), (scoring, better)], everything),
            _true_nag(design, CONTROL_SHARES - 0.05) - _true_nag(design, HIT_SHARES),
        ),
    }


NOTHING_TO_DRAW = stream(0, "mix")
SHIFT = 0.8  # of the score of a record's own class


def _scores(labels: IntArray, luck: DoubleArray, rng: np.random.Generator, n_classes: int) -> DoubleArray:
    """(n, classes) logits: of the own class higher; all of them share some luck."""
    logits = rng.normal(size=(len(labels), n_classes))
    logits[np.arange(len(labels)), labels] += SHIFT + luck
    return logits


@cache
def _true_score_figures(n_classes: int) -> tuple[float, DoubleArray]:
    """AUC and the mean of ln P(class) by true class (row), from so many records that their own error does not matter."""
    labels = np.arange(300_000) % n_classes
    rng = stream(0, "truth", str(n_classes))
    told = special.log_softmax(_scores(labels, rng.normal(size=len(labels)), rng, n_classes), axis=1)
    whole = np.ones(len(labels))
    area = Scoring(labels, Blocks.of(np.arange(len(labels)), labels), whole, whole).auc(np.exp(told)).value
    return area, np.array([told[labels == k].mean(axis=0) for k in range(n_classes)])


def _score_figures(design: Design, truth: tuple[float, DoubleArray], rng: np.random.Generator, aware: bool):
    labels = design.labels(rng)
    probabilities = special.softmax(_scores(labels, design.luck(rng), rng, design.n_classes), axis=1)
    scoring = _scoring(design, labels, np.ones(len(labels)), aware)
    mix, (area, means) = _mix(design), truth
    figures = {"AUC": (scoring.auc(probabilities), area)}
    if design.by_block:  # else classes are permuted within blocks, and chance is another one in each
        dealing = Dealing.of(labels, design.indices if aware else np.arange(len(labels)), np.zeros_like(labels))
        gained = score_test(np.log(probabilities), labels, dealing, rng)
        interval = Estimate(gained.gain, gained.end(0.025), gained.end(0.975))
        figures["gain above chance"] = (interval, float(mix @ np.diag(means) - mix @ means @ mix))
    return figures


def _coverage(design: Design, aware: bool = True, repetitions: int = REPETITIONS) -> dict[str, float]:
    """How often each figure's interval holds the truth."""
    rng = stream(1, "coverage", design.name)
    truth = _true_score_figures(design.n_classes)
    covered: dict[str, int] = {}
    for _ in range(repetitions):
        figures = _hit_figures(design, rng, aware) | _score_figures(design, truth, rng, aware)
        for name, (estimate, true) in figures.items():
            covered[name] = covered.get(name, 0) + (estimate.low <= true <= estimate.high)
    return {name: number / repetitions for name, number in covered.items()}


@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: design.name)
def test_intervals_cover_the_truth(design: Design) -> None:
    coverage = _coverage(design)
    figures = {"accuracy", "NAG", "NAG near 1", "NAG at 0", "balanced accuracy", "mNAG", "AUC"}
    assert set(coverage) == figures | ({"gain above chance"} if design.by_block else set())
    assert {name: share for name, share in coverage.items() if share < COVERED} == {}


@pytest.mark.parametrize("design", DESIGNS[1:], ids=lambda design: design.name)
def test_intervals_that_ignore_blocks_do_not(design: Design) -> None:
    coverage = _coverage(design, aware=False, repetitions=300)
    # Clipped at 0, NAG errs to one side only, and covers more than it should.
    assert max(share for name, share in coverage.items() if name != "NAG at 0") < 0.91


def test_a_proportion_of_independent_records_is_wilsons() -> None:
    hits = (np.arange(200) < 30).astype(np.float64)
    labels = np.zeros(200, dtype=np.int64)
    found = Scoring(labels, Blocks.of(np.arange(200), labels), np.zeros(200), np.ones(200)).accuracy(hits)
    assert found.value == 0.15
    # Student's quantile of 199 degrees and a variance with 199 in its denominator are little wider.
    assert (found.low, found.high) == pytest.approx(wilson(0.15, 200), rel=0.02)


def _share(misses: int, persons: int, each: int) -> Estimate:
    """Accuracy of that many misses, of different persons as long as there are some."""
    hits = np.ones(persons * each)
    hits[np.arange(misses) % persons * each + np.arange(misses) // persons] = 0
    labels, people = np.zeros(len(hits), dtype=np.int64), np.arange(len(hits)) // each
    return Scoring(labels, Blocks.of(people, labels), hits, hits).accuracy(hits)


@pytest.mark.parametrize(("persons", "each"), [(20, 50), (40, 25), (10, 4), (300, 1), (24, 140)])
def test_intervals_are_continuous_at_the_ends(persons: int, each: int) -> None:
    """No miss never gives a wider interval than some misses, and one miss more or less changes little."""
    lows = [_share(misses, persons, each).low for misses in range(min(12, persons))]
    assert all(after <= before + 0.003 for before, after in itertools.pairwise(lows))
    assert lows[0] - lows[1] < 0.05
    mirrored = Estimate(0.0, 0.0, 1 - lows[0])
    labels = np.zeros(persons * each, dtype=np.int64)
    blocks = Blocks.of(np.arange(len(labels)) // each, labels)
    never = blocks.proportion(0.0, blocks.spread(np.zeros(len(labels))))
    assert (never.value, never.low, never.high) == pytest.approx((mirrored.value, mirrored.low, mirrored.high))


@pytest.mark.parametrize("persons", [20, 40])
def test_perfect_release_keeps_its_utility(persons: int) -> None:
    assert _share(0, persons, 20).low > 0.9
    assert _share(0, persons, 1).low < 0.93  # so few records are not certain


@pytest.mark.parametrize("share", [0.0, 0.004, 0.02, 0.98, 1.0])
@pytest.mark.parametrize("correlation", [0.0, 0.1, 0.25])
def test_intervals_cover_shares_near_the_ends(share: float, correlation: float) -> None:
    rng, persons, each = stream(4, "ends", str(share), str(correlation)), 40, 25
    labels = np.zeros(persons * each, dtype=np.int64)
    blocks, covered = Blocks.of(np.arange(len(labels)) // each, labels), 0
    for _ in range(400):
        own = np.full(persons, share)
        if 0 < share < 1 and correlation:
            strength = 1 / correlation - 1
            own = rng.beta(share * strength, (1 - share) * strength, persons)
        hits = (rng.random(len(labels)) < np.repeat(own, each)).astype(np.float64)
        found = blocks.proportion(float(hits.mean()), blocks.spread(blocks.centred(hits, labels)))
        covered += found.low <= share <= found.high
    assert covered / 400 >= 0.93


@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: design.name)
def test_p_values_of_nothing_are_even(design: Design) -> None:
    """Scores that have nothing to do with the classes: p below 5 % in about 5 % of the cases."""
    rng = stream(3, "p", design.name)
    found = []
    for _ in range(400):
        labels = design.labels(rng)
        scores = np.stack([design.luck(rng) for _ in range(design.n_classes)], axis=1)
        dealing = Dealing.of(labels, design.indices, np.zeros_like(labels))
        found.append(score_test(scores, labels, dealing, rng).p_value)
    assert np.mean(np.array(found) < 0.05) < 0.08
    assert np.mean(np.array(found) < 0.5) == pytest.approx(0.5, abs=0.08)
