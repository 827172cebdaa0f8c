"""BDQ (Kumawat & Nagahara 2022): keep the task, make the adversary unsure; optionally by blur, difference and quantisation."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pass_core.checks import ranged
from pass_core.errors import MethodError
from pass_core.methods.adversarial.generators import Generator, common_generator
from pass_core.methods.adversarial.players import GameConfig, Move, total
from pass_core.methods.adversarial.training import AdversarialMethod, Shape
from pass_core.training.networks import SelfStarting

Encoder = Literal["generator", "bdq"]
BLUR_WIDTH, BLUR_DEVIATION = 5, 3.0
LEVELS, SLOPE = 16, 5.0


@dataclass(frozen=True, slots=True)
class BdqConfig(GameConfig):
    """The weight of uncertainty, and what makes the records."""

    uncertainty: float = ranged(2.0, at_least=0)  # α
    encoder: Encoder = "generator"  # or bdq: the method's own, for windows and images


def uncertainty(private: Tensor) -> Tensor:
    """Mean entropy of p(S|x'), from (members, batch, classes) logits."""
    logs = F.log_softmax(private, dim=2)
    return -(logs.exp() * logs).sum(dim=2).mean()


class SoftLevels(SelfStarting):
    """Rounds values in [0, 15] to 16 levels: a sum of 15 steep sigmoids at thresholds that are learnt."""

    def __init__(self) -> None:
        super().__init__()
        self.thresholds = nn.Parameter(torch.empty(LEVELS - 1))

    def reset_parameters(self) -> None:
        """Half-way between the levels."""
        with torch.no_grad():
            self.thresholds.copy_(torch.arange(LEVELS - 1) + 0.5)

    def forward(self, values: Tensor) -> Tensor:
        return torch.stack([torch.sigmoid(SLOPE * (values - threshold)) for threshold in self.thresholds]).sum(dim=0)


class BlurDifferenceQuantise(Generator):
    """Blurs, takes differences along a window's time (images have none), and rounds to levels; draws nothing."""

    can_repeat: ClassVar[bool] = False

    def __init__(self, shape: Shape) -> None:
        if len(shape) not in (2, 3):
            raise MethodError(f"encoder bdq: expected windows or images to blur, found shape {shape}; set encoder: generator")
        super().__init__(shape, (0,))
        self.levels = SoftLevels()

    def forward(self, records: Tensor, noise: Tensor) -> Tensor:
        blurred = blur(records)
        low, span = self.space.low, self.space.high - self.space.low
        if records.ndim == 3:
            # Differences lie between −span and span; the first has nothing before it and is 0.
            blurred = F.pad(blurred[..., 1:] - blurred[..., :-1], (1, 0))
            low, span = -span, 2 * span
        scaled = (blurred - low) / span * (LEVELS - 1)
        rounded: Tensor = self.levels(scaled)
        return low + span * rounded / (LEVELS - 1)


def blur(records: Tensor) -> Tensor:
    """A Gaussian of five points along every axis but the channels'; fixed, as in the released code."""
    offsets = torch.arange(BLUR_WIDTH, device=records.device) - BLUR_WIDTH // 2
    weights = torch.exp(-offsets.square() / (2 * BLUR_DEVIATION**2))
    weights = weights / weights.sum()
    for axis in range(2, records.ndim):
        lines = records.movedim(axis, -1)
        padded = F.pad(lines.reshape(-1, 1, lines.shape[-1]), (BLUR_WIDTH // 2, BLUR_WIDTH // 2), mode="replicate")
        records = F.conv1d(padded, weights.view(1, 1, -1)).view(lines.shape).movedim(-1, axis)
    return records


class Bdq(AdversarialMethod[BdqConfig]):
    """Σ_U CE_U − α Σ_S H(p(S|x'))."""

    summary: ClassVar[str] = "BDQ: a generator that keeps the task and leaves its adversary unsure"
    config_type: ClassVar[type[BdqConfig]] = BdqConfig

    def generator(self, shape: Shape, config: BdqConfig) -> Generator:
        return common_generator(shape) if config.encoder == "generator" else BlurDifferenceQuantise(shape)

    def loss(self, move: Move, config: BdqConfig) -> dict[str, Tensor]:
        unsure = {name: uncertainty(logits) for name, logits in move.private.items()}
        return {"useful": total(move.useful_losses()), "private": -config.uncertainty * total(unsure)}


METHOD = Bdq()
