"""A linear attack that needs no tuning; signals are also shown as spectra, which do not move with the window's start."""

import warnings
from dataclasses import dataclass
from typing import ClassVar

from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from pass_core.attacks._flat import FlatAdversary, flat_features, stacked_releases
from pass_core.attacks.base import Attack, AttackTask
from pass_core.checks import Checked, ranged
from pass_core.data import Rng
from pass_core.training.epochs import Epoch, OnEpoch


@dataclass(frozen=True, slots=True)
class LogisticRegressionConfig(Checked):
    """`inverse_regularisation` is scikit-learn's C."""

    iterations: int = ranged(100, at_least=1)
    inverse_regularisation: float = ranged(1.0, above=0)
    draws: int = ranged(4, at_least=1)  # releases that are stacked,
    records: int = ranged(60_000, at_least=1)  # so many records at most in all


class LogisticRegressionAttack(Attack):
    """Multinomial logistic regression."""

    summary: ClassVar[str] = "logistic regression on the record and, for signals, its spectrum"
    config_type: ClassVar[type[LogisticRegressionConfig]] = LogisticRegressionConfig

    def learn(self, task: AttackTask, config: LogisticRegressionConfig, rng: Rng, on_epoch: OnEpoch) -> FlatAdversary:
        records, labels = stacked_releases(task, config.draws, config.records, rng)
        scaler = StandardScaler()
        train = scaler.fit_transform(flat_features(records))
        model = LogisticRegression(max_iter=config.iterations, C=config.inverse_regularisation, tol=1e-3)
        with warnings.catch_warnings():
            # An attack is as long as its budget, which the report states: stopping at it is no fault.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(train, labels)
        on_epoch(Epoch(1, 1, {}))
        return FlatAdversary(model, scaler.transform, task.n_classes)


ATTACK = LogisticRegressionAttack()
