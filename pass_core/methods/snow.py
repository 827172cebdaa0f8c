"""Snow (John et al. 2020): a random part of the pixels becomes grey."""

from dataclasses import dataclass

import numpy as np

from pass_core.checks import Checked, ranged
from pass_core.data import FloatArray, Rng
from pass_core.methods._noise import NoiseMethod, ValueRange


@dataclass(frozen=True, slots=True)
class SnowConfig(Checked):
    """δ of (0, δ)-differential privacy for one pixel: the share of pixels that stay."""

    delta: float = ranged(0.5, at_least=0, at_most=1)


def release(records: FloatArray, values: ValueRange, config: SnowConfig, rng: Rng) -> FloatArray:
    """1 − δ of the pixels, or time points in all channels, or entries of a vector become grey, or the mean."""
    places = records.shape[1:] if records.ndim == 2 else records.shape[2:]
    order = rng.random((len(records), int(np.prod(places)))).argsort(axis=1).argsort(axis=1)
    snowed = order < round((1 - config.delta) * order.shape[1])
    mask = snowed.reshape(len(records), *(() if records.ndim == 2 else (1,)), *places)
    return np.where(mask, (values.low + values.high) / 2, records).astype(np.float32)


METHOD = NoiseMethod(summary="Snow: a random part of each record is masked", config_type=SnowConfig, release=release)
