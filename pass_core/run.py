"""What surrounds one training without being part of what is learnt."""

from dataclasses import dataclass, field

from pass_core.checkpoints import Checkpoints, NoCheckpoints
from pass_core.epochs import Epoch, OnEpoch


def tell_nobody(epoch: Epoch) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True)
class Run:
    """Whom to tell of every epoch, and where to go on from."""

    on_epoch: OnEpoch = tell_nobody
    checkpoints: Checkpoints = field(default_factory=NoCheckpoints)
