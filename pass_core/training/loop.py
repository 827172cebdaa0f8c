"""One training loop for everything that learns here: AdamW, cosine schedule, shuffled whole batches."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pass_core.checks import Checked, check_range, ranged
from pass_core.errors import ConfigError
from pass_core.training.checkpoints import TrainingState
from pass_core.training.context import TrainingContext
from pass_core.training.epochs import Epoch
from pass_core.training.parallel import World


@dataclass(frozen=True, slots=True)
class OptimiserConfig(Checked):
    """How long and how fast to learn; as in the paper, AdamW with a cosine schedule to zero."""

    epochs: int
    batch_size: int
    learning_rate: float = 1e-3
    weight_decay: float = ranged(1e-4, at_least=0)

    def __post_init__(self) -> None:
        Checked.__post_init__(self)  # `super()` does not know a class with slots
        check_range(self, "epochs", at_least=1)
        if self.batch_size < 2:
            raise ConfigError(f"batch_size: expected at least 2 (batch normalisation needs them), found {self.batch_size}")
        if not 0 < self.learning_rate < 1:
            raise ConfigError(f"learning_rate: expected between 0 and 1, found {self.learning_rate}")


@dataclass(frozen=True, slots=True)
class TrainConfig(OptimiserConfig):
    """How a protector learns: also from which records, and when it stops."""

    epochs: int = 20
    batch_size: int = 256  # part of the objective, not only of speed: a larger batch keeps more general features
    # of the training records, in whole blocks, that protector and pool come from; attackers have them all
    share: float = ranged(1.0, above=0, at_most=1)
    validation_share: float = ranged(0.1, at_least=0, at_most=0.5)  # of those, held out to monitor training; never test records
    # epochs without a better `held_out_total` after which to stop; null: all epochs, as in the paper
    patience: int | None = ranged(None, at_least=1)
    # the encoder in bfloat16, PASS's matrix products of embeddings and donors faster; embeddings, sums and softmax stay float32
    amp: bool = False

    def __post_init__(self) -> None:
        OptimiserConfig.__post_init__(self)  # `super()` does not know a class with slots
        if self.patience is not None and self.validation_share == 0:
            raise ConfigError("patience: expected held-out records, found validation_share 0; raise it, or set patience to null")


BatchLoss = Callable[[Tensor, int], Mapping[str, Tensor]]


@dataclass(frozen=True, slots=True)
class Validation:
    """Figures of held-out records after each epoch, and how many epochs to wait for a smaller `watched` one."""

    figures: Callable[[], Mapping[str, float]]
    watched: str
    patience: int | None = None


def check_batch(batch_size: int, processes: int) -> None:
    """Raises ConfigError when a batch cannot be divided equally among the processes that train together."""
    if batch_size % processes:
        raise ConfigError(f"batch_size: expected a multiple of compute.processes ({processes}), found {batch_size}")


def minimise(
    batch_loss: BatchLoss,
    learnt: Mapping[str, Tensor],
    n_records: int,
    config: OptimiserConfig,
    *,
    generator: torch.Generator,
    run: TrainingContext,
    validation: Validation | None = None,
) -> None:
    """Changes `learnt` in place to minimise `batch_loss(record indices, epoch)["total"]`; the last incomplete batch is dropped.

    `learnt` is a module's `state_dict(keep_vars=True)` and whatever else is learnt: what requires a gradient is trained, the
    rest is only saved in checkpoints. A run that resumes from a checkpoint reports its earlier epochs again and ends with the
    same bits. With early stopping (`Validation.patience`), the best epoch's weights remain.

    With several processes, `batch_loss` receives this one's part of a batch and returns the loss of the whole (`World.mean`).
    A loss that is infinite or not a number is a ConfigError.
    """
    world = run.world
    check_batch(config.batch_size, world.processes)
    batch_size = min(config.batch_size, n_records // world.processes * world.processes)
    steps_per_epoch = n_records // batch_size
    n_steps = config.epochs * steps_per_epoch
    trained = [tensor for tensor in learnt.values() if tensor.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=config.learning_rate, weight_decay=config.weight_decay)
    state = TrainingState(learnt=learnt, optimiser=optimiser, generator=generator)
    if (kept := run.checkpoints.load()) is not None:
        state.restore(kept)

    def report(number: int) -> None:
        last = number == state.epochs and _out_of_patience(state, validation)
        run.on_epoch(Epoch(number, number if last else config.epochs, state.terms(number)))

    for number in range(1, state.epochs + 1):
        report(number)
    while state.epochs < config.epochs and not _out_of_patience(state, validation):
        epoch = state.epochs
        order = torch.randperm(n_records, generator=generator)
        sums: dict[str, float] = {}
        for step in range(steps_per_epoch):
            share = (epoch * steps_per_epoch + step) / n_steps
            optimiser.param_groups[0]["lr"] = config.learning_rate * (0.5 * (1 + math.cos(math.pi * share)))
            terms = batch_loss(world.part(order[step * batch_size : (step + 1) * batch_size]), epoch)
            optimiser.zero_grad(set_to_none=True)
            terms["total"].backward()
            world.add_gradients(trained)
            optimiser.step()
            for name, value in terms.items():
                sums[name] = sums.get(name, 0.0) + float(value.detach())
        means = {name: value / steps_per_epoch for name, value in sums.items()}
        if not math.isfinite(means["total"]):
            raise ConfigError(f"training: expected a finite loss, found another in epoch {epoch + 1}; lower learning_rate")
        state.add(means | _agreed(validation.figures(), world) if validation else means)
        if validation and validation.patience and best_epoch(state.curves[validation.watched]) == state.epochs:
            state.best = {name: value.detach().clone() for name, value in learnt.items()}
        report(state.epochs)
        run.checkpoints.offer(state.tensors())
    state.take(state.best)


def fit_heads(
    classifier: nn.Module,
    features: Tensor,
    targets: Sequence[tuple[Tensor, int]],
    config: TrainConfig,
    *,
    generator: torch.Generator,
    run: TrainingContext,
) -> None:
    """Trains a classifier whose outputs are the concatenated logits of several classifications.

    `targets` are the labels of each classification and its number of classes, in the order of the outputs.
    """
    widths = [width for _, width in targets]

    def batch_loss(rows: Tensor, epoch: int) -> dict[str, Tensor]:  # noqa: ARG001 (the data are the same every epoch)
        with encoder_precision(config, features.device):
            logits = classifier(features[rows])
        heads = logits.float().split(widths, dim=1)
        losses = [F.cross_entropy(head, classes[rows]) for head, (classes, _) in zip(heads, targets, strict=True)]
        return {"total": run.world.mean(torch.stack(losses).sum())}

    classifier.train()
    minimise(batch_loss, classifier.state_dict(keep_vars=True), len(features), config, generator=generator, run=run)
    classifier.eval()


def _agreed(figures: Mapping[str, float], world: World) -> dict[str, float]:
    """The same figures in every process, to the last bit: all must stop at the same epoch."""
    means = world.mean(torch.tensor(list(figures.values()), dtype=torch.float64))
    return dict(zip(figures, means.tolist(), strict=True))


def best_epoch(watched: Sequence[float]) -> int:
    """The number, from 1, of the first epoch with the smallest figure."""
    return watched.index(min(watched)) + 1


def _out_of_patience(state: TrainingState, validation: Validation | None) -> bool:
    """Depends on the curves alone, so that a resumed run stops where it would have stopped."""
    if validation is None or validation.patience is None or not state.epochs:
        return False
    return state.epochs - best_epoch(state.curves[validation.watched]) >= validation.patience


def encoder_precision(config: TrainConfig, device: torch.device) -> torch.autocast:
    """The context of a network's forward pass; convert its output back to float32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=config.amp)


@contextmanager
def fast_products(enabled: bool) -> Iterator[None]:
    """Within, products of float32 matrices may round their inputs, never their sums, where the processor is faster for it.

    With AMX they are rounded to bfloat16, on CUDA to TF32. Without, torch takes oneDNN's float32 product in place of MKL's, which
    is slow on AMD processors.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium" if enabled else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
