"""Cells: the pieces that tables are made of, each named by everything its result depends on.

A control is a classifier of original records, shared by all cells of its data set and seed. A cell is a protector with one seed:
fitted, released, attacked.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pass_core.attacks.network import NetworkConfig
from pass_core.channel.pool import PoolConfig
from pass_core.training.loop import TrainConfig
from tasks.paper_tables.measure import AttributeScores
from tasks.paper_tables.settings import ProbeConfig, Roles
from tasks.storage.code_digest import code_digest
from tasks.storage.files import json_digest

OnShare = Callable[[float], None]  # told which share of a cell is done
FORMAT = 1
LIBRARIES = ("torch", "numpy", "scikit-learn", "scipy")
# An epoch of a protector costs about as much as so many of one attacker; only the estimate of the time left depends on it.
PROTECTOR_EPOCH = 6


@dataclass(frozen=True, slots=True)
class FeatureSet:
    """Extracted features, named by their bytes."""

    dataset: str
    folder: Path
    digest: str
    train_records: int
    test_records: int
    extractor: str


@dataclass(frozen=True, slots=True)
class Control:
    """A classifier of original records."""

    dataset: str
    features: str  # digest
    attribute: str
    config: NetworkConfig
    seed: int

    @property
    def digest(self) -> str:
        return json_digest(self.recipe())[:32]

    @property
    def effort(self) -> int:
        """Epochs of an attacker."""
        return self.config.epochs

    def recipe(self) -> dict[str, Any]:
        """All that it depends on."""
        return _recipe(dataclasses.asdict(self), ("tasks.paper_tables.control",))

    def __str__(self) -> str:
        return f"{self.dataset} unprotected {self.attribute}, seed {self.seed}"


@dataclass(frozen=True, slots=True)
class Cell:
    """A protector with one seed, and the attack on it."""

    dataset: str
    features: str  # digest
    roles: Roles
    method: str
    config: Any  # of the method's config type
    training: TrainConfig
    pool: PoolConfig
    control: NetworkConfig
    attack: ProbeConfig
    seed: int

    @property
    def digest(self) -> str:
        return json_digest(self.recipe())[:32]

    @property
    def effort(self) -> int:
        """About how many epochs of an attacker it is worth."""
        return self.training.epochs * PROTECTOR_EPOCH + len(self.roles.names()) * self.attack.epochs

    def recipe(self) -> dict[str, Any]:
        """All that it depends on."""
        return _recipe(dataclasses.asdict(self), ("tasks.paper_tables.compute", f"pass_core.methods.{self.method}"))

    def controls(self) -> dict[str, Control]:
        """The classifiers of originals that it is compared with."""
        return {name: Control(self.dataset, self.features, name, self.control, self.seed) for name in self.roles.names()}

    def __str__(self) -> str:
        return f"{self.dataset} {self.method}, seed {self.seed}"


@dataclass(frozen=True, slots=True)
class CellResult:
    """What a cell gave: figures per attribute, or why there can be none."""

    attributes: dict[str, AttributeScores]
    curves: dict[str, list[float]]  # term of the loss -> its value per epoch
    problem: str | None = None


def _recipe(settings: dict[str, Any], modules: tuple[str, ...]) -> dict[str, Any]:
    libraries = {library: version(library) for library in LIBRARIES}
    return {"format": FORMAT, "settings": settings, "code": code_digest(modules), "libraries": libraries}
