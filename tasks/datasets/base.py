"""What every data set keeps to."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from pass_core.data import Attribute, FloatArray, Role
from pass_core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class DatasetConfig:
    """Which attributes are private, useful, or hidden (evaluated, never trained on), and how features are made."""

    private: tuple[str, ...]
    useful: tuple[str, ...]
    hidden: tuple[str, ...] = ()
    extractor: str = "identity"

    def __post_init__(self) -> None:
        named = self.private + self.useful + self.hidden
        if not self.private or not self.useful:
            raise ConfigError("expected at least one attribute under `private` and one under `useful`")
        twice = sorted({name for name in named if named.count(name) > 1})
        if twice:
            raise ConfigError(f"an attribute has one role: {', '.join(twice)} found in several of private, useful, hidden")

    def roles(self) -> dict[str, Role]:
        """Attribute name -> role, private ones first."""
        roles: dict[str, Role] = dict.fromkeys(self.private, "private")
        roles |= dict.fromkeys(self.useful, "useful")
        return roles | dict.fromkeys(self.hidden, "hidden")

    def attributes(self, classes: Mapping[str, tuple[str, ...]]) -> tuple[Attribute, ...]:
        """The named attributes with their classes and roles."""
        return tuple(Attribute(name, classes[name], role) for name, role in self.roles().items())


@dataclass(frozen=True, slots=True)
class RawRecords:
    """Records as a data set's reader gives them; all columns have one entry per record."""

    payloads: FloatArray  # (n, *shape)
    record_ids: tuple[str, ...]  # unique, stable, internal: never released
    splits: tuple[str, ...]  # "train" or "test"
    persons: tuple[str, ...]  # who the record is about
    blocks: tuple[str, ...]  # records of one block (a recording) depend on each other
    labels: Mapping[str, tuple[str, ...]]  # attribute -> class name
    classes: Mapping[str, tuple[str, ...]]  # attribute -> all class names, in label order


class Dataset(Protocol):
    """A data set; its config type derives from DatasetConfig."""

    summary: ClassVar[str]
    config_type: ClassVar[type[Any]]
    attribute_names: ClassVar[tuple[str, ...]]
    payload_range: ClassVar[tuple[float, float]]  # what a sane payload value lies in; validation fails outside
    min_class_share: ClassVar[float]  # the rarest class of any attribute has at least this share of a split

    def read(self, raw: Path, config: Any) -> RawRecords:
        """All records below `raw`, in the layout the data set is published in.

        Raises:
            DataError: a file is missing, damaged or has other columns; the message names it.
        """


@runtime_checkable
class GeneratedDataset(Dataset, Protocol):
    """A data set that can be made here, without a download."""

    def generate(self, raw: Path, config: Any, rng: np.random.Generator) -> int:
        """Writes the raw files below `raw` and returns their number."""
