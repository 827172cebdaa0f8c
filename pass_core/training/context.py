"""What surrounds one training without being part of what is learnt."""

from dataclasses import dataclass, field

import numpy as np

from pass_core.data import IntArray, Rng
from pass_core.training.checkpoints import Checkpoints
from pass_core.training.cross_fit import divide
from pass_core.training.epochs import Epoch, OnEpoch
from pass_core.training.parallel import ALONE, World


def ignore_epoch(epoch: Epoch) -> None:
    """Reports nothing."""


@dataclass(frozen=True, slots=True)
class TrainingContext:
    """Callback, checkpoints, held-out rows and process group."""

    on_epoch: OnEpoch = ignore_epoch
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    held_out: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # positions among the training records
    blocks: IntArray | None = None  # of the training records: those of one block depend on each other; None: on none
    world: World = ALONE

    def trained_rows(self, n_records: int) -> IntArray:
        """Positions of the records that are not held out."""
        return np.setdiff1d(np.arange(n_records), self.held_out)

    def folds(self, rows: IntArray, number: int, rng: Rng) -> IntArray:
        """(n,) the fold of each of these training records; `rng` is used for several folds only."""
        if number == 1:
            return np.zeros(len(rows), dtype=np.int64)
        return divide(rows if self.blocks is None else self.blocks[rows], number, rng)
