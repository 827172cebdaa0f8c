"""The Laplace mechanism: noise on each value, scaled so that any two values are hard to distinguish."""

from dataclasses import dataclass

from pass_core.checks import Checked, ranged
from pass_core.data import FloatArray, Rng
from pass_core.methods._noise import NoiseMethod, ValueRange, laplace


@dataclass(frozen=True, slots=True)
class LaplaceConfig(Checked):
    """ε of every single value; a record of d values has d·ε."""

    epsilon: float = ranged(10.0, above=0)


def release(records: FloatArray, values: ValueRange, config: LaplaceConfig, rng: Rng) -> FloatArray:
    """x' = x + Lap(Δ/ε), Δ the range of a value. Pixels stay within theirs: clipping after the noise costs no privacy."""
    noisy = records + laplace(rng, records.shape, values.span / config.epsilon)
    return values.clip(noisy) if records.ndim == 4 else noisy


METHOD = NoiseMethod(summary="Laplace mechanism: noise on every value", config_type=LaplaceConfig, release=release)
