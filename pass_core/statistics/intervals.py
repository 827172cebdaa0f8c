"""Intervals for audit figures, from each record's influence on a figure, summed over blocks of dependent records.

Records of one recording or person depend on each other, windows of a signal even overlap; a figure's variance is therefore
that of the blocks' sums. All intervals are 95 % and two-sided. Proportions get Wilson's interval with the number of independent
records that would have the same variance; anything else gets Student's. Both take their quantile from Student's law.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

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
    """Which records depend on each other, and the class of each block."""

    indices: IntArray  # (n,) block of every record, from 0
    strata: IntArray  # (blocks,) class of each block; all 0 where blocks hold several classes
    stratified: bool

    @classmethod
    def of(cls, blocks: IntArray, labels: IntArray) -> "Blocks":
        """Blocks, stratified by class where each block has one class and each class at least two blocks."""
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

    def spread(self, influence: DoubleArray, weights: DoubleArray | None = None) -> "Spread":
        """The spread of a figure to which record i adds `influence[i]`; influences of a stratum sum to zero.

        A large block pulls the mean it is compared with to itself, which leaves its deviation too small: it is enlarged by the
        block's share of its stratum. Where a few blocks outweigh the others, so few are the degrees of freedom (Satterthwaite,
        as if records of a block were all alike). `weights` say what a record counts in the figure; None: all the same.
        """
        sums = np.bincount(self.indices, weights=influence, minlength=self.number)
        masses = np.bincount(self.indices, weights=weights, minlength=self.number).astype(np.float64)
        shares = masses / np.bincount(self.strata, weights=masses)[self.strata]
        several = shares < 1 - 1e-9
        variance = float((sums[several] ** 2 / (1 - shares[several])).sum())
        expected = np.bincount(self.strata, weights=masses**2)
        held = expected > 0
        blocks = expected[held] ** 2 / np.bincount(self.strata, weights=masses**4)[held]
        degrees = expected.sum() ** 2 / (expected[held] ** 2 / np.maximum(blocks - 1, 1)).sum()
        return Spread(variance, float(degrees))

    def centred(self, values: DoubleArray, labels: IntArray) -> DoubleArray:
        """What every record adds to the mean of `values` when the class mix is given.

        An attack is compared with guessing under one class mix: a sample of blocks with another mix is no uncertainty of it.
        Where blocks are not of one class each, a class may have one block only; then the mix counts as drawn, too.
        """
        if not self.stratified:
            means = np.full(int(labels.max()) + 1, values.mean())
        else:
            means = np.bincount(labels, weights=values) / np.maximum(np.bincount(labels), 1)
        return np.asarray((values - means[labels]) / len(values))

    def proportion(self, value: float, spread: "Spread") -> Estimate:
        """Wilson's interval of a proportion."""
        # No spread seen is not no spread: count blocks, as if each were one record.
        seen = spread.variance > 0 and 0 < value < 1
        independent = value * (1 - value) / spread.variance if seen else float(self.number)
        return Estimate(value, *wilson(value, independent, spread.quantile))

    def p_value(self, value: float, spread: "Spread") -> float:
        """One-sided p-value of a mean this large when the truth is 0, by Student's law; by signs where all blocks are equal."""
        if spread.variance > 0:
            return float(special.stdtr(spread.degrees, -value / math.sqrt(spread.variance)))
        return float(0.5**self.number) if value > 0 else 1.0


@dataclass(frozen=True, slots=True)
class Spread:
    """The variance of a figure, and its degrees of freedom."""

    variance: float
    degrees: float

    @property
    def quantile(self) -> float:
        """Of Student's law, for both ends of an interval."""
        return float(special.stdtrit(self.degrees, (1 + CONFIDENCE) / 2))

    def scaled(self, factor: float) -> "Spread":
        """Of the figure times `factor`."""
        return Spread(self.variance * factor**2, self.degrees)

    def around(self, mean: float) -> Estimate:
        """Student's interval of a mean."""
        reach = self.quantile * math.sqrt(self.variance)
        return Estimate(mean, mean - reach, mean + reach)


def wilson(share: float, n: float, quantile: float | None = None) -> tuple[float, float]:
    """Ends of Wilson's score interval (1927) of a proportion over n independent records."""
    z = float(special.ndtri((1 + CONFIDENCE) / 2)) if quantile is None else quantile
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    reach = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, centre - reach), min(1.0, centre + reach)
