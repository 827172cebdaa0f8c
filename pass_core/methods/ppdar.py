"""PPDAR (Wu et al. 2020): keep the task, raise the loss of several adversaries of different widths."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from pass_core.checks import ranged
from pass_core.methods.adversarial.players import GameConfig, Move, total
from pass_core.methods.adversarial.training import AdversarialMethod
from pass_core.training.networks import CLASSIFIER, Widths

# The first is the probing attack's own; the others are narrower and wider.
ADVERSARIES = (
    CLASSIFIER,
    Widths(convolutions=(8, 16, 32, 32), after_convolutions=128, hidden=(256, 128)),
    Widths(convolutions=(16, 16, 32, 32), after_convolutions=128, hidden=(384, 192)),
    Widths(convolutions=(24, 48, 64, 64), after_convolutions=256, hidden=(640, 320)),
)


@dataclass(frozen=True, slots=True)
class PpdarConfig(GameConfig):
    """The weight of the adversaries' loss, and their number."""

    private_weight: float = ranged(1.0, at_least=0)  # γ
    adversaries: int = ranged(4, at_least=1, at_most=len(ADVERSARIES))  # of every private attribute


class Ppdar(AdversarialMethod[PpdarConfig]):
    """Σ_U CE_U − γ Σ_S mean over adversaries of CE_S."""

    summary: ClassVar[str] = "PPDAR: a generator that keeps the task and misleads several adversaries"
    config_type: ClassVar[type[PpdarConfig]] = PpdarConfig

    def widths(self, config: PpdarConfig) -> tuple[Widths, ...]:
        return ADVERSARIES[: config.adversaries]

    def loss(self, move: Move, config: PpdarConfig) -> dict[str, Tensor]:
        useful, private = total(move.useful_losses()), total(move.private_losses())
        return {"useful": useful, "private": -config.private_weight * private}


METHOD = Ppdar()
