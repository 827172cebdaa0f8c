"""The paper's probing attack: a medium network trained on fresh draws every epoch, from scratch or from originals' weights."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pass_core.attacks.base import AttackTask
from pass_core.data import DoubleArray, FloatArray, IntArray
from pass_core.epochs import OnEpoch
from pass_core.networks import NetworkKind, build_network
from pass_core.randomness import torch_generator
from pass_core.run import Run
from pass_core.training import OptimiserConfig, minimise


@dataclass(frozen=True, slots=True)
class NetworkConfig(OptimiserConfig):
    """The attacker's own training; the network is the paper's classifier for the shape of the records."""

    network: NetworkKind = "auto"


@dataclass(frozen=True)
class NetworkAdversary:
    """A trained classifier."""

    network: nn.Module

    def probabilities(self, records: FloatArray) -> DoubleArray:
        self.network.eval()
        with torch.inference_mode():
            told = [torch.softmax(self.network(part), dim=1) for part in torch.from_numpy(records).split(4096)]
        return torch.cat(told).double().numpy()


class NetworkAttack:
    """A classifier of the paper's size."""

    summary: ClassVar[str] = "the paper's probing attack: a medium network, fresh draws every epoch"
    config_type: ClassVar[type[NetworkConfig]] = NetworkConfig
    needs_pool: ClassVar[bool] = False

    def learn(self, task: AttackTask, config: NetworkConfig, rng: np.random.Generator, on_epoch: OnEpoch) -> NetworkAdversary:
        generator = torch_generator(rng)
        shape = tuple(task.released_train(0).shape[1:])
        network = build_network(config.network, shape, task.n_classes, generator, hidden=(512, 256))
        train_classifier(network, task.released_train, task.train_labels, config, generator, on_epoch)
        return NetworkAdversary(network)


def train_classifier(
    network: nn.Module,
    records: Callable[[int], FloatArray],
    train_labels: IntArray,
    config: OptimiserConfig,
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

    network.train()
    minimise(batch_loss, network.state_dict(keep_vars=True), len(labels), config, generator, Run(on_epoch))


ATTACK = NetworkAttack()
