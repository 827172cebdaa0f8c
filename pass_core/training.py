"""One training loop for everything that learns here: AdamW, cosine schedule, shuffled whole batches."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pass_core.epochs import Epoch, OnEpoch
from pass_core.errors import ConfigError

Device = Literal["cpu", "cuda", "mps", "auto"]


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """How long and how fast to learn; the paper's optimiser is AdamW with a cosine schedule to zero."""

    epochs: int
    batch_size: int  # part of the objective, not only of speed: a larger batch keeps more general features
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: expected at least 1, found {getattr(self, name)}")
        if self.batch_size < 2:
            raise ConfigError("batch_size: batch normalisation needs at least 2 records, found 1")
        if not 0 < self.learning_rate < 1:
            raise ConfigError(f"learning_rate: expected between 0 and 1, found {self.learning_rate}")
        if self.weight_decay < 0:
            raise ConfigError(f"weight_decay: expected 0 or more, found {self.weight_decay}")


BatchLoss = Callable[[Tensor, int], Mapping[str, Tensor]]


def resolve_device(device: Device) -> torch.device:
    """The torch device for a setting; `auto` takes CUDA, then MPS, then the CPU."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available[device]:
        raise ConfigError(f"compute.device: {device} is not available here; use auto or cpu")
    return torch.device(device)


def minimise(
    batch_loss: BatchLoss,
    parameters: Iterable[Tensor],
    n_records: int,
    config: TrainConfig,
    generator: torch.Generator,
    on_epoch: OnEpoch,
) -> None:
    """Trains `parameters` in place on `batch_loss(record indices, epoch)["total"]`; the last incomplete batch is dropped.

    Raises:
        ConfigError: the loss became infinite or not a number.
    """
    batch_size = min(config.batch_size, n_records)
    steps_per_epoch = n_records // batch_size
    optimiser = torch.optim.AdamW(parameters, lr=config.learning_rate, weight_decay=config.weight_decay)
    n_steps = config.epochs * steps_per_epoch
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 0.5 * (1 + math.cos(math.pi * min(step / n_steps, 1.0))))
    for epoch in range(config.epochs):
        order = torch.randperm(n_records, generator=generator)
        sums: dict[str, float] = {}
        for step in range(steps_per_epoch):
            terms = batch_loss(order[step * batch_size : (step + 1) * batch_size], epoch)
            optimiser.zero_grad(set_to_none=True)
            terms["total"].backward()
            optimiser.step()
            schedule.step()
            for name, value in terms.items():
                sums[name] = sums.get(name, 0.0) + float(value.detach())
        means = {name: value / steps_per_epoch for name, value in sums.items()}
        if not math.isfinite(means["total"]):
            raise ConfigError(f"training diverged in epoch {epoch + 1}: the loss is not finite; lower learning_rate")
        on_epoch(Epoch(epoch + 1, config.epochs, means))
