"""Methods that add noise or blot out entries: what is clipped to which range, and a release in blocks."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from pass_core.channel.substitution import BLOCK_ROWS
from pass_core.data import FloatArray, Records
from pass_core.errors import ConfigError
from pass_core.methods.base import ReleaseContext
from pass_core.training.context import TrainingContext
from pass_core.training.loop import TrainConfig

CLIP = 3.0  # standard deviations around the mean to which vectors and windows are clipped: a range makes sensitivity finite


@dataclass(frozen=True, slots=True)
class ValueRange:
    """The range of every value: of all pixels for images, else of every entry of a vector, every channel of a window."""

    low: FloatArray
    high: FloatArray

    @classmethod
    def learn(cls, features: FloatArray) -> "ValueRange":
        """Of these records: smallest to largest pixel, or three deviations around the mean."""
        if features.ndim == 4:
            return cls(np.array(features.min(), dtype=np.float32), np.array(features.max(), dtype=np.float32))
        over = (0, *range(2, features.ndim))
        mean = features.mean(axis=over, keepdims=True, dtype=np.float64)[0]
        deviation = features.std(axis=over, keepdims=True, dtype=np.float64)[0]
        return cls((mean - CLIP * deviation).astype(np.float32), (mean + CLIP * deviation).astype(np.float32))

    @property
    def span(self) -> FloatArray:
        """How far two values can lie apart."""
        return self.high - self.low

    @property
    def middle(self) -> FloatArray:
        """Grey, or the mean."""
        middle: FloatArray = ((self.low + self.high) / 2).astype(np.float32)
        return middle

    def clip(self, features: FloatArray) -> FloatArray:
        """Within the range."""
        clipped: FloatArray = np.clip(features, self.low, self.high)
        return clipped


def laplace(rng: np.random.Generator, shape: tuple[int, ...], scale: FloatArray | float) -> FloatArray:
    """Laplace noise with E|noise| = scale, which spreads over `shape`."""
    noise: FloatArray = (rng.laplace(0.0, 1.0, shape) * scale).astype(np.float32)
    return noise


def check_epsilon(epsilon: float) -> None:
    """Raises ConfigError unless it is above 0."""
    if epsilon <= 0:
        raise ConfigError(f"epsilon: expected above 0, found {epsilon}")


ConfigT = TypeVar("ConfigT")


class NoiseMethod(ABC, Generic[ConfigT]):
    """A method that learns nothing but the range of values; a subclass says what is done to records."""

    summary: ClassVar[str]
    config_type: ClassVar[type[Any]]

    @abstractmethod
    def release(self, records: FloatArray, values: ValueRange, config: ConfigT, rng: np.random.Generator) -> FloatArray:
        """New records from clipped ones."""

    def fit(
        self,
        data: Records,
        setting: ReleaseContext,
        config: ConfigT,
        training: TrainConfig,
        rng: np.random.Generator,
        run: TrainingContext,
    ) -> "FittedNoise[ConfigT]":
        """Learns the range of values."""
        del setting, training, rng, run
        return FittedNoise(self, ValueRange.learn(data.features), config)

    def from_state_dict(self, state: Mapping[str, Tensor], setting: ReleaseContext, config: ConfigT) -> "FittedNoise[ConfigT]":
        del setting
        return FittedNoise(self, ValueRange(state["low"].numpy(), state["high"].numpy()), config)


@dataclass(frozen=True, slots=True)
class FittedNoise(Generic[ConfigT]):
    """The range of values, and what is done within it."""

    method: NoiseMethod[ConfigT]
    values: ValueRange
    config: ConfigT

    @property
    def channel(self) -> None:
        return None

    def transform(self, features: FloatArray, rng: np.random.Generator) -> FloatArray:
        released: FloatArray = np.empty_like(features)
        for start in range(0, len(features), BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            released[rows] = self.method.release(self.values.clip(features[rows]), self.values, self.config, rng)
        return released

    def state_dict(self) -> dict[str, Tensor]:
        return {"low": torch.from_numpy(self.values.low), "high": torch.from_numpy(self.values.high)}
