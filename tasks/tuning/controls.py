"""The control of a search: a classifier of originals per attribute, trained once and used for every point."""

import hashlib
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from pass_core.attacks import majority, network
from pass_core.attacks.base import Adversary, Attack, AttackTask
from pass_core.checks import NoSettings
from pass_core.data import Rng
from pass_core.training.epochs import OnEpoch


@dataclass(frozen=True)
class Control(Attack):
    """The paper's network on originals; on releases it only guesses the commonest class: the exact attacker does better."""

    settings: Any  # of the network
    learnt: dict[str, Adversary] = field(default_factory=dict)

    summary: ClassVar[str] = "the network on originals, trained once"
    config_type: ClassVar[type[NoSettings]] = NoSettings

    def learn(self, task: AttackTask, config: NoSettings, rng: Rng, on_epoch: OnEpoch) -> Adversary:
        if task.original_train is not None:
            return majority.ATTACK.learn(task, config, rng, on_epoch)
        labels = hashlib.sha256(np.ascontiguousarray(task.train_labels).tobytes()).hexdigest()
        if labels not in self.learnt:
            self.learnt[labels] = network.ATTACK.learn(task, self.settings, rng, on_epoch)
        return self.learnt[labels]
