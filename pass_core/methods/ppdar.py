"""PPDAR (Wu et al. 2020): keep the task, raise the loss of several adversaries of different widths."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from pass_core.data import Records
from pass_core.errors import ConfigError
from pass_core.methods.adversarial.players import GameConfig, GeneratorLoss, Move, total
from pass_core.methods.adversarial.training import CLASSIFIER, AdversarialMethod
from pass_core.methods.base import ReleaseContext
from pass_core.training.networks import Widths

# The first is the probing attack's own; the others are narrower and wider.
ADVERSARIES = (
    CLASSIFIER,
    Widths(convolutions=(8, 16, 32, 32), after_convolutions=128, hidden=(256, 128)),
    Widths(convolutions=(16, 16, 32, 32), after_convolutions=128, hidden=(384, 192)),
    Widths(convolutions=(24, 48, 64, 64), after_convolutions=256, hidden=(640, 320)),
)


@dataclass(frozen=True, slots=True)
class PpdarConfig(GameConfig):
    """The weight of the adversaries' loss, and how many they are."""

    private_weight: float = 1.0  # γ
    adversaries: int = 4  # of every private attribute

    def __post_init__(self) -> None:
        GameConfig.__post_init__(self)  # `super()` does not know a class with slots
        if self.private_weight < 0:
            raise ConfigError(f"private_weight: expected 0 or more, found {self.private_weight}")
        if not 1 <= self.adversaries <= len(ADVERSARIES):
            raise ConfigError(f"adversaries: expected between 1 and {len(ADVERSARIES)}, found {self.adversaries}")


class Ppdar(AdversarialMethod[PpdarConfig]):
    """Σ_U CE_U − γ Σ_S mean over adversaries of CE_S."""

    summary: ClassVar[str] = "PPDAR: a generator that keeps the task and misleads several adversaries"
    config_type: ClassVar[type[PpdarConfig]] = PpdarConfig

    def widths(self, config: PpdarConfig) -> tuple[Widths, ...]:
        return ADVERSARIES[: config.adversaries]

    def objective(self, data: Records, setting: ReleaseContext, config: PpdarConfig) -> GeneratorLoss:
        del data, setting

        def terms(move: Move) -> dict[str, Tensor]:
            useful, private = total(move.useful_losses()), total(move.private_losses())
            return {"useful": useful, "private": -config.private_weight * private}

        return terms


METHOD = Ppdar()
