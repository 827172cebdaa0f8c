"""MaSS (Chen et al. 2024): bounds on what adversaries may and useful classifiers must know, a contrastive loss for the rest."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pass_core.channel.entanglement import joint_entropy
from pass_core.checks import ranged
from pass_core.data import Attribute, Records, with_role
from pass_core.errors import MethodError
from pass_core.methods.adversarial.generators import Classifier
from pass_core.methods.adversarial.players import GameConfig, GeneratorLoss, Move, Players, total
from pass_core.methods.adversarial.training import AdversarialMethod, Shape
from pass_core.methods.base import ReleaseContext
from pass_core.training.networks import network_for

EMBEDDING = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class MassConfig(GameConfig):
    """The bounds, in nats, and the contrastive loss."""

    private_information: float = ranged(0.0, at_least=0)  # m: what adversaries may learn about each private attribute
    useful_information: float | None = None  # n: what must stay of each useful one; null: as much as possible, less `slack`
    slack: float = ranged(0.003, at_least=0)
    contrast_weight: float = ranged(1.0, at_least=0)
    contrast_temperature: float = ranged(0.07, above=0)


def info_nce(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """InfoNCE of two views, (batch, dim) each, of the same records; negatives are the other view's, both directions averaged."""
    similar = F.normalize(first, dim=1) @ F.normalize(second, dim=1).T / temperature  # (batch, batch)
    own = torch.arange(len(first), device=first.device)
    return (F.cross_entropy(similar, own) + F.cross_entropy(similar.T, own)) / 2


def beyond(value: Tensor) -> Tensor:
    """v² + |v| of what lies beyond a bound."""
    return value.square() + value.abs()


class Mass(AdversarialMethod[MassConfig]):
    """Σ_S v² + |v| + Σ_U v² + |v| + InfoNCE(x, x')."""

    summary: ClassVar[str] = "MaSS: a generator within bounds on what adversaries and useful classifiers know"
    config_type: ClassVar[type[MassConfig]] = MassConfig

    def ally(self, shape: Shape, config: MassConfig) -> nn.Module:
        return Classifier(shape, network_for("auto", shape, EMBEDDING))

    def pretraining_loss(self, players: Players, records: Tensor, config: MassConfig) -> dict[str, Tensor]:
        embedded = players.ally(records)
        return {"contrast": info_nce(embedded, embedded, config.contrast_temperature)}

    def objective(self, data: Records, context: ReleaseContext, config: MassConfig) -> GeneratorLoss:
        """Raises MethodError when the bounds exclude each other on these records."""
        private, useful = with_role(context.attributes, "private"), with_role(context.attributes, "useful")
        uncertainty = {a.name: joint_entropy([data.labels[a.name]]) for a in private + useful}
        wanted = {a.name: _wanted(data, a, private, config) for a in useful}

        def terms(move: Move) -> dict[str, Tensor]:
            # v = min(CE_S − H(S) + m, 0): only while the adversary knows more than m.
            known = {name: loss - uncertainty[name] + config.private_information for name, loss in move.private_losses().items()}
            # v = max(CE_U − H(U) + n, 0): only while the useful classifier knows less than n.
            lost = {name: loss - uncertainty[name] + wanted[name] for name, loss in move.useful_losses().items()}
            contrast = info_nce(move.players.ally(move.original), move.players.ally(move.released), config.contrast_temperature)
            return {
                "private": total({name: beyond(value.clamp(max=0)) for name, value in known.items()}),
                "useful": total({name: beyond(value.clamp(min=0)) for name, value in lost.items()}),
                "contrast": config.contrast_weight * contrast,
            }

        return terms


def _wanted(data: Records, useful: Attribute, private: tuple[Attribute, ...], config: MassConfig) -> float:
    """n: with at most m nats about any private attribute, at most H(U|S) + m nats can stay of a useful one."""
    labels = data.labels[useful.name]
    most = joint_entropy([labels])
    for attribute in private:
        other = data.labels[attribute.name]
        conditional = joint_entropy([labels, other]) - joint_entropy([other])
        most = min(most, conditional + config.private_information)
    if config.useful_information is None:
        return max(most - config.slack, 0.0)
    if config.useful_information > most:
        raise MethodError(
            f"useful_information: expected at most {most:.4f} nats, which these records allow for {useful.name!r} under "
            f"private_information, found {config.useful_information}; lower it"
        )
    return config.useful_information


METHOD = Mass()
