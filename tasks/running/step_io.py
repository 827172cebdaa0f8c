"""What a step is handed and what it gives back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from pass_core.channel.draws import experiment_key
from pass_core.randomness import stream
from pass_core.training.epochs import Epoch


@dataclass(frozen=True, slots=True)
class RunKey:
    """What a step works on: a data set and, for the later steps, a method."""

    dataset: str
    method: str | None = None

    def __str__(self) -> str:
        return self.dataset if self.method is None else f"{self.dataset}/{self.method}"


class Reporter(Protocol):
    """Is told how far a piece of work is."""

    def __call__(self, work: str, done: int, total: int, note: str = "") -> None:
        """`done` of `total` units of `work` are finished; `note` is a short figure to show beside it."""


@dataclass(frozen=True, slots=True)
class StepIO:
    """All that a step sees of the outside: where to read, where to write, its random streams, whom to tell."""

    key: RunKey
    inputs: Mapping[str, Path]
    outputs: Mapping[str, Path]  # in staging; published when the step has succeeded
    data_docs: Path
    cache: Path  # what a step may leave to find again; losing it costs time only
    seed: int
    labels: tuple[str, ...]
    progress: Reporter

    def rng(self, *labels: str) -> np.random.Generator:
        """A random stream of this step's own, named by `labels`."""
        return stream(self.seed, *self.labels, *labels)

    def dataset_rng(self, *labels: str) -> np.random.Generator:
        """A random stream that this step shares over all methods: a control is the same whatever it is compared with."""
        return stream(self.seed, self.labels[0], self.key.dataset, *labels)

    def draw_key(self) -> bytes:
        """The key of the released draws: derived from the experiment's seed, so what it releases is not for release."""
        return experiment_key(self.seed)


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step counted and measured. `epochs` and `verdict` are for those that train or audit.

    `spent` are files in the cache that nobody needs once the step has succeeded.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    epochs: tuple[Epoch, ...] = ()
    verdict: str | None = None
    spent: tuple[Path, ...] = ()
