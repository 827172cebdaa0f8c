"""The Laplace mechanism: noise on each value, scaled so that any two values are hard to distinguish."""

from dataclasses import dataclass
from typing import ClassVar

from pass_core.checks import Checked, ranged
from pass_core.data import FloatArray, Rng
from pass_core.methods._noise import NoiseMethod, ValueRange, laplace


@dataclass(frozen=True, slots=True)
class LaplaceConfig(Checked):
    """ε of every single value; a record of d values has d·ε."""

    epsilon: float = ranged(10.0, above=0)


class Laplace(NoiseMethod[LaplaceConfig]):
    """x' = x + Lap(Δ/ε), Δ the range of a value."""

    summary: ClassVar[str] = "Laplace mechanism: noise on every value"
    config_type: ClassVar[type[LaplaceConfig]] = LaplaceConfig

    def release(self, records: FloatArray, values: ValueRange, config: LaplaceConfig, rng: Rng) -> FloatArray:
        """Pixels stay within their range; clipping after the noise costs no privacy."""
        noisy = records + laplace(rng, records.shape, values.span / config.epsilon)
        return values.clip(noisy) if records.ndim == 4 else noisy


METHOD = Laplace()
