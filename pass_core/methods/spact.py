"""SPAct (Dave et al. 2022): keep the task and make two views of a record unlike each other; no private label is used."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pass_core.checks import ranged
from pass_core.data import Attribute, Role
from pass_core.methods.adversarial.generators import Classifier, RecordSpace
from pass_core.methods.adversarial.players import GameConfig, Move, total
from pass_core.methods.adversarial.training import AdversarialMethod, Shape
from pass_core.training.networks import network_for

EMBEDDING = 128
SMALLEST_CROP, JITTER, GREY, FLIPPED, ERASED = 0.6, 0.2, 0.1, 0.5, 0.25  # of images
MASKED, NOISE = 0.25, 0.1  # of vectors and windows: share of entries or time points, deviations


@dataclass(frozen=True, slots=True)
class SpactConfig(GameConfig):
    """How sharply views are distinguished, and the weight of their similarity."""

    contrast_temperature: float = ranged(0.1, above=0)
    contrast_weight: float = ranged(1.0, at_least=0)


class Spact(AdversarialMethod[SpactConfig]):
    """Σ_U CE_U − NT-Xent of two views, each changed first and then passed through the generator."""

    summary: ClassVar[str] = "SPAct: a generator that keeps the task and hides which views are of one record"
    config_type: ClassVar[type[SpactConfig]] = SpactConfig
    needs: ClassVar[tuple[Role, ...]] = ("useful",)

    def opponent(self, shape: Shape, private: tuple[Attribute, ...], config: SpactConfig) -> nn.Module:
        return Classifier(shape, network_for("auto", shape, EMBEDDING))

    def opponents_loss(self, move: Move, config: SpactConfig) -> dict[str, Tensor]:
        with torch.no_grad():
            views = _released_views(move)
        return {"contrast": _likeness(move, views, config)}

    def loss(self, move: Move, config: SpactConfig) -> dict[str, Tensor]:
        likeness = _likeness(move, _released_views(move), config)
        return {"useful": total(move.useful_losses()), "contrast": -config.contrast_weight * likeness}


def nt_xent(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """NT-Xent of two views, (batch, dim) each: negatives are all other vectors of both views."""
    both = F.normalize(torch.cat([first, second]), dim=1)  # (2 batch, dim)
    similar = both @ both.T / temperature
    similar = similar.masked_fill(torch.eye(len(both), dtype=torch.bool, device=both.device), -torch.inf)
    return F.cross_entropy(similar, torch.arange(len(both), device=both.device).roll(len(first)))


def _likeness(move: Move, views: list[Tensor], config: SpactConfig) -> Tensor:
    first, second = map(move.players.opponent, views)
    return nt_xent(first, second, config.contrast_temperature)


def _released_views(move: Move) -> list[Tensor]:
    network = move.players.generator
    return [network.make(changed_view(move.original, network.space, move.random), move.random) for _ in range(2)]


def changed_view(records: Tensor, space: RecordSpace, random: torch.Generator) -> Tensor:
    """The records, each changed at random in ways that leave it recognisable."""
    if records.ndim == 4:
        return _changed_image(records, space, random)
    kept = torch.rand(len(records), *(1 for _ in records.shape[1:-1]), records.shape[-1], generator=random) >= MASKED
    noise = NOISE * torch.randn(records.shape, generator=random)
    return space.record(space.standard(records) * kept.to(records.device) + noise.to(records.device))


def _changed_image(images: Tensor, space: RecordSpace, random: torch.Generator) -> Tensor:
    """Crop, flip, brightness and contrast, sometimes grey, sometimes a part erased."""
    n, device = len(images), images.device

    def uniform(low: float, high: float) -> Tensor:
        return (low + (high - low) * torch.rand(n, generator=random)).to(device)

    side = uniform(SMALLEST_CROP**0.5, 1.0)  # a crop of 60 to 100 % of the area
    flip = torch.where(uniform(0, 1) < FLIPPED, -1.0, 1.0)
    frames = torch.zeros(n, 2, 3, device=device)
    frames[:, 0, 0], frames[:, 1, 1] = side * flip, side
    frames[:, 0, 2], frames[:, 1, 2] = (1 - side) * uniform(-1, 1), (1 - side) * uniform(-1, 1)
    grid = F.affine_grid(frames, list(images.shape), align_corners=False)
    cropped = F.grid_sample(images, grid, padding_mode="border", align_corners=False)
    middle = cropped.mean(dim=(1, 2, 3), keepdim=True)
    contrast, brightness = uniform(1 - JITTER, 1 + JITTER), uniform(-JITTER, JITTER) * (space.high - space.low)
    changed = middle + contrast.view(-1, 1, 1, 1) * (cropped - middle) + brightness.view(-1, 1, 1, 1)
    grey = changed.mean(dim=1, keepdim=True).expand_as(changed)
    changed = torch.where((uniform(0, 1) < GREY).view(-1, 1, 1, 1), grey, changed)
    inside = (grid - torch.stack([uniform(-1, 1), uniform(-1, 1)], dim=1)[:, None, None]).abs().amax(dim=3) < 0.25
    erased = inside & (uniform(0, 1) < ERASED).view(-1, 1, 1)
    changed = torch.where(erased[:, None], (space.low + space.high) / 2, changed)
    return torch.minimum(torch.maximum(changed, space.low), space.high)


METHOD = Spact()
