"""Intervals against simulation: those of 95 % cover the truth in 93 % of 2,000 repetitions, and only if they know the blocks."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from scipy import special

from pass_core.data import DoubleArray, IntArray
from pass_core.randomness import stream
from pass_core.statistics.intervals import Blocks, Estimate, wilson
from pass_core.statistics.nag import Scoring, mean_nag_estimate

REPETITIONS = 2000
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
    return Scoring(labels, Blocks.of(blocks, labels), 0, control)


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
    """AUC and the mean of ln P(class) of every class, from so many records that their own error does not matter."""
    labels = np.arange(300_000) % n_classes
    rng = stream(0, "truth", str(n_classes))
    told = special.log_softmax(_scores(labels, rng.normal(size=len(labels)), rng, n_classes), axis=1)
    right = told[np.arange(len(labels)), labels]
    area = Scoring(labels, Blocks.of(np.arange(len(labels)), labels), 0, np.ones(len(labels))).auc(np.exp(told)).value
    return area, np.array([right[labels == k].mean() for k in range(n_classes)])


def _score_figures(design: Design, truth: tuple[float, DoubleArray], rng: np.random.Generator, aware: bool):
    labels = design.labels(rng)
    probabilities = special.softmax(_scores(labels, design.luck(rng), rng, design.n_classes), axis=1)
    scoring = _scoring(design, labels, np.ones(len(labels)), aware)
    prior = np.full(design.n_classes, 1 / design.n_classes)
    return {
        "AUC": (scoring.auc(probabilities), truth[0]),
        "log-loss gain": (
            scoring.log_loss_gain(probabilities, prior),
            float(_mix(design) @ truth[1]) + np.log(design.n_classes),
        ),
    }


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
    assert set(coverage) == {"accuracy", "NAG", "NAG near 1", "NAG at 0", "balanced accuracy", "mNAG", "AUC", "log-loss gain"}
    assert {name: share for name, share in coverage.items() if share < COVERED} == {}


@pytest.mark.parametrize("design", DESIGNS[1:], ids=lambda design: design.name)
def test_intervals_that_ignore_blocks_do_not(design: Design) -> None:
    coverage = _coverage(design, aware=False, repetitions=300)
    # Clipped at 0, NAG errs to one side only, and covers more than it should.
    assert max(share for name, share in coverage.items() if name != "NAG at 0") < 0.91


def test_a_proportion_of_independent_records_is_wilsons() -> None:
    hits = (np.arange(200) < 30).astype(np.float64)
    labels = np.zeros(200, dtype=np.int64)
    found = Scoring(labels, Blocks.of(np.arange(200), labels), 0, np.ones(200)).accuracy(hits)
    assert found.value == 0.15
    # Student's quantile of 199 degrees and a variance with 199 in its denominator are little wider.
    assert (found.low, found.high) == pytest.approx(wilson(0.15, 200), rel=0.02)


def test_no_spread_seen_is_not_certainty() -> None:
    labels, blocks = np.arange(40) % 2, np.arange(40) // 4
    always_right = Scoring(labels, Blocks.of(blocks, labels), 0, np.ones(40)).accuracy(np.ones(40))
    assert always_right.high == 1
    assert always_right.low == pytest.approx(wilson(1.0, 10)[0], abs=0.1)  # ten blocks, not forty records
    assert always_right.low < wilson(1.0, 40)[0] - 0.1


@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: design.name)
def test_p_values_of_nothing_are_even(design: Design) -> None:
    """Gains whose mean is 0: p below 5 % in about 5 % of the cases."""
    rng = stream(3, "p", design.name)
    found = []
    for _ in range(1000):
        labels, gains = design.labels(rng), design.luck(rng)
        blocks = Blocks.of(design.indices, labels)
        found.append(blocks.p_value(float(gains.mean()), blocks.spread(blocks.centred(gains, labels))))
    assert np.mean(np.array(found) < 0.05) < 0.07
    assert np.mean(np.array(found) < 0.5) == pytest.approx(0.5, abs=0.06)
