"""The distribution of mutual information when nothing leaks: the same figure with permuted private classes.

Plug-in I(X';S) of a few records over many donors is far above zero even for a channel without information. The fair comparison
permutes the classes over *units* that do not depend on each other: over persons, since records of one person get the same few
donors and permuting records would make any person-to-donor habit look like a leak of the attribute; over recordings, where the
class is the person itself; over records where they are independent. Units keep their useful classes, which the channel is meant
to keep.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import special, stats

from pass_core.channel.joint_law import accumulate
from pass_core.channel.substitution import Channel
from pass_core.data import DoubleArray, FloatArray, IntArray, combinations

MOST_CELLS = 4096  # groups of records whose sums are held in memory; more are streamed again for each test
TABLE_CELLS = 2**24  # of the tables of several permutations that are held at once
RESOLVED = 10  # a p-value from fewer permutations than this reaching the figure is taken from the null's fitted tail


@dataclass(frozen=True, slots=True, kw_only=True)
class NullComparison:
    """A figure beside its distribution under "nothing leaks", nats."""

    found: float
    null_mean: float
    null_deviation: float
    p_value: float  # probability of reaching `found` when nothing leaks
    excess: float  # the figure minus the null's mean


class DonorSums(Protocol):
    """Sums of P(.|x) over groups of records."""

    pool_size: int

    def tables(self, codes: IntArray, n_codes: int) -> DoubleArray:
        """(n_codes, pool) sums over the records of every code; `codes` (k, n) are k groupings at once. All sum to k."""


class StreamedSums:
    """Passes the records through the channel in each call: memory does not grow with them."""

    def __init__(self, channel: Channel, features: FloatArray) -> None:
        self._channel, self._features, self.pool_size = channel, features, channel.pool_size

    def tables(self, codes: IntArray, n_codes: int) -> DoubleArray:
        return accumulate(self._channel, self._features, codes, n_codes) / len(self._features)


class CellSums:
    """Holds the sums of cells, the finest groups that are needed."""

    def __init__(self, law: DoubleArray, cells: IntArray) -> None:
        self._law = law  # (cells, pool) P(cell, X'=d)
        self._members = np.unique(cells, return_index=True)[1]  # a record of every cell
        self.pool_size = law.shape[1]

    def tables(self, codes: IntArray, n_codes: int) -> DoubleArray:
        groupings = np.atleast_2d(codes)[:, self._members]
        indicators = np.zeros((n_codes, len(self._members)))
        np.add.at(indicators, (groupings, np.arange(len(self._members))), 1.0)
        return indicators @ self._law


def donor_sums(channel: Channel, features: FloatArray, groupings: Sequence[IntArray]) -> DonorSums:
    """Held where the combinations of these groupings are few, streamed otherwise."""
    cells = combinations(groupings)
    if cells.max(initial=0) >= MOST_CELLS:
        return StreamedSums(channel, features)
    return CellSums(accumulate(channel, features, cells, int(cells.max()) + 1) / len(features), cells)


@dataclass(frozen=True, slots=True)
class Units:
    """Groups of records of one class that do not depend on each other: classes are permuted over them."""

    name: str
    indices: IntArray  # (n,) unit of every record
    strata: IntArray  # (units,) classes are permuted within a stratum

    @property
    def number(self) -> int:
        return len(self.strata)


def choose_units(labels: IntArray, kept: Sequence[IntArray], persons: IntArray, blocks: IntArray) -> Units:
    """The largest units over which permuting these classes is meaningful; they keep the classes `kept` that they share.

    A person whose records have several classes, and persons of whom each has a class of its own, are none: another numbering
    of the persons is the same information.
    """
    for name, groups in (("person", persons), ("recording", blocks)):
        _, indices = np.unique(groups, return_inverse=True)
        number = int(indices.max()) + 1
        if _constant(labels, indices) and number >= 2 * len(np.unique(labels)):
            return Units(name, indices, _strata(kept, indices))
    each = np.arange(len(labels))
    return Units("record", each, _strata(kept, each))


def _strata(kept: Sequence[IntArray], indices: IntArray) -> IntArray:
    """(units,) the combination of those classes that units have as a whole."""
    whole = [_of_units(classes, indices) for classes in kept if _constant(classes, indices)]
    return combinations(whole) if whole else np.zeros(int(indices.max()) + 1, dtype=np.int64)


def _of_units(values: IntArray, indices: IntArray) -> IntArray:
    """(units,) the value of every unit."""
    found = np.zeros(int(indices.max()) + 1, dtype=np.int64)
    found[indices] = values
    return found


def _constant(values: IntArray, indices: IntArray) -> bool:
    return bool((_of_units(values, indices)[indices] == values).all())


def compare_with_null(
    sums: DonorSums,
    labels: IntArray,
    units: Units,
    rng: np.random.Generator,
    *,
    permutations: int = 200,
    known: IntArray | None = None,
    released: bool = False,
) -> tuple[NullComparison, dict[int, NullComparison]]:
    """I(X';S), or I(X';S|K) for an attacker who knows K, compared with classes permuted over the units; then I(X';S|K=k).

    Where K is released, too, the figure is I(X',K;S): the information in K alone counts.
    """
    side = np.zeros(len(labels), dtype=np.int64) if known is None else known
    n_classes, n_known = int(labels.max()) + 1, int(side.max()) + 1
    cells, parts, alone = n_classes * n_known, [], []
    for dealt in _dealt(labels, units, rng, permutations, max(1, TABLE_CELLS // (cells * sums.pool_size))):
        codes = np.arange(len(dealt))[:, None] * cells + side * n_classes + dealt
        tables = sums.tables(codes, len(dealt) * cells).reshape(len(dealt), n_known, n_classes, -1)
        parts.append(_information(tables))
        alone.append(_information(tables.sum(axis=3).swapaxes(1, 2)[:, None])[:, 0])  # I(K;S)
    figures = np.concatenate(parts)  # (permutations + 1, known) masses times information
    shares = np.bincount(side, minlength=n_known) / len(side)
    dealings = _dealings(labels, units)
    each = {k: compared(figures[:, k] / shares[k], dealings) for k in np.flatnonzero(shares).tolist()}
    return compared(figures.sum(axis=1) + (np.concatenate(alone) if released else 0.0), dealings), each


def _dealt(labels: IntArray, units: Units, rng: np.random.Generator, permutations: int, at_once: int) -> Iterator[IntArray]:
    """(k, n) classes of the records: the true ones first, then permutations, some at a time."""
    classes = _of_units(labels, units.indices)
    strata = [np.flatnonzero(units.strata == stratum) for stratum in np.unique(units.strata)]
    rows = [classes]
    for _ in range(permutations):
        dealt = np.empty_like(classes)
        for inside in strata:
            dealt[inside] = rng.permutation(classes[inside])
        rows.append(dealt)
        if len(rows) == at_once:
            yield np.stack(rows)[:, units.indices]
            rows = []
    if rows:
        yield np.stack(rows)[:, units.indices]


def _information(tables: DoubleArray) -> DoubleArray:
    """Σ T ln(T·T_k / (T_s T_d)) of tables (rows, known, classes, pool), for every row and known class; nats."""
    whole = special.xlogy(tables, tables).sum(axis=(2, 3))
    classes, donors = tables.sum(axis=3), tables.sum(axis=2)
    masses = classes.sum(axis=2)
    marginals = special.xlogy(classes, classes).sum(axis=2) + special.xlogy(donors, donors).sum(axis=2)
    return np.asarray(np.maximum(0.0, whole - marginals + special.xlogy(masses, masses)))


def compared(figures: DoubleArray, dealings: float = math.inf) -> NullComparison:
    """The first figure beside the others, its values when there is nothing to find; `dealings` counts possible permutations."""
    found, null = float(figures[0]), figures[1:]
    mean, deviation = float(null.mean()), float(null.std(ddof=1)) if len(null) > 1 else 0.0
    reached = int((null >= found - 1e-12).sum())
    p_value = (1 + reached) / (1 + len(null))
    if reached < RESOLVED and deviation > 1e-12:
        # So few permutations cannot resolve how rare this is. Sums of squares of many small terms are close to a gamma law; where
        # a few donors or persons outweigh the others, the null is more skewed than that, and its own skewness counts.
        skewness = max(2 * deviation / mean, float(stats.skew(null)))
        p_value = max(float(stats.pearson3.sf(found, skewness, mean, deviation)), 1 / dealings)
    return NullComparison(found=found, null_mean=mean, null_deviation=deviation, p_value=p_value, excess=found - mean)


def _dealings(labels: IntArray, units: Units) -> float:
    """The number of different permutations of the classes over the units."""
    classes = _of_units(labels, units.indices)
    logarithm = 0.0
    for stratum in np.unique(units.strata):
        counts = np.bincount(classes[units.strata == stratum])
        logarithm += float(special.gammaln(counts.sum() + 1) - special.gammaln(counts + 1).sum())
    return math.exp(min(logarithm, 700.0))  # beyond that a float ends, and no p-value is as small
