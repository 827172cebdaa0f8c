"""A training stopped in the middle and gone on with: all that its next epoch depends on, as named tensors and back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor


class Checkpoints(Protocol):
    """Keeps the state of one training; losing it costs time only."""

    def load(self) -> Mapping[str, Tensor] | None:
        """What was kept last; None to start from the beginning."""

    def offer(self, state: Mapping[str, Tensor]) -> None:
        """Is shown the state after every epoch, to keep or not; training goes on in the same tensors."""


class NoCheckpoints:
    """Keeps nothing."""

    def load(self) -> None:
        return None

    def offer(self, state: Mapping[str, Tensor]) -> None:
        """Does nothing."""


@dataclass(slots=True)
class TrainingState:
    """What training changes. How many epochs are done is the length of the curves; the learning rate follows from it."""

    learnt: Mapping[str, Tensor]  # trained tensors, and those that go along with them (batch norm's statistics)
    optimiser: torch.optim.Optimizer
    generator: torch.Generator
    curves: dict[str, list[float]] = field(default_factory=dict)
    best: dict[str, Tensor] = field(default_factory=dict)  # what was learnt by the best epoch, where that is asked for

    @property
    def epochs(self) -> int:
        """Number of epochs done."""
        return len(self.curves.get("total", ()))

    def add(self, terms: Mapping[str, float]) -> None:
        """Notes a finished epoch; every epoch has the same terms."""
        for name, value in terms.items():
            self.curves.setdefault(name, []).append(value)

    def terms(self, epoch: int) -> dict[str, float]:
        """What the epoch of that number told, from 1."""
        return {name: values[epoch - 1] for name, values in self.curves.items()}

    def keep_as_best(self) -> None:
        """Copies what is learnt now."""
        self.best = {name: value.detach().clone() for name, value in self.learnt.items()}

    def take_best(self) -> None:
        """Goes back to what was kept as best."""
        with torch.no_grad():
            for name, value in self.best.items():
                self.learnt[name].copy_(value)

    def tensors(self) -> dict[str, Tensor]:
        """Everything, without copying."""
        moments = {
            f"optimiser.{k}.{name}": value
            for k, state in self.optimiser.state_dict()["state"].items()
            for name, value in state.items()
        }
        return (
            {f"learnt.{name}": value.detach() for name, value in self.learnt.items()}
            | {f"best.{name}": value for name, value in self.best.items()}
            | moments
            | {f"curve.{k}.{name}": torch.tensor(self.curves[name], dtype=torch.float64) for k, name in enumerate(self.curves)}
            | {"generator": self.generator.get_state(), "epochs": torch.tensor(self.epochs)}
        )

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Goes back to what `tensors` gave, in place."""
        with torch.no_grad():
            for name, value in self.learnt.items():
                value.copy_(tensors[f"learnt.{name}"])
        self.best = {name: value.to(self.learnt[name].device) for name, value in _below("best", tensors).items()}
        moments: dict[int, dict[str, Tensor]] = {}
        for path, value in _below("optimiser", tensors).items():
            k, _, name = path.partition(".")
            moments.setdefault(int(k), {})[name] = value.clone()  # the optimiser changes it in place
        self.optimiser.load_state_dict({"state": moments, "param_groups": self.optimiser.state_dict()["param_groups"]})
        self.generator.set_state(tensors["generator"])
        curves = _below("curve", tensors)
        ordered = sorted(curves, key=lambda path: int(path.partition(".")[0]))  # as they were told: files keep no order
        self.curves = {path.partition(".")[2]: curves[path].tolist() for path in ordered}


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose name starts with `prefix.`, without it."""
    return {name.removeprefix(f"{prefix}."): value for name, value in tensors.items() if name.startswith(f"{prefix}.")}
