"""Methods that add noise or mask entries: the range to which values are clipped, and the release."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

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

    @property
    def middle(self) -> FloatArray:
        """Grey for images, else the mean."""
        return ((self.low + self.high) / 2).astype(np.float32)

    def clip(self, features: FloatArray) -> FloatArray:
        """Values within the range."""
        return np.clip(features, self.low, self.high)


def laplace(rng: Rng, shape: tuple[int, ...], scale: FloatArray | float) -> FloatArray:
    """Laplace noise with E|noise| = scale, broadcast to `shape`."""
    return (rng.laplace(0.0, 1.0, shape) * scale).astype(np.float32)


ConfigT = TypeVar("ConfigT")


class NoiseMethod(ABC, Generic[ConfigT]):
    """A method that learns only the range of values; a subclass changes the records."""

    summary: ClassVar[str]
    config_type: ClassVar[type[Any]]

    @abstractmethod
    def release(self, records: FloatArray, values: ValueRange, config: ConfigT, rng: Rng) -> FloatArray:
        """New records from clipped ones."""

    def fit(self, data: Records, *, config: ConfigT, **_: object) -> "FittedNoise[ConfigT]":
        """Learns the range of values."""
        return FittedNoise(self, ValueRange.learn(data.features), config)

    def from_state_dict(self, state: Mapping[str, Tensor], context: ReleaseContext, config: ConfigT) -> "FittedNoise[ConfigT]":
        return FittedNoise(self, ValueRange(state["low"].numpy(), state["high"].numpy()), config)


@dataclass(frozen=True)
class FittedNoise(RecordMaker, Generic[ConfigT]):
    """The range of values, and the noise added within it."""

    method: NoiseMethod[ConfigT]
    values: ValueRange
    config: ConfigT

    def release(self, records: FloatArray, rng: Rng) -> FloatArray:
        return self.method.release(self.values.clip(records), self.values, self.config, rng)

    def state_dict(self) -> dict[str, Tensor]:
        return {"low": torch.from_numpy(self.values.low), "high": torch.from_numpy(self.values.high)}
