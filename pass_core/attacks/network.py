"""The paper's probing attack: a medium network trained on fresh draws every epoch, from scratch or from originals' weights."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pass_core.attacks.base import Attack, AttackTask
from pass_core.data import DoubleArray, FloatArray, IntArray, Rng
from pass_core.randomness import torch_generator
from pass_core.training.context import TrainingContext
from pass_core.training.epochs import OnEpoch
from pass_core.training.loop import OptimiserConfig, minimise
from pass_core.training.networks import NetworkKind, Widths, build_network

Start = Literal["scratch", "originals"]


@dataclass(frozen=True, slots=True)
class NetworkConfig(OptimiserConfig):
    """The attacker's own training; the network is the paper's classifier for the shape of the records.

    `start: originals` trains on originals first, for the same number of epochs, and continues with released records.
    """

    epochs: int = 8
    batch_size: int = 256
    network: NetworkKind = "auto"
    start: Start = "scratch"


@dataclass(frozen=True)
class NetworkAdversary:
    """A trained classifier."""

    network: nn.Module

    def probabilities(self, records: FloatArray) -> DoubleArray:
        self.network.eval()
        writable = torch.from_numpy(np.require(records, requirements="W"))  # a pool's are read-only, which torch warns about
        with torch.inference_mode():
            parts = [torch.softmax(self.network(part), dim=1) for part in writable.split(4096)]
        return torch.cat(parts).double().numpy()


class NetworkAttack(Attack):
    """A classifier of the paper's size."""

    summary: ClassVar[str] = "the paper's probing attack: a medium network, fresh draws every epoch"
    config_type: ClassVar[type[NetworkConfig]] = NetworkConfig
    widths: ClassVar[Widths] = Widths(hidden=(512, 256))

    def learn(self, task: AttackTask, config: NetworkConfig, rng: Rng, on_epoch: OnEpoch) -> NetworkAdversary:
        generator = torch_generator(rng)
        shape = tuple(task.released_train(0).shape[1:])
        network = build_network(config.network, shape, task.n_classes, generator, self.widths)
        phases = [task.released_train]
        if config.start == "originals" and task.original_train is not None:
            originals = task.original_train
            phases.insert(0, lambda _: originals)
        for number, records in enumerate(phases):
            report = _as_part(on_epoch, number, len(phases))
            train_classifier(network, records, task.train_labels, config, generator=generator, on_epoch=report)
        return NetworkAdversary(network)


def _as_part(on_epoch: OnEpoch, number: int, parts: int) -> OnEpoch:
    """Reports the epochs of one of several consecutive trainings as epochs of the whole."""
    return lambda epoch: on_epoch(replace(epoch, number=epoch.number + number * epoch.total, total=epoch.total * parts))


def train_classifier(
    network: nn.Module,
    records: Callable[[int], FloatArray],
    train_labels: IntArray,
    config: OptimiserConfig,
    *,
    generator: torch.Generator,
    on_epoch: OnEpoch,
) -> None:
    """Trains in place, on `records(epoch)`."""
    labels = torch.from_numpy(train_labels)
    drawn, features = -1, torch.empty(0)

    def batch_loss(rows: Tensor, epoch: int) -> dict[str, Tensor]:
        nonlocal drawn, features
        if epoch != drawn:
            drawn, features = epoch, torch.from_numpy(records(epoch))
        return {"total": F.cross_entropy(network(features[rows]), labels[rows])}

    learnt = network.train().state_dict(keep_vars=True)
    minimise(batch_loss, learnt, len(labels), config, generator=generator, run=TrainingContext(on_epoch))


ATTACK = NetworkAttack()
