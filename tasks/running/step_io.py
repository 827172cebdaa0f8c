"""A step's input and output."""

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
    """A data set and, for the later steps, a method."""

    dataset: str
    method: str | None = None

    def __str__(self) -> str:
        return self.dataset if self.method is None else f"{self.dataset}/{self.method}"


class Reporter(Protocol):
    """Receives the progress of a piece of work."""

    def __call__(self, work: str, done: int, total: int, note: str = "") -> None:
        """`done` of `total` units of `work` are finished; `note` is a short figure to show beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepIO:
    """All that a step sees of the outside: paths to read and write, random streams, progress."""

    key: RunKey
    inputs: Mapping[str, Path]
    outputs: Mapping[str, Path]  # in staging; published when the step has succeeded
    data_docs: Path
    cache: Path  # what a later run may reuse; losing it only costs time
    seed: int
    labels: tuple[str, ...]
    progress: Reporter

    def rng(self, *labels: str) -> np.random.Generator:
        """A random stream of this step's own, named by `labels`."""
        return stream(self.seed, *self.labels, *labels)

    def dataset_rng(self, *labels: str) -> np.random.Generator:
        """A random stream that all methods share: a control is the same for each of them."""
        return stream(self.seed, self.labels[0], self.key.dataset, *labels)

    def draw_key(self) -> bytes:
        """The draw key of an experiment: derived from its seed, and so never for publishing."""
        return experiment_key(self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What a step counted and measured."""

    counts: Mapping[str, int] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    epochs: tuple[Epoch, ...] = ()  # of a step that trains
    verdict: str | None = None  # of a step that audits
    notes: tuple[str, ...] = ()  # sentences for the person who reads the report
    spent: tuple[Path, ...] = ()  # cached files that are not needed once the step has succeeded
