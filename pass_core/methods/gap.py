"""GAP (Huang et al. 2018): mislead the adversary as far as a bound on distortion allows; useful attributes play no part."""

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional as F

from pass_core.checks import ranged
from pass_core.data import Records, Role
from pass_core.errors import ConfigError
from pass_core.methods.adversarial.players import GameConfig, GeneratorLoss, Move, total
from pass_core.methods.adversarial.training import AdversarialMethod
from pass_core.methods.base import ReleaseContext

# D_max in variances, by a record's dimensions: 1/768 of unit-length HuBERT vectors, half a window's, 0.02 of pixels in [0, 1].
DISTORTIONS = {1: 1.0, 2: 0.5, 3: 0.25}


@dataclass(frozen=True, slots=True)
class GapConfig(GameConfig):
    """How much may change, and how fast the penalty for more than that grows."""

    # D_max in variances of the records; null: 1 for vectors, 0.5 for windows, 0.25 for images
    distortion: float | None = ranged(None, above=0)
    penalty: float = ranged(10.0, above=0)  # ρ in the first epoch
    penalty_growth: float = ranged(1.5, at_least=1)  # per epoch
    penalty_at_most: float = 1000.0

    def __post_init__(self) -> None:
        GameConfig.__post_init__(self)  # `super()` does not know a class with slots
        if self.penalty_at_most < self.penalty:
            raise ConfigError(f"penalty_at_most: expected at least penalty ({self.penalty}), found {self.penalty_at_most}")

    def penalty_in(self, epoch: int) -> float:
        """ρ; a bound that holds costs nothing, however large."""
        # By logarithms: the power itself overflows in a long training.
        return math.exp(min(math.log(self.penalty_at_most), math.log(self.penalty) + epoch * math.log(self.penalty_growth)))


class Gap(AdversarialMethod[GapConfig]):
    """−Σ_S CE_S + ρ relu( ‖x' − x‖²/dim − D_max )."""

    summary: ClassVar[str] = "GAP: a generator that misleads its adversary within a bound on distortion"
    config_type: ClassVar[type[GapConfig]] = GapConfig
    needs: ClassVar[tuple[Role, ...]] = ("private",)

    def objective(self, data: Records, context: ReleaseContext, config: GapConfig) -> GeneratorLoss:
        bound = DISTORTIONS[len(data.feature_shape)] if config.distortion is None else config.distortion

        def terms(move: Move) -> dict[str, Tensor]:
            space = move.players.generator.space
            excess = F.relu((space.standard(move.released) - space.standard(move.original)).square().mean() - bound)
            return {"private": -total(move.private_losses()), "distortion": config.penalty_in(move.epoch) * excess}

        return terms


METHOD = Gap()
