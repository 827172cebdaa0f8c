"""An attacker of a finite pool: records which class each released record came from, and looks it up."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pass_core.attacks._released import LookupAdversary, RecordNumbers
from pass_core.attacks.base import Attack, AttackTask
from pass_core.checks import Checked, ranged
from pass_core.data import DoubleArray, Rng
from pass_core.statistics.nag import class_shares
from pass_core.training.epochs import Epoch, OnEpoch


@dataclass(frozen=True, slots=True)
class PoolLookupConfig(Checked):
    """`draws` releases of the training records are written down."""

    draws: int = ranged(8, at_least=1)


class PoolLookupAttack(Attack):
    """Counts classes by released record; knows neither the channel nor what a record looks like."""

    summary: ClassVar[str] = "remembers which class every released donor came from, over several releases"
    config_type: ClassVar[type[PoolLookupConfig]] = PoolLookupConfig
    needs_pool: ClassVar[bool] = True

    def learn(self, task: AttackTask, config: PoolLookupConfig, rng: Rng, on_epoch: OnEpoch) -> LookupAdversary:
        numbers = RecordNumbers()
        seen = []
        for draw in range(config.draws):
            seen.append(numbers.number(task.released_train(draw)))
            on_epoch(Epoch(draw + 1, config.draws, {}))
        counts: DoubleArray = np.zeros((len(numbers.known), task.n_classes))
        np.add.at(counts, (np.concatenate(seen), np.tile(task.train_labels, config.draws)), 1 / config.draws)
        prior = class_shares(task.train_labels, task.n_classes)
        # As if each donor had been shown for one more average record: few sightings give no certainty.
        table = (counts + prior) / (counts.sum(axis=1, keepdims=True) + 1)
        return LookupAdversary(numbers, table, prior)


ATTACK = PoolLookupAttack()
