"""Cells: the parts that tables are computed from, each named by everything its result depends on.

A control is a classifier of original records, shared by all cells of its data set and seed. A cell is a protector with one seed:
fitted, released, attacked.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from pass_core.attacks.network import NetworkConfig
from pass_core.channel.pool import PoolConfig
from pass_core.training.loop import TrainConfig
from tasks.paper_tables.measure import AttributeScores, ProbeConfig
from tasks.sections.dataset import Roles
from tasks.storage.code_digest import code_digest
from tasks.storage.files import json_digest, read_json, write_atomically, write_json

OnShare = Callable[[float], None]  # called with the finished share of a cell
FORMAT = 1
LIBRARIES = ("torch", "numpy", "scikit-learn", "scipy")
# An epoch of a protector costs about as many of one attacker; only the estimate of the remaining time depends on it.
PROTECTOR_EPOCH = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSet:
    """Extracted features, named by their bytes."""

    dataset: str
    folder: Path
    digest: str
    train_records: int
    test_records: int
    extractor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """Something computed from features, named by all that it depends on."""

    dataset: str
    features: str  # digest
    seed: int

    @property
    def modules(self) -> tuple[str, ...]:
        """The code that computes it."""
        raise NotImplementedError

    @property
    def digest(self) -> str:
        return json_digest(self.recipe())[:32]

    def recipe(self) -> dict[str, Any]:
        """All that the result depends on."""
        libraries, code = {library: version(library) for library in LIBRARIES}, code_digest(self.modules)
        return {"format": FORMAT, "settings": dataclasses.asdict(self), "code": code, "libraries": libraries}


@dataclass(frozen=True, slots=True, kw_only=True)
class Control(Computed):
    """A classifier of original records."""

    attribute: str
    config: NetworkConfig

    @property
    def effort(self) -> int:
        return self.config.epochs

    @property
    def modules(self) -> tuple[str, ...]:
        return ("tasks.paper_tables.control",)

    def __str__(self) -> str:
        return f"{self.dataset} unprotected {self.attribute}, seed {self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell(Computed):
    """A protector with one seed, and the attack on it."""

    roles: Roles
    method: str
    config: Any  # of the method's config type
    training: TrainConfig
    pool: PoolConfig
    control: NetworkConfig
    attack: ProbeConfig

    @property
    def effort(self) -> int:
        return self.training.epochs * PROTECTOR_EPOCH + len(self.roles.roles()) * self.attack.epochs

    @property
    def modules(self) -> tuple[str, ...]:
        return ("tasks.paper_tables.compute", f"pass_core.methods.{self.method}")

    def controls(self) -> dict[str, Control]:
        """The classifiers of originals that it is compared with."""
        return {
            name: Control(dataset=self.dataset, features=self.features, seed=self.seed, attribute=name, config=self.control)
            for name in self.roles.roles()
        }

    def __str__(self) -> str:
        return f"{self.dataset} {self.method}, seed {self.seed}"


@dataclass(frozen=True, slots=True)
class CellResult:
    """The result of a cell: figures per attribute, or the reason why there are none."""

    attributes: dict[str, AttributeScores]
    curves: dict[str, list[float]]  # term of the loss -> its value per epoch
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Store:
    """The folder of results: one JSON file per cell, named by its digest; a control's network beside it."""

    root: Path

    def path(self, cell: Cell | Control) -> Path:
        """The path of a cell's result."""
        return self.root / ("controls" if isinstance(cell, Control) else "cells") / f"{cell.digest}.json"

    def has(self, cell: Cell | Control) -> bool:
        return self.path(cell).exists()

    def note(self, cell: Cell | Control) -> Path:
        """The path of the note: when and where a cell was computed, and its MLflow run; it differs from run to run."""
        return self.path(cell).with_suffix(".note.json")

    def put(self, cell: Cell, result: CellResult) -> None:
        content = {"attributes": {name: dataclasses.asdict(scores) for name, scores in result.attributes.items()}}
        write_json(self.path(cell), content | {"curves": result.curves, "problem": result.problem, "recipe": cell.recipe()})

    def get(self, cell: Cell) -> CellResult:
        raw = read_json(self.path(cell))
        attributes = {name: AttributeScores(**scores) for name, scores in raw["attributes"].items()}
        return CellResult(attributes, raw["curves"], raw["problem"])

    def put_control(self, control: Control, network: dict[str, Tensor], accuracy: float) -> None:
        """Writes the network first: a result with its final name is complete."""
        path = self.path(control)
        with write_atomically(path.with_suffix(".safetensors")) as temporary:
            save_file(network, temporary)
        write_json(path, {"accuracy": accuracy, "recipe": control.recipe()})

    def get_control(self, control: Control) -> dict[str, Tensor]:
        network: dict[str, Tensor] = load_file(self.path(control).with_suffix(".safetensors"))
        return network

    def figures(self, cell: Cell | Control) -> dict[str, Any]:
        """The figures of a result, flat: `gender.attacker` -> 0.57."""
        if isinstance(cell, Control):
            return {"accuracy": read_json(self.path(cell))["accuracy"]}
        scores = read_json(self.path(cell))["attributes"].items()
        return {f"{name}.{key}": value for name, one in scores for key, value in one.items() if value is not None}
