"""Methods that add noise or mask entries: the range to which values are clipped, and the release."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pass_core.data import FloatArray, Records, Rng
from pass_core.methods.base import RecordMaker, ReleaseContext

CLIP = 3.0  # standard deviations around the mean to which vectors and windows are clipped: a range makes sensitivity finite


@dataclass(frozen=True, slots=True)
class ValueRange:
    """The range of every value: of all pixels for images, else of every entry of a vector, every channel of a window."""

    low: FloatArray
    high: FloatArray

    @classmethod
    def learn(cls, features: FloatArray) -> "ValueRange":
        """The range of these records: smallest to largest pixel, or three deviations around the mean."""
        if features.ndim == 4:
            return cls(np.array(features.min(), dtype=np.float32), np.array(features.max(), dtype=np.float32))
        over = (0, *range(2, features.ndim))
        mean = features.mean(axis=over, keepdims=True, dtype=np.float64)[0]
        deviation = features.std(axis=over, keepdims=True, dtype=np.float64)[0]
        return cls((mean - CLIP * deviation).astype(np.float32), (mean + CLIP * deviation).astype(np.float32))

    @property
    def span(self) -> FloatArray:
        """The largest difference of two values."""
        return self.high - self.low

    def clip(self, features: FloatArray) -> FloatArray:
        """Values within the range."""
        return np.clip(features, self.low, self.high)


def laplace(rng: Rng, shape: tuple[int, ...], scale: FloatArray | float) -> FloatArray:
    """Laplace noise with E|noise| = scale, broadcast to `shape`."""
    return (rng.laplace(0.0, 1.0, shape) * scale).astype(np.float32)


@dataclass(frozen=True, slots=True)
class NoiseMethod:
    """A method that learns only the range of values."""

    summary: str
    config_type: type[Any]
    release: Callable[[FloatArray, ValueRange, Any, Rng], FloatArray]  # new records from clipped ones, their range, the config

    def fit(self, data: Records, *, config: Any, **_: object) -> RecordMaker:
        """Learns the range of values."""
        return self._fitted(ValueRange.learn(data.features), config)

    def from_state_dict(self, state: Mapping[str, Tensor], context: ReleaseContext, config: Any) -> RecordMaker:
        return self._fitted(ValueRange(state["low"].numpy(), state["high"].numpy()), config)

    def _fitted(self, values: ValueRange, config: Any) -> RecordMaker:
        learnt = {"low": torch.from_numpy(values.low), "high": torch.from_numpy(values.high)}
        return RecordMaker(functools.partial(self._release, values, config), learnt)

    def _release(self, values: ValueRange, config: Any, records: FloatArray, rng: Rng) -> FloatArray:
        return self.release(values.clip(records), values, config, rng)
