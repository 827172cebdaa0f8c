"""The interface of attacks: learn from substituted training records, then guess an attribute of any records."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from pass_core.data import DoubleArray, FloatArray, IntArray, Rng
from pass_core.training.epochs import OnEpoch


@dataclass(frozen=True, slots=True)
class DonorTable:
    """For an attacker who knows the channel: P(A=a, X'=d) over the training records, and the donors' features."""

    joint: DoubleArray  # (classes, pool)
    features: FloatArray  # (pool, *shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackTask:
    """One attribute under attack.

    `released_train(draw)` gives the substituted training records, (n, *shape); another draw number is another
    independent release of the same records, as an attacker with access to the protector can request.
    """

    released_train: Callable[[int], FloatArray]
    train_labels: IntArray
    n_classes: int
    original_train: FloatArray | None = None  # for attackers who first train on originals
    donors: DonorTable | None = None  # None where nothing is drawn from a pool


class Adversary(Protocol):
    """A trained attacker."""

    def probabilities(self, records: FloatArray) -> DoubleArray:
        """(m, classes) how likely each class is for each record; rows sum to one."""


class Attack(Protocol):
    """An attack; its config type is a frozen dataclass beside it."""

    summary: ClassVar[str]
    config_type: ClassVar[type[Any]]
    needs_pool: ClassVar[bool] = False  # True: only against releases of donors, never against originals

    def learn(self, task: AttackTask, config: Any, rng: Rng, on_epoch: OnEpoch) -> Adversary:
        """Learns from the training records alone; nothing is ever selected on the test set."""
