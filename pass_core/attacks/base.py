"""What every attack keeps to: learn from substituted training records, guess an attribute of released test records."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from pass_core.data import FloatArray, IntArray
from pass_core.epochs import OnEpoch


@dataclass(frozen=True, slots=True)
class AttackTask:
    """One attribute under attack.

    `released_train(draw)` gives the substituted training records, (n, *shape); another draw number is another
    independent release of the same records, as an attacker with access to the protector can ask for.
    """

    released_train: Callable[[int], FloatArray]
    train_labels: IntArray
    released_test: FloatArray
    n_classes: int


class Attack(Protocol):
    """An attack; its config type is a frozen dataclass beside it."""

    summary: ClassVar[str]
    config_type: ClassVar[type[Any]]

    def predict(self, task: AttackTask, config: Any, rng: np.random.Generator, on_epoch: OnEpoch) -> IntArray:
        """Predicted class of every released test record. Nothing is selected on the test set."""
