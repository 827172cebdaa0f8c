"""The baseline: always the training set's class shares, without a look at the record."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pass_core.attacks.base import Attack, AttackTask
from pass_core.checks import NoSettings
from pass_core.data import DoubleArray, FloatArray, Rng
from pass_core.statistics.nag import class_shares
from pass_core.training.epochs import Epoch, OnEpoch


@dataclass(frozen=True, slots=True)
class MajorityAdversary:
    """Returns the same probabilities for each record."""

    shares: DoubleArray  # (classes,)

    def probabilities(self, records: FloatArray) -> DoubleArray:
        return np.tile(self.shares, (len(records), 1))


class MajorityAttack(Attack):
    """Guesses the commonest class."""

    summary: ClassVar[str] = "baseline: the training set's class shares, whatever the record"
    config_type: ClassVar[type[NoSettings]] = NoSettings

    def learn(self, task: AttackTask, config: NoSettings, rng: Rng, on_epoch: OnEpoch) -> MajorityAdversary:
        on_epoch(Epoch(1, 1, {}))
        return MajorityAdversary(class_shares(task.train_labels, task.n_classes))


ATTACK = MajorityAttack()
