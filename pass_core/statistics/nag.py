"""Accuracy, its normalised form NAG (PASS, ICML 2025, eq. 13 and 14), and figures that see what accuracy hides.

Each comes with its influences: what every record adds to it, from which its interval is computed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from pass_core.data import DoubleArray, IntArray, one_hot
from pass_core.errors import AuditError
from pass_core.statistics.intervals import Blocks, Estimate

# A probability below this counts as this: one certain and wrong guess does not outweigh all others.
FLOOR = 1e-6


def majority_class(labels: IntArray) -> int:
    """The most frequent class."""
    return int(np.bincount(labels).argmax())


def nag(protected: float, guess: float, unprotected: float) -> float:
    """Normalised accuracy gain (eq. 13) max(0, (Acc − Acc_guess) / (Acc_unprotected − Acc_guess))."""
    if unprotected <= guess:
        found = f"accuracy on unprotected data ({unprotected:.3f}) is not above guessing ({guess:.3f})"
        raise AuditError(f"{found}: NAG is undefined; train the attack longer (audit.attacks) or drop the attribute")
    return max(0.0, (protected - guess) / (unprotected - guess))


def mean_nag(private: Sequence[float], useful_and_general: Sequence[float]) -> float:
    """mNAG (eq. 14): mean NAG of useful and general attributes minus mean NAG of private ones."""
    if not private or not useful_and_general:
        raise AuditError("mNAG needs at least one private and one useful or general attribute")
    return float(np.mean(useful_and_general) - np.mean(private))


def guessed_hits(labels: IntArray, guesses: IntArray | None = None) -> DoubleArray:
    """1 where a guess without the release is right: the best constant on these very records, or `guesses` (n,) if those are
    right more often. Nobody who learns nothing from a release is right more often than the best constant, whatever the class mix.
    """
    constant = (labels == majority_class(labels)).astype(np.float64)
    given = constant if guesses is None else (labels == guesses).astype(np.float64)
    return np.asarray(given if given.mean() > constant.mean() else constant)


@dataclass(frozen=True, slots=True)
class Scoring:
    """Test records under attack: labels, dependent blocks, where the guess is right, and where the unprotected control is."""

    labels: IntArray
    blocks: Blocks
    guessed: DoubleArray  # (m,) 1 where guessing without the release is right
    control: DoubleArray  # (m,) 1 where the best attack on originals is right

    @property
    def guess(self) -> float:
        """Accuracy of guessing."""
        return float(self.guessed.mean())

    @property
    def readable(self) -> bool:
        """Whether originals reveal anything: NAG is undefined where they do not."""
        return float(self.control.mean()) > self.guess

    def on(self, rows: IntArray, dependent: IntArray, guesses: IntArray | None = None) -> "Scoring":
        """The same for some of the records."""
        labels = self.labels[rows]
        return Scoring(labels, Blocks.of(dependent[rows], labels), guessed_hits(labels, guesses), self.control[rows])

    def accuracy(self, hits: DoubleArray) -> Estimate:
        """Share of hits; a hit may be a probability."""
        return self.blocks.proportion(float(hits.mean()), self.blocks.spread(self.blocks.centred(hits, self.labels)))

    def nag_influence(self, hits: DoubleArray) -> DoubleArray:
        """What every record adds to NAG: the hit, less that of the control. Guessing is a number, since the classes are given."""
        span = float(self.control.mean()) - self.guess
        ratio = (float(hits.mean()) - self.guess) / span
        return self.blocks.centred(hits - ratio * self.control, self.labels) / span

    def nag(self, hits: DoubleArray, among: int = 1) -> Estimate:
        """NAG; its interval is Wilson's of the accuracy, with NAG's own variance, on NAG's scale.

        `among`: how many intervals shall hold together.
        """
        share, unprotected = float(hits.mean()), float(self.control.mean())
        value = nag(share, self.guess, unprotected)
        span = unprotected - self.guess
        if np.array_equal(hits, self.control):
            return Estimate(value, value, value)  # the very same hits: 1 whatever the records
        ends = self.blocks.proportion(share, self.blocks.spread(self.nag_influence(hits)).scaled(span), among)
        return Estimate(value, max(0.0, (ends.low - self.guess) / span), max(0.0, (ends.high - self.guess) / span))

    def balanced_accuracy(self, hits: DoubleArray) -> Estimate:
        """Mean over the classes present of the share of hits in that class."""
        counts = np.bincount(self.labels)
        present = counts > 0
        rates = np.bincount(self.labels, weights=hits)[present] / counts[present]
        weights = 1 / np.maximum(counts, 1)[self.labels] / present.sum()
        means = np.zeros(len(counts))
        means[present] = rates
        return self.blocks.proportion(float(rates.mean()), self.blocks.spread((hits - means[self.labels]) * weights, weights))

    def auc(self, probabilities: DoubleArray, among: int = 1) -> Estimate:
        """Area under the ROC curve, of each class present against the rest, averaged; 0.5 is chance, whatever the class mix."""
        classes = np.flatnonzero(np.bincount(self.labels))
        areas, influences, weights = [], [], []
        for label in classes if len(classes) > 2 else classes[-1:]:
            positive = self.labels == label
            area, influence = area_under_curve(probabilities[:, label], positive)
            areas.append(area)
            influences.append(influence * len(positive))
            weights.append(np.where(positive, 1 / positive.sum(), 1 / (~positive).sum()))
        centred = self.blocks.centred(np.mean(influences, axis=0), self.labels)
        return self.blocks.proportion(float(np.mean(areas)), self.blocks.spread(centred, np.mean(weights, axis=0)), among)


def mean_nag_estimate(
    private: Sequence[tuple[Scoring, DoubleArray]], useful_and_general: Sequence[tuple[Scoring, DoubleArray]], blocks: Blocks
) -> Estimate:
    """mNAG of hits on the same records, each with its attribute's scoring; accounts for attributes that vary together."""
    sides = [[scoring.nag(hits).value for scoring, hits in side] for side in (private, useful_and_general)]
    value = mean_nag(*sides)
    influences = [[scoring.nag_influence(hits) for scoring, hits in side] for side in (private, useful_and_general)]
    taken, given = (np.mean(side, axis=0) for side in influences)
    return blocks.spread(given - taken).around(value)


def area_under_curve(scores: DoubleArray, positive: np.ndarray) -> tuple[float, DoubleArray]:
    """AUC with ties counted half, and what every record adds to it (DeLong's placements)."""
    ranks = stats.rankdata(scores)
    above, below = int(positive.sum()), int((~positive).sum())
    placement = np.empty(len(scores))
    placement[positive] = (ranks[positive] - stats.rankdata(scores[positive])) / below  # share of others below
    placement[~positive] = 1 - (ranks[~positive] - stats.rankdata(scores[~positive])) / above  # share of positives above
    area = float(placement[positive].mean())
    spread = np.where(positive, (placement - area) / above, (placement - area) / below)
    return area, spread


def hits_of(probabilities: DoubleArray, labels: IntArray) -> DoubleArray:
    """1 where the likeliest class is the right one."""
    return np.asarray((probabilities.argmax(axis=1) == labels).astype(np.float64))


def class_shares(labels: IntArray, n_classes: int) -> DoubleArray:
    """Share of every class."""
    return np.asarray(one_hot(labels, n_classes).mean(axis=0))


def label_entropy(labels: IntArray) -> float:
    """Entropy of the classes, nats."""
    return float(stats.entropy(np.bincount(labels)))
