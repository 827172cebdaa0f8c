"""Intervals for audit figures: from what every record adds to a figure, summed over blocks of dependent records.

Records of one recording or person depend on each other, windows of a signal even overlap; a figure's variance is therefore
that of the blocks' sums. All intervals are 95 % and two-sided. Proportions get Wilson's interval with the number of independent
records that would have the same variance; anything else gets Student's.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from pass_core.data import DoubleArray, IntArray

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with the ends of its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Blocks:
    """Which records depend on each other, and which blocks stand for which class."""

    indices: IntArray  # (n,) block of every record, from 0
    strata: IntArray  # (blocks,) class that a block is of; all 0 where blocks hold several classes
    stratified: bool

    @classmethod
    def of(cls, blocks: IntArray, labels: IntArray) -> "Blocks":
        """Blocks, by class where every block is of one class and every class has at least two blocks."""
        _, indices = np.unique(blocks, return_inverse=True)
        strata = np.zeros(int(indices.max()) + 1, dtype=np.int64)
        strata[indices] = labels
        counts = np.bincount(strata)
        if (strata[indices] == labels).all() and counts[counts > 0].min() >= 2:
            return cls(indices, strata, stratified=True)
        return cls(indices, np.zeros_like(strata), stratified=False)

    @property
    def number(self) -> int:
        return len(self.strata)

    @property
    def degrees(self) -> int:
        """Degrees of freedom of a variance over these blocks."""
        return max(1, self.number - len(np.unique(self.strata)))

    def variance(self, influence: DoubleArray) -> float:
        """Variance of a figure to which record i adds `influence[i]`; influences of a stratum sum to zero."""
        sums = np.bincount(self.indices, weights=influence, minlength=self.number)
        total = 0.0
        for stratum in np.unique(self.strata):
            inside = sums[self.strata == stratum]
            if len(inside) > 1:
                total += len(inside) / (len(inside) - 1) * float((inside**2).sum())
        return total

    def centred(self, values: DoubleArray, labels: IntArray) -> DoubleArray:
        """What every record adds to the mean of `values` when the class mix is given.

        An attack is compared with guessing under one class mix: a sample of blocks with another mix is no uncertainty of it.
        Where blocks are not of one class each, a class may have one block only; then the mix counts as drawn, too.
        """
        if not self.stratified:
            means = np.full(int(labels.max()) + 1, values.mean())
        else:
            means = np.bincount(labels, weights=values) / np.maximum(np.bincount(labels), 1)
        centred: DoubleArray = (values - means[labels]) / len(values)
        return centred

    def proportion(self, value: float, variance: float) -> Estimate:
        """Wilson's interval of a proportion with that variance."""
        # No spread seen is not no spread: count blocks, as if each were one record.
        independent = value * (1 - value) / variance if variance > 0 and 0 < value < 1 else float(self.number)
        return Estimate(value, *wilson(value, independent, self._quantile()))

    def mean(self, value: float, variance: float) -> Estimate:
        """Student's interval."""
        reach = self._quantile() * math.sqrt(variance)
        return Estimate(value, value - reach, value + reach)

    def _quantile(self) -> float:
        return float(stats.t.ppf((1 + CONFIDENCE) / 2, self.degrees))


def wilson(share: float, n: float, quantile: float | None = None) -> tuple[float, float]:
    """Ends of Wilson's score interval (1927) of a proportion over n independent records."""
    z = float(stats.norm.ppf((1 + CONFIDENCE) / 2)) if quantile is None else quantile
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    reach = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, centre - reach), min(1.0, centre + reach)


def rate(hits: int, n: int) -> Estimate:
    """A share of n independent trials with Wilson's interval."""
    return Estimate(hits / n, *wilson(hits / n, n))
