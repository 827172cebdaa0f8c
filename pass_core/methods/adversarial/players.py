"""The networks of adversarial protection: a generator, the classifiers it is trained against, and the fitted result."""

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pass_core.attacks.network import NetworkAdversary
from pass_core.checks import Checked, ranged
from pass_core.data import FloatArray, Rng
from pass_core.methods.adversarial.generators import Generator, RecordSpace
from pass_core.methods.base import RecordMaker
from pass_core.training.networks import with_prefix

Networks = Mapping[str, nn.Module]  # attribute -> its network


@dataclass(frozen=True, slots=True)
class GameConfig(Checked):
    """Settings of all adversarial methods; section `train` controls how long and how fast they learn."""

    # of classifiers on originals; null: half of train.epochs, at most the usual 100
    pretraining_epochs: int | None = ranged(None, at_least=0)
    identity_epochs: int = ranged(1, at_least=0)  # in which the generator first learns to reconstruct records
    # steps of all classifiers, each on its own batch, per step of the generator; 5 in long trainings
    adversary_steps: int = ranged(1, at_least=1)

    def classifier_epochs(self, training_epochs: int) -> int:
        """How long classifiers learn from originals."""
        return min(100, math.ceil(training_epochs / 2)) if self.pretraining_epochs is None else self.pretraining_epochs


class Members(nn.Module):
    """One or several classifiers of one attribute; together they give the mean of their probabilities."""

    def __init__(self, members: list[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def logits(self, records: Tensor) -> Tensor:
        """(members, batch, classes)."""
        return torch.stack([member(records) for member in self.members])

    def forward(self, records: Tensor) -> Tensor:
        return torch.logsumexp(F.log_softmax(self.logits(records), dim=2), dim=0) - math.log(len(self.members))


def members_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy of (members, batch, classes)."""
    return F.cross_entropy(logits.flatten(0, 1), labels.repeat(len(logits)))


class Players(nn.Module):
    """All networks of a game."""

    def __init__(
        self, generator: Generator, private: Mapping[str, Members], useful: Networks, ally: nn.Module, opponent: nn.Module
    ) -> None:
        super().__init__()
        self.private_names, self.useful_names = tuple(private), tuple(useful)
        self.generator = generator
        self.private = nn.ModuleList(private.values())  # by position: an attribute's name may contain what a module's may not
        self.useful = nn.ModuleList(useful.values())
        self.ally, self.opponent = ally, opponent  # learn with the generator, and against it beside the classifiers

    def adversaries(self) -> dict[str, Members]:
        """Private attribute -> its classifiers."""
        return dict(zip(self.private_names, self.private, strict=True))  # type: ignore[arg-type]

    def helpers(self) -> dict[str, nn.Module]:
        """Useful attribute -> its classifier."""
        return dict(zip(self.useful_names, self.useful, strict=True))

    def learn_space(self, records: Tensor) -> None:
        """Gives all networks the constants of these records."""
        self.generator.space.learn(records)
        for module in self.modules():
            if isinstance(module, RecordSpace) and module is not self.generator.space:
                module.load_state_dict(self.generator.space.state_dict())

    @contextmanager
    def against_the_generator(self) -> Iterator[None]:
        """Within this context, nothing has a gradient with respect to the generator's opponents."""
        held = [p for part in (self.private, self.useful, self.opponent) for p in part.parameters() if p.requires_grad]
        for parameter in held:
            parameter.requires_grad_(False)
        try:
            yield
        finally:
            for parameter in held:
                parameter.requires_grad_(True)


@dataclass(frozen=True, kw_only=True)
class Move:
    """One batch of the game: original and released records, and the classifiers' output on the released ones."""

    players: Players
    original: Tensor
    released: Tensor
    labels: Mapping[str, Tensor]
    random: torch.Generator
    epoch: int
    private: Mapping[str, Tensor] = field(init=False)  # private attribute -> (members, batch, classes) logits on released records
    useful: Mapping[str, Tensor] = field(init=False)  # useful attribute -> (batch, classes) logits on released records

    def __post_init__(self) -> None:
        # now and in this order, on which the last bits of the gradients depend
        private = {name: members.logits(self.released) for name, members in self.players.adversaries().items()}
        useful = {name: network(self.released) for name, network in self.players.helpers().items()}
        object.__setattr__(self, "private", private)
        object.__setattr__(self, "useful", useful)

    def private_losses(self) -> dict[str, Tensor]:
        """Private attribute -> cross-entropy."""
        return {name: members_loss(logits, self.labels[name]) for name, logits in self.private.items()}

    def useful_losses(self) -> dict[str, Tensor]:
        """Useful attribute -> cross-entropy."""
        return {name: F.cross_entropy(logits, self.labels[name]) for name, logits in self.useful.items()}


@dataclass(frozen=True, kw_only=True)
class Game:
    """The players, and the records they learn from."""

    players: Players
    features: Tensor
    labels: Mapping[str, Tensor]
    random: torch.Generator

    def move(self, rows: Tensor, epoch: int, released: Tensor) -> Move:
        """The batch of these records, given what is released of them."""
        own, original = {name: values[rows] for name, values in self.labels.items()}, self.features[rows]
        return Move(players=self.players, original=original, released=released, labels=own, random=self.random, epoch=epoch)


def total(terms: Mapping[str, Tensor]) -> Tensor:
    """The sum over attributes."""
    return torch.stack(list(terms.values())).sum()


GeneratorLoss = Callable[[Move], dict[str, Tensor]]  # weighted terms, whose sum the generator minimises


@dataclass(frozen=True)
class FittedGenerator(RecordMaker):
    """A trained generator and the classifiers it was trained against."""

    adversaries: Mapping[str, NetworkAdversary]  # private attribute -> its classifiers at the end of the game

    @classmethod
    def of(cls, players: Players) -> "FittedGenerator":
        """The result of a game; adversaries run on the CPU, where an audit's records are."""
        members = {name: network.cpu().eval() for name, network in players.adversaries().items()}
        learnt = with_prefix("generator", players.generator.state_dict())
        for k, network in enumerate(members.values()):
            learnt |= with_prefix(f"private.{k}", network.state_dict())
        own = {name: NetworkAdversary(network) for name, network in members.items()}
        return cls(functools.partial(release, players.generator.eval()), learnt, own)


@torch.inference_mode()
def release(generator: Generator, records: FloatArray, rng: Rng) -> FloatArray:
    """Records that the generator makes of these."""
    device = generator.space.mean.device
    noise = torch.from_numpy(rng.standard_normal((len(records), *generator.noise_shape), dtype=np.float32))
    released: FloatArray = generator(torch.from_numpy(np.array(records)).to(device), noise.to(device)).cpu().numpy()
    return released
