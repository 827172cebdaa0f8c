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
USUAL_CORRELATION = 0.25  # of hits within a block, assumed where too few rare records show it,
USUAL_RECORDS = 16  # with the weight of so many of them


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

        Where blocks are not of one class each, a class may have one block only; then the mix counts as drawn, too.
        """
        if not self.stratified:
            means = np.full(int(labels.max()) + 1, values.mean())
        else:
            means = np.bincount(labels, weights=values) / np.maximum(np.bincount(labels), 1)
        return np.asarray((values - means[labels]) / len(values))

    def proportion(self, value: float, spread: "Spread", among: int = 1) -> Estimate:
        """Wilson's interval of a proportion; `among`: so many intervals hold together."""
        return Estimate(value, *wilson(value, self.effective(value, spread), spread.quantile(among)))

    def effective(self, value: float, spread: "Spread") -> float:
        """How many independent records would know a proportion as well.

        A proportion near 0 or 1 rests on a few rare records, which say little about how much they cluster in blocks. Their own
        clustering counts the more, the more they are; before that, an ordinary one is assumed. So no miss at all never gives a
        wider interval than some.
        """
        n, rare = len(self.indices), max(0.0, min(value, 1 - value) * len(self.indices) - 1)
        assumed = 1 + (n / self.number - 1) * USUAL_CORRELATION
        seen = spread.variance * n / (value * (1 - value)) if rare else 0.0
        return n * (rare + USUAL_RECORDS) / (rare * seen + USUAL_RECORDS * assumed)


@dataclass(frozen=True, slots=True)
class Spread:
    """The variance of a figure, and its degrees of freedom."""

    variance: float
    degrees: float

    def quantile(self, among: int = 1) -> float:
        """Of Student's law, for both ends of an interval, or for those of several intervals together (Bonferroni)."""
        return float(special.stdtrit(self.degrees, 1 - (1 - CONFIDENCE) / 2 / among))

    def scaled(self, factor: float) -> "Spread":
        """Of the figure times `factor`."""
        return Spread(self.variance * factor**2, self.degrees)

    def around(self, mean: float, among: int = 1) -> Estimate:
        """Student's interval of a mean."""
        reach = self.quantile(among) * math.sqrt(self.variance)
        return Estimate(mean, mean - reach, mean + reach)


def wilson(share: float, n: float, quantile: float | None = None) -> tuple[float, float]:
    """Ends of Wilson's score interval (1927) of a proportion over n independent records."""
    z = float(special.ndtri((1 + CONFIDENCE) / 2)) if quantile is None else quantile
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    reach = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # At the ends both are equal but for rounding.
    return max(0.0, centre - reach) if share > 0 else 0.0, min(1.0, centre + reach) if share < 1 else 1.0


def clopper_pearson(share: float, n: float, tail: float) -> tuple[float, float]:
    """Exact ends of a proportion over n independent records (Clopper and Pearson 1934), each wrong with probability `tail`."""
    found = share * n
    low = float(special.betaincinv(found, n - found + 1, tail)) if found > 0 else 0.0
    high = float(special.betaincinv(found + 1, n - found, 1 - tail)) if found < n else 1.0
    return low, high
