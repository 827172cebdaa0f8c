"""The paper's probing attack: a medium network trained from scratch, on fresh draws every epoch."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pass_core.attacks.base import AttackTask
from pass_core.data import IntArray
from pass_core.epochs import OnEpoch
from pass_core.networks import NetworkKind, build_network
from pass_core.randomness import torch_generator
from pass_core.run import Run
from pass_core.training import OptimiserConfig, minimise


@dataclass(frozen=True, slots=True)
class NetworkConfig(OptimiserConfig):
    """The attacker's own training; the network is the paper's classifier for the shape of the records."""

    network: NetworkKind = "auto"


class NetworkAttack:
    """A classifier of the paper's size."""

    summary: ClassVar[str] = "the paper's probing attack: a medium network, fresh draws every epoch"
    config_type: ClassVar[type[NetworkConfig]] = NetworkConfig

    def predict(self, task: AttackTask, config: NetworkConfig, rng: np.random.Generator, on_epoch: OnEpoch) -> IntArray:
        generator = torch_generator(rng)
        shape = tuple(task.released_test.shape[1:])
        network = build_network(config.network, shape, task.n_classes, generator, hidden=(512, 256))
        labels = torch.from_numpy(task.train_labels)
        drawn, features = -1, torch.empty(0)

        def batch_loss(rows: Tensor, epoch: int) -> dict[str, Tensor]:
            nonlocal drawn, features
            if epoch != drawn:
                drawn, features = epoch, torch.from_numpy(task.released_train(epoch))
            return {"total": F.cross_entropy(network(features[rows]), labels[rows])}

        network.train()
        minimise(batch_loss, network.state_dict(keep_vars=True), len(labels), config, generator, Run(on_epoch))
        network.eval()
        with torch.inference_mode():
            scores = [network(block).argmax(dim=1) for block in torch.from_numpy(task.released_test).split(4096)]
        return torch.cat(scores).numpy().astype(np.int64)


ATTACK = NetworkAttack()
