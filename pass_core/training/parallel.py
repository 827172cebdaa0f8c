"""Several processes that train one model: each takes a part of a batch, and what depends on the whole batch is summed.

The loss is always that of the whole batch. A process computes its gradient with respect to its own records; the sum over
processes is the gradient. The entropy of a part's class means would be another loss: a worse bound, from fewer records.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, distributed, nn
from torch.distributed.nn.functional import all_reduce  # differentiable


@dataclass(frozen=True, slots=True)
class World:
    """One process among those that train together; alone, nothing is exchanged and no bit changes."""

    rank: int = 0
    processes: int = 1

    def part(self, rows: Tensor) -> Tensor:
        """This process's part of a batch; all parts are equally long."""
        length = len(rows) // self.processes
        return rows[self.rank * length : (self.rank + 1) * length]

    def sum(self, value: Tensor) -> Tensor:
        """The sum over processes; its incoming gradient is summed as well."""
        return value if self.processes == 1 else all_reduce(value)

    def mean(self, value: Tensor) -> Tensor:
        """The mean over processes, of a loss of equally long parts: its gradient is that of this process's part."""
        if self.processes == 1:
            return value
        share = value / self.processes
        return share + (self.sum(share.detach()) - share.detach())

    def add_gradients(self, tensors: Iterable[Tensor]) -> None:
        """Replaces each gradient by that of the whole batch."""
        if self.processes > 1:
            for tensor in tensors:
                if tensor.grad is not None:
                    distributed.all_reduce(tensor.grad)


ALONE = World()


class SharedBatchNorm1d(nn.BatchNorm1d):
    """Batch norm by the statistics of the whole batch; its weights have the same names. (Torch's own is for CUDA only.)"""

    def __init__(self, original: nn.BatchNorm1d, world: World) -> None:
        super().__init__(original.num_features, original.eps, original.momentum)
        self.load_state_dict(original.state_dict())
        self._world = world

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return super().forward(x)

        def columns(values: Tensor) -> Tensor:
            """One value per channel, shaped for (batch, channels) or (batch, channels, time)."""
            return values if x.ndim == 2 else values[:, None]

        values = x.float()
        over = (0,) if x.ndim == 2 else (0, 2)
        count = x.numel() // x.shape[1] * self._world.processes
        mean = self._world.sum(values.sum(dim=over)) / count
        centred = values - columns(mean)
        variance = self._world.sum((centred * centred).sum(dim=over)) / count
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
            momentum = 0.1 if self.momentum is None else self.momentum
            self.running_mean.lerp_(mean, momentum)
            self.running_var.lerp_(variance * (count / (count - 1)), momentum)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        return (centred * columns(scale) + columns(self.bias)).to(x.dtype)


def share_statistics(network: nn.Module, world: World) -> nn.Module:
    """The network with batch norm over all processes; itself when there is one."""
    if world.processes > 1:
        for module in list(network.modules()):
            for name, child in list(module.named_children()):
                if isinstance(child, nn.BatchNorm1d):
                    setattr(module, name, SharedBatchNorm1d(child, world))
    return network
