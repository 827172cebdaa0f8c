"""The attacker who knows the channel: Bayes' rule over donors, with no error from learning or from few draws."""

from typing import ClassVar

import numpy as np

from pass_core.attacks._released import LookupAdversary, RecordNumbers
from pass_core.attacks.base import Attack, AttackTask
from pass_core.channel.joint_law import posterior
from pass_core.checks import NoSettings
from pass_core.data import DoubleArray, Rng
from pass_core.errors import AuditError
from pass_core.training.epochs import Epoch, OnEpoch


class ExactBayesAttack(Attack):
    """P(class | donor) from the joint law on the training records."""

    summary: ClassVar[str] = "Bayes' rule by the channel's own probabilities on the training records"
    config_type: ClassVar[type[NoSettings]] = NoSettings
    needs_pool: ClassVar[bool] = True

    def learn(self, task: AttackTask, config: NoSettings, rng: Rng, on_epoch: OnEpoch) -> LookupAdversary:
        if task.donors is None:
            raise AuditError(
                "attack exact_bayes: expected a release drawn from a pool of donors, found one without; "
                "leave the attack out of audit.attacks for this method"
            )
        numbers = RecordNumbers()
        places = numbers.number(task.donors.features)
        # Donors with the same features are indistinguishable: an attacker sees the sum of their laws.
        joint: DoubleArray = np.zeros((task.n_classes, len(numbers.known)))
        np.add.at(joint.T, places, task.donors.joint.T)
        on_epoch(Epoch(1, 1, {}))
        return LookupAdversary(numbers, posterior(joint).T, joint.sum(axis=1) / joint.sum())


ATTACK = ExactBayesAttack()
