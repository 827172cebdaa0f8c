"""Whether an attacker's scores predict classes better than chance, by dealing the classes anew over independent units.

The attacker has learnt elsewhere and stays as it is; only the true classes are permuted. Chance is then what the same scores gain
with permuted classes: class shares that differ between training and test, or a constant guess that happens to suit these records,
gain nothing. Units are records that do not depend on each other: persons not met in training, recordings, or single records.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from pass_core.data import DoubleArray, IntArray, combinations
from pass_core.statistics.intervals import Blocks

HEDGE = 0.5  # of an attacker's belief stays with the baseline: a certain and wrong guess costs ln 2 at most
PERMUTATIONS = 100  # where units are many: for the skewness of the null, whose mean and variance are exact
MORE_PERMUTATIONS = 4000  # where units are few
FEW_UNITS = 200
COMMON = 5  # groups that share a mixture of known classes, fewer of which make it a rare one
MOST_RARE = 0.5  # of the groups may have rare mixtures, and are then dealt among their few equals, or not at all
CELLS = 2**20  # of permuted classes that are held at once
RESOLVED = 10  # so many permutations must reach the figure before their share is its p-value


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTest:
    """The gain of an attacker's scores over chance, nats per record."""

    gain: float
    deviation: float  # of the gain, over units
    degrees: float  # of freedom of that deviation
    p_value: float  # probability of such a gain when the scores reveal nothing
    unit: str  # what the classes were permuted over
    units: int
    records: int

    def end(self, quantile: float) -> float:
        """The end of an interval: the gain that many deviations, of Student's law at this probability, from the one found."""
        return self.gain + float(special.stdtrit(self.degrees, quantile)) * self.deviation


def hedged(probabilities: DoubleArray, baseline: DoubleArray) -> DoubleArray:
    """(n, classes) log-scores of an attacker who keeps half of its belief at the baseline (n, classes) or (classes,)."""
    ratio = np.divide(
        probabilities, baseline, out=np.ones_like(probabilities), where=np.broadcast_to(baseline, probabilities.shape) > 0
    )
    return np.asarray(np.log1p(HEDGE * (ratio - 1)))


def baseline_shares(train_labels: IntArray, n_classes: int, train_given: IntArray, given: IntArray) -> DoubleArray:
    """(m, classes) shares of the classes among training records of the same given class, with one average record more."""
    prior = np.bincount(train_labels, minlength=n_classes) / len(train_labels)
    counts = np.zeros((int(max(train_given.max(initial=0), given.max(initial=0))) + 1, n_classes))
    np.add.at(counts, (train_given, train_labels), 1.0)
    return np.asarray((counts + prior) / (counts.sum(axis=1, keepdims=True) + 1))[given]


@dataclass(frozen=True, slots=True)
class Dealing:
    """How classes may be permuted: over units, within strata."""

    unit: str
    indices: IntArray  # (n,) unit of every record
    strata: IntArray  # (units,)

    @classmethod
    def of(cls, labels: IntArray, dependent: IntArray, given: IntArray) -> "Dealing":
        """Over dependent groups where each has one class; else over records within their group. Within classes of `given`."""
        _, groups = np.unique(dependent, return_inverse=True)
        several = len(groups) > int(groups.max(initial=-1)) + 1
        if several and _constant(labels, groups):
            return cls("group", groups, _alike(given, groups))
        return cls("record", np.arange(len(labels)), combinations([groups, given] if several else [given]))


def _first(values: IntArray, groups: IntArray) -> IntArray:
    found = np.zeros(int(groups.max()) + 1, dtype=np.int64)
    found[groups] = values
    return found


def _alike(given: IntArray, groups: IntArray) -> IntArray:
    """(groups,) strata: groups with equally many records of each of these classes; where most are rare, of their commonest class.

    Scores are relative to what `given` reveals: dealt among all, classes that depend on it would gain less than chance, and so
    would a leak.
    """
    if _constant(given, groups):
        return combinations([_first(given, groups)])
    counts = np.zeros((int(groups.max()) + 1, int(given.max()) + 1))
    np.add.at(counts, (groups, given), 1.0)
    _, profiles, sizes = np.unique(counts, axis=0, return_inverse=True, return_counts=True)
    profiles = profiles.reshape(-1)
    rare = sizes[profiles] < COMMON
    if rare.mean() > MOST_RARE:  # people with many records each have a mixture of their own
        profiles = np.where(rare, -1 - counts.argmax(axis=1), profiles)
    return combinations([profiles])


def _constant(values: IntArray, groups: IntArray) -> bool:
    return bool((_first(values, groups)[groups] == values).all())


def score_test(scores: DoubleArray, labels: IntArray, dealing: Dealing, rng: np.random.Generator) -> ScoreTest:
    """Tests log-scores (n, classes) against permuted classes."""
    sums: DoubleArray = np.stack(
        [np.bincount(dealing.indices, weights=column) for column in scores.T], axis=1
    )  # (units, classes)
    classes, n = _first(labels, dealing.indices), len(labels)
    chance, variance, strata = np.zeros(len(sums)), 0.0, []
    logarithm = 0.0  # of the number of different permutations
    for stratum in np.unique(dealing.strata):
        inside = np.flatnonzero(dealing.strata == stratum)
        counts = np.bincount(classes[inside], minlength=scores.shape[1])
        shares, own = counts / len(inside), sums[inside]
        chance[inside] = own @ shares
        if (counts > 0).sum() < 2:
            continue
        strata.append(inside)
        centred = own - chance[inside, None] - own.mean(axis=0) + chance[inside].mean()
        variance += float((centred**2 @ counts).sum()) / (len(inside) - 1)  # Hoeffding's, of a permutation statistic
        logarithm += float(special.gammaln(len(inside) + 1) - special.gammaln(counts + 1).sum())
    found = sums[np.arange(len(sums)), classes] - chance
    null = _null(sums, chance, classes, strata, rng)
    gain, blocks = float(found.sum()) / n, Blocks.of(dealing.indices, np.zeros(n, dtype=np.int64))
    spread = blocks.spread((found[dealing.indices] / np.bincount(dealing.indices)[dealing.indices] - gain) / n)
    return ScoreTest(
        gain=gain,
        deviation=math.sqrt(spread.variance),
        degrees=spread.degrees,
        p_value=max(_p_value(float(found.sum()), math.sqrt(variance), null), math.exp(-min(logarithm, 700.0))) if strata else 1.0,
        unit=dealing.unit,
        units=len(sums),
        records=n,
    )


def _null(
    sums: DoubleArray, chance: DoubleArray, classes: IntArray, strata: list[IntArray], rng: np.random.Generator
) -> DoubleArray:
    """Sums of gains with permuted classes."""
    found = np.zeros(MORE_PERMUTATIONS if len(sums) <= FEW_UNITS else PERMUTATIONS)
    for inside in strata:
        own, rows = sums[inside], np.arange(len(inside))
        at_once = max(1, CELLS // len(inside))
        for start in range(0, len(found), at_once):
            part = found[start : start + at_once]  # a view
            part += own[rows, rng.permuted(np.tile(classes[inside], (len(part), 1)), axis=1)].sum(axis=1) - chance[inside].sum()
    return found


def _p_value(found: float, deviation: float, null: DoubleArray) -> float:
    """The share of permutations that reach the figure; where too few do, by the null's exact variance and its skewness."""
    reached = int((null >= found - 1e-12).sum())
    if reached >= RESOLVED or deviation <= 1e-12:
        return (1 + reached) / (1 + len(null))
    skewness = float(stats.skew(null)) + math.sqrt(6 / len(null))  # a deviation more than seen: the tail must not be too thin
    return float(stats.pearson3.sf(found / deviation, max(skewness, 1e-3)))
