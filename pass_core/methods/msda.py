"""MSDA (Malekzadeh et al. 2019): keep the task and the record's form, push down the true private class and any confident one."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pass_core.checks import ranged
from pass_core.data import Attribute
from pass_core.methods.adversarial.generators import Autoencoder, Generator, common_generator
from pass_core.methods.adversarial.players import GameConfig, Move, total
from pass_core.methods.adversarial.training import AdversarialMethod, Shape
from pass_core.training.networks import vector_mlp

Encoder = Literal["generator", "autoencoder"]
SMALLEST = 1e-7  # at which probabilities are cut off


@dataclass(frozen=True, slots=True, kw_only=True)
class MsdaConfig(GameConfig):
    """The weights of the four terms, and what makes the records."""

    distortion_weight: float = ranged(0.01, at_least=0)
    private_weight: float = ranged(1.0, at_least=0)
    useful_weight: float = ranged(2.0, at_least=0)
    encoder: Encoder = "generator"  # or autoencoder, whose short vector gets adversaries of its own, as in the paper
    latent: int = ranged(128, at_least=1)  # of the autoencoder


def exposure(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean of −ln(1 − p_true) − ln(1 − max p), from (members, batch, classes) logits."""
    probabilities = F.softmax(logits, dim=2)
    true = probabilities.gather(2, labels.expand(len(logits), -1)[..., None])[..., 0]
    largest = probabilities.amax(dim=2)
    return -((1 - true).clamp_min(SMALLEST).log() + (1 - largest).clamp_min(SMALLEST).log()).mean()


class Msda(AdversarialMethod[MsdaConfig]):
    """0.01 MSE + Σ_S A(x') + Σ_S A(z) + 2 Σ_U CE_U, A = −ln(1 − p_true) − ln(1 − max p); no z with the common generator."""

    summary: ClassVar[str] = "MSDA: a generator that keeps the task and pushes down true and confident private classes"
    config_type: ClassVar[type[MsdaConfig]] = MsdaConfig

    def generator(self, shape: Shape, config: MsdaConfig) -> Generator:
        return common_generator(shape) if config.encoder == "generator" else Autoencoder(shape, config.latent)

    def opponent(self, shape: Shape, private: tuple[Attribute, ...], config: MsdaConfig) -> nn.Module:
        if config.encoder == "generator":
            return nn.Identity()
        return nn.ModuleList([vector_mlp(config.latent, (128, 32), a.n_classes) for a in private])

    def opponents_loss(self, move: Move, config: MsdaConfig) -> dict[str, Tensor]:
        if config.encoder == "generator":
            return {}
        with torch.no_grad():
            latent = _latent(move)
        read = _read(move, latent)
        return {f"latent_{name}": F.cross_entropy(logits, move.labels[name]) for name, logits in read.items()}

    def loss(self, move: Move, config: MsdaConfig) -> dict[str, Tensor]:
        space = move.players.generator.space
        changed = F.mse_loss(space.standard(move.released), space.standard(move.original))
        exposed = [exposure(logits, move.labels[name]) for name, logits in move.private.items()]
        if config.encoder == "autoencoder":
            read = _read(move, _latent(move))
            exposed += [exposure(logits[None], move.labels[name]) for name, logits in read.items()]
        return {
            "distortion": config.distortion_weight * changed,
            "private": config.private_weight * torch.stack(exposed).sum(),
            "useful": config.useful_weight * total(move.useful_losses()),
        }


def _latent(move: Move) -> Tensor:
    network = move.players.generator
    assert isinstance(network, Autoencoder)  # noqa: S101 (built so by the encoder's name)
    return network.encode(move.original)


def _read(move: Move, latent: Tensor) -> dict[str, Tensor]:
    """Private attribute -> logits from the short vector."""
    return {name: network(latent) for name, network in zip(move.private, move.players.opponent.children(), strict=True)}


METHOD = Msda()
