"""Small frozen containers for records and their attributes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pass_core.errors import DataError

FloatArray = NDArray[np.float32]
DoubleArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Rng = np.random.Generator
Role = Literal["private", "useful", "general"]


@dataclass(frozen=True, slots=True)
class Attribute:
    """A finite attribute of a record: private (S), useful (U) or general (F, kept without being named in training)."""

    name: str
    classes: tuple[str, ...]
    role: Role

    @property
    def n_classes(self) -> int:
        return len(self.classes)


@dataclass(frozen=True, slots=True)
class Records:
    """Features (n, *shape) with one integer label per attribute and record."""

    features: FloatArray
    labels: Mapping[str, IntArray]

    def __post_init__(self) -> None:
        for name, values in self.labels.items():
            if values.shape != (len(self.features),):
                raise DataError(f"labels of attribute {name!r}: expected shape ({len(self.features)},), found {values.shape}")

    def __len__(self) -> int:
        return len(self.features)

    def subset(self, rows: IntArray) -> "Records":
        """The records at these positions."""
        return Records(self.features[rows], {name: values[rows] for name, values in self.labels.items()})

    @property
    def feature_shape(self) -> tuple[int, ...]:
        return tuple(self.features.shape[1:])


def with_role(attributes: tuple[Attribute, ...], role: Role) -> tuple[Attribute, ...]:
    """The attributes of one role, in order."""
    return tuple(attribute for attribute in attributes if attribute.role == role)


def one_hot(labels: IntArray, n_classes: int) -> DoubleArray:
    """Indicator matrix (n, n_classes) of integer labels."""
    return np.asarray(labels[:, None] == np.arange(n_classes), dtype=np.float64)


def combinations(labels: Sequence[IntArray]) -> IntArray:
    """One label per record for the combination of its classes; only combinations that occur are counted."""
    _, combined = np.unique(np.stack(labels), axis=1, return_inverse=True)
    return combined.reshape(-1).astype(np.int64)


def shown_classes(classes: tuple[str, ...], labels: IntArray, persons: Sequence[str]) -> tuple[str, ...]:
    """Names of classes for people; a class of a single person would name that person, and gets a number."""
    owners = Counter(label for label, _ in set(zip(labels.tolist(), persons, strict=True)))
    return tuple(name if owners[k] > 1 else f"class {k + 1}" for k, name in enumerate(classes))
