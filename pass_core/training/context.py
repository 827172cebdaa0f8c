"""What surrounds one training without being part of what is learnt."""

from dataclasses import dataclass, field

import numpy as np

from pass_core.data import IntArray
from pass_core.training.checkpoints import Checkpoints, NoCheckpoints
from pass_core.training.epochs import Epoch, OnEpoch
from pass_core.training.parallel import ALONE, World


def tell_nobody(epoch: Epoch) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True)
class TrainingContext:
    """Whom to tell of every epoch, where to go on from, which records to look at instead of learning from them, and
    among which processes this one trains.
    """

    on_epoch: OnEpoch = tell_nobody
    checkpoints: Checkpoints = field(default_factory=NoCheckpoints)
    held_out: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # positions among the training records
    world: World = ALONE
