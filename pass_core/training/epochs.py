"""How training reports its progress; a module of its own, so that importing it does not import torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Epoch:
    """One finished epoch: the mean of every loss term over its steps."""

    number: int
    total: int
    terms: Mapping[str, float]


OnEpoch = Callable[[Epoch], None]
