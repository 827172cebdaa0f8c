"""Intervals for audit figures, by resampling blocks of dependent records."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pass_core.data import DoubleArray, IntArray

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % interval."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class BlockBootstrap:
    """Resamples whole blocks (a recording, a person): records inside one depend on each other, windows even overlap."""

    blocks: IntArray  # (n,) block index of every record
    weights: IntArray  # (resamples, blocks): how often a resample takes each block

    @classmethod
    def draw(cls, blocks: IntArray, rng: np.random.Generator, n_resamples: int = 2000) -> "BlockBootstrap":
        """A bootstrap over the blocks named by `blocks` (any integers)."""
        names, indices = np.unique(blocks, return_inverse=True)
        weights = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=n_resamples)
        return cls(indices.astype(np.int64), weights.astype(np.int64))

    def rates(self, hits: NDArray[np.bool_], labels: IntArray) -> DoubleArray:
        """(resamples,) share of hits in every resample, with the classes weighted as in the whole set.

        NAG compares an attack with guessing under a given class mix; a block has one class, so a plain resample would
        change the mix and count that as uncertainty. A class that a resample misses keeps its rate in the whole set.
        """
        rates: DoubleArray = np.zeros(len(self.weights))
        for label in np.unique(labels):
            rows = labels == label
            n_blocks = self.weights.shape[1]
            hit = self.weights @ np.bincount(self.blocks[rows], weights=hits[rows], minlength=n_blocks)
            size = self.weights @ np.bincount(self.blocks[rows], minlength=n_blocks)
            within = np.divide(hit, size, out=np.full(len(hit), float(hits[rows].mean())), where=size > 0)
            rates += rows.mean() * within
        return rates

    def nag(self, attacked: NDArray[np.bool_], unprotected: NDArray[np.bool_], labels: IntArray, guess: int) -> DoubleArray:
        """(resamples,) NAG; the arrays say where the attack and the unprotected control are right.

        A resample in which the control is no better than guessing says nothing about NAG and is NaN.
        """
        majority = float((labels == guess).mean())
        span = self.rates(unprotected, labels) - majority
        gain = self.rates(attacked, labels) - majority
        return np.maximum(0.0, np.divide(gain, span, out=np.full_like(gain, np.nan), where=span > 0))


def percentile_interval(replicates: DoubleArray) -> Interval:
    """The central 95 % of the replicates."""
    tail = (1 - CONFIDENCE) / 2
    low, high = np.nanquantile(replicates, [tail, 1 - tail])
    return Interval(float(low), float(high))
