"""Records whose private and useful class are easy to infer: small enough to fit and audit in seconds."""

from dataclasses import dataclass

import numpy as np

from pass_core.data import IntArray
from pass_core.randomness import stream

SIZE = 8
FAST = {"epochs": 4, "batch_size": 128}


@dataclass(frozen=True)
class Made:
    """Arrays as a caller of the API has them."""

    X: np.ndarray
    labels: dict[str, IntArray]
    persons: list[str]
    ids: list[str]


def make(n: int, seed: int = 0) -> Made:
    """`n` records of ten persons; gender is the person's, digit the record's."""
    rng = stream(seed, "api")
    persons, digit = rng.integers(10, size=n), rng.integers(3, size=n)
    gender = persons % 2
    X = rng.normal(size=(n, SIZE)) + 5 * np.eye(SIZE)[gender] + 5 * np.eye(SIZE)[3 + digit]
    return Made(X, {"gender": gender, "digit": digit}, [f"person {k}" for k in persons], [f"{seed} {k}" for k in range(n)])
