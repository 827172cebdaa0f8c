"""DPPix (Fan 2018): means of cells with Laplace noise."""

import math
from dataclasses import dataclass

import numpy as np

from pass_core.checks import Checked, ranged
from pass_core.data import FloatArray, Rng
from pass_core.methods._noise import NoiseMethod, ValueRange, laplace


@dataclass(frozen=True, slots=True)
class DppixConfig(Checked):
    """ε, of every channel, for records that differ in at most `differing` of its values."""

    epsilon: float = ranged(1.0, above=0)
    cell: int = ranged(8, at_least=1)  # side of a cell: pixels of an image, time points of a window, entries of a vector
    differing: int | None = ranged(None, at_least=1)  # m; null: a quarter of a cell, which is the usual 16 for images


def release(records: FloatArray, values: ValueRange, config: DppixConfig, rng: Rng) -> FloatArray:
    """Every value of a cell becomes the cell's mean + Lap(Δ·m/(values in a cell · ε)), per channel."""
    axes = tuple(range(1 if records.ndim == 2 else 2, records.ndim))
    differing = math.ceil(config.cell ** len(axes) / 4) if config.differing is None else config.differing
    sums, counts = records, np.ones(records.shape[1:], dtype=np.float32)
    span = np.broadcast_to(values.span, records.shape[1:])
    for axis in axes:  # the last cells may be smaller, and their means noisier
        starts = np.arange(0, records.shape[axis], config.cell)
        sums = np.add.reduceat(sums, starts, axis=axis)
        counts = np.add.reduceat(counts, starts, axis=axis - 1)
        span = np.maximum.reduceat(span, starts, axis=axis - 1)
    noisy: FloatArray = sums / counts + laplace(rng, sums.shape, span * differing / (counts * config.epsilon))
    for axis in axes:
        noisy = noisy.repeat(config.cell, axis=axis).take(range(records.shape[axis]), axis=axis)
    return values.clip(noisy) if records.ndim == 4 else noisy


METHOD = NoiseMethod(summary="DPPix: means of cells with Laplace noise", config_type=DppixConfig, release=release)
