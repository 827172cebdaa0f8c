"""DPPix (Fan 2018): means of cells with Laplace noise."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pass_core.data import FloatArray
from pass_core.errors import ConfigError, MethodError
from pass_core.noise import NoiseMethod, ValueRange, check_epsilon, laplace


@dataclass(frozen=True, slots=True)
class DppixConfig:
    """ε for records that differ in at most `differing` values of each channel."""

    epsilon: float = 1.0
    cell: int = 8  # side of a cell: pixels of an image, time points of a window, entries of a vector
    differing: int | None = None  # m; null: a quarter of a cell, which is the usual 16 for images

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if self.cell < 1:
            raise ConfigError(f"cell: expected at least 1, found {self.cell}")
        if self.differing is not None and self.differing < 1:
            raise ConfigError(f"differing: expected at least 1, or null, found {self.differing}")


class Dppix(NoiseMethod[DppixConfig]):
    """Every value of a cell becomes the cell's mean + Lap(Δ·m/(values in a cell · ε)), per channel."""

    summary: ClassVar[str] = "DPPix: means of cells with Laplace noise"
    config_type: ClassVar[type[DppixConfig]] = DppixConfig

    def check(self, shape: tuple[int, ...], config: DppixConfig) -> None:
        # A vector's last cell may be shorter: its length is nobody's choice, a picture's is.
        if len(shape) > 1 and any(side % config.cell for side in shape[1:]):
            raise MethodError(f"cell: expected a number that divides the sides {shape[1:]} of a record, found {config.cell}")

    def release(self, records: FloatArray, values: ValueRange, config: DppixConfig, rng: np.random.Generator) -> FloatArray:
        cell_axes = tuple(range(1 if records.ndim == 2 else 2, records.ndim))
        in_cell = config.cell ** len(cell_axes)
        differing = math.ceil(in_cell / 4) if config.differing is None else config.differing
        means = records
        for axis in cell_axes:
            means = _cell_means(means, axis, config.cell)
        # Every value of a cell's has the span of its channel, except in vectors: there the widest of the cell counts.
        span = values.span if records.ndim > 2 else np.maximum.reduceat(values.span, np.arange(0, records.shape[1], config.cell))
        noisy = means + laplace(rng, means.shape, span * np.float32(differing / (in_cell * config.epsilon)))
        for axis in cell_axes:
            noisy = noisy.repeat(config.cell, axis=axis).take(range(records.shape[axis]), axis=axis)
        return values.clip(noisy) if records.ndim == 4 else noisy


def _cell_means(records: FloatArray, axis: int, cell: int) -> FloatArray:
    """Means of every `cell` neighbours along an axis."""
    starts = np.arange(0, records.shape[axis], cell)
    counts = np.diff([*starts, records.shape[axis]]).astype(np.float32)
    shape = [1] * records.ndim
    shape[axis] = len(counts)
    means: FloatArray = np.add.reduceat(records, starts, axis=axis) / counts.reshape(shape)
    return means


METHOD = Dppix()
