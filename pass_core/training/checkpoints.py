"""Stopping and resuming a training: all that its next epoch depends on, as named tensors and back."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pass_core.training.networks import below, with_prefix


class Checkpoints:
    """Storage for the state of one training; losing it only costs time. This one saves nothing."""

    def load(self) -> Mapping[str, Tensor] | None:
        """The last saved state; None to start from the beginning."""
        return None

    def offer(self, state: Mapping[str, Tensor]) -> None:
        """Called with the state after each epoch, to save it or not; training continues in the same tensors."""


@dataclass(slots=True, kw_only=True)
class TrainingState:
    """What training changes. The length of the curves is the number of finished epochs; the learning rate follows from it."""

    learnt: Mapping[str, Tensor]  # trained tensors and those that accompany them (batch norm's statistics)
    optimiser: torch.optim.Optimizer
    generator: torch.Generator
    curves: dict[str, list[float]] = field(default_factory=dict)
    best: dict[str, Tensor] = field(default_factory=dict)  # a copy of `learnt` from the best epoch, with early stopping

    @property
    def epochs(self) -> int:
        """Number of finished epochs."""
        return len(self.curves.get("total", ()))

    def add(self, terms: Mapping[str, float]) -> None:
        """Appends a finished epoch; all epochs have the same terms."""
        for name, value in terms.items():
            self.curves.setdefault(name, []).append(value)

    def terms(self, epoch: int) -> dict[str, float]:
        """The terms of an epoch, counted from 1."""
        return {name: values[epoch - 1] for name, values in self.curves.items()}

    def take(self, weights: Mapping[str, Tensor]) -> None:
        """Copies these weights into `learnt`."""
        with torch.no_grad():
            for name, value in weights.items():
                self.learnt[name].copy_(value)

    def tensors(self) -> dict[str, Tensor]:
        """The whole state, without copies."""
        states = self.optimiser.state_dict()["state"].items()
        moments = {f"optimiser.{k}.{name}": value for k, state in states for name, value in state.items()}
        return (
            with_prefix("learnt", {name: value.detach() for name, value in self.learnt.items()})
            | with_prefix("best", self.best)
            | moments
            | {f"curve.{k}.{name}": torch.tensor(self.curves[name], dtype=torch.float64) for k, name in enumerate(self.curves)}
            | {"generator": self.generator.get_state(), "epochs": torch.tensor(self.epochs)}
        )

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restores what `tensors` returned, in place."""
        self.take({name: tensors[f"learnt.{name}"] for name in self.learnt})
        self.best = {name: value.to(self.learnt[name].device) for name, value in below("best", tensors).items()}
        moments: dict[int, dict[str, Tensor]] = {}
        for path, value in below("optimiser", tensors).items():
            k, _, name = path.partition(".")
            moments.setdefault(int(k), {})[name] = value.clone()  # the optimiser changes it in place
        self.optimiser.load_state_dict({"state": moments, "param_groups": self.optimiser.state_dict()["param_groups"]})
        self.generator.set_state(tensors["generator"])
        curves = below("curve", tensors)
        ordered = sorted(curves, key=lambda path: int(path.partition(".")[0]))  # in their first order: files keep none
        self.curves = {path.partition(".")[2]: curves[path].tolist() for path in ordered}
