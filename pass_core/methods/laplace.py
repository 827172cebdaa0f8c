"""The Laplace mechanism: noise on each value, scaled so that any two values are hard to distinguish."""

from dataclasses import dataclass
from typing import ClassVar

from pass_core.checks import check_range
from pass_core.data import FloatArray, Rng
from pass_core.methods._noise import NoiseMethod, ValueRange, laplace


@dataclass(frozen=True, slots=True)
class LaplaceConfig:
    """ε of every single value; a record of d values has d·ε."""

    epsilon: float = 10.0

    def __post_init__(self) -> None:
        check_range(self, "epsilon", above=0)


class Laplace(NoiseMethod[LaplaceConfig]):
    """x' = x + Lap(Δ/ε), Δ the range of a value."""

    summary: ClassVar[str] = "Laplace mechanism: noise on every value"
    config_type: ClassVar[type[LaplaceConfig]] = LaplaceConfig

    def release(self, records: FloatArray, values: ValueRange, config: LaplaceConfig, rng: Rng) -> FloatArray:
        """Pixels stay within their range; clipping after the noise costs no privacy."""
        noisy = records + laplace(rng, records.shape, values.span / config.epsilon)
        return values.clip(noisy) if records.ndim == 4 else noisy


METHOD = Laplace()
