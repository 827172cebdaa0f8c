"""Boosted trees on principal components: an attack that takes thresholds and interactions where a linear one takes sums."""

from dataclasses import dataclass
from typing import ClassVar

from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from pass_core.attacks._flat import FlatAdversary, flat_features, principal_components, stacked_releases
from pass_core.attacks.base import Attack, AttackTask
from pass_core.checks import Checked, ranged
from pass_core.data import DoubleArray, FloatArray, Rng
from pass_core.training.epochs import Epoch, OnEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientBoostingConfig(Checked):
    """An iteration grows one tree per class, so records and components are what keeps many classes affordable."""

    iterations: int = ranged(30, at_least=1)
    learning_rate: float = ranged(0.1, above=0, at_most=1)
    leaves: int = ranged(15, at_least=2)
    components: int = ranged(32, at_least=1)
    draws: int = ranged(4, at_least=1)  # releases that are stacked,
    records: int = ranged(40_000, at_least=1)  # so many records at most in all


class BoostedAdversary(FlatAdversary):
    """Boosted trees, evaluated on one thread, as they were grown."""

    def probabilities(self, records: FloatArray) -> DoubleArray:
        with _one_thread():
            return super().probabilities(records)


class GradientBoostingAttack(Attack):
    """Histogram gradient boosting; the number of trees is fixed, nothing is held out to stop them."""

    summary: ClassVar[str] = "boosted trees on principal components"
    config_type: ClassVar[type[GradientBoostingConfig]] = GradientBoostingConfig

    def learn(self, task: AttackTask, config: GradientBoostingConfig, rng: Rng, on_epoch: OnEpoch) -> BoostedAdversary:
        records, labels = stacked_releases(task, config.draws, config.records, rng)
        vectors = flat_features(records)
        prepare = principal_components(vectors, config.components, rng)
        model = HistGradientBoostingClassifier(
            max_iter=config.iterations,
            learning_rate=config.learning_rate,
            max_leaf_nodes=config.leaves,
            early_stopping=False,
            random_state=int(rng.integers(2**31)),
        )
        components = prepare(vectors)
        with _one_thread():
            model.fit(components, labels)
        on_epoch(Epoch(1, 1, {}))
        return BoostedAdversary(model, prepare, task.n_classes)


def _one_thread() -> threadpool_limits:
    """Trees of this size are over before threads have met: they gain nothing, and on a busy machine wait for minutes."""
    return threadpool_limits(1, user_api="openmp")


ATTACK = GradientBoostingAttack()
