"""Shared by analyses of pairs of records: standardised components, pairs of one person, and attackers who learn from pairs."""

from collections.abc import Callable

import numpy as np

from pass_core.attacks import gradient_boosting, logistic_regression
from pass_core.attacks._flat import flat_features, principal_components
from pass_core.attacks.base import AttackTask
from pass_core.data import DoubleArray, FloatArray, IntArray, Rng

Learnt = Callable[[FloatArray], DoubleArray]  # (pairs, features) -> (pairs, classes) probabilities


def standard_components(records: FloatArray, most: int, rng: Rng) -> Callable[[FloatArray], FloatArray]:
    """Records as at most so many components, each of unit spread over `records`."""
    vectors = np.nan_to_num(flat_features(records))
    prepare = principal_components(vectors, most, rng)
    spread = prepare(vectors).std(axis=0)
    scale = np.where(spread > 1e-9, spread, 1.0)
    return lambda some: np.clip(prepare(np.nan_to_num(flat_features(some))) / scale, -10, 10).astype(np.float32)


def learn_pairs(features: FloatArray, labels: IntArray, n_classes: int, rng: Rng) -> Learnt:
    """The mean of boosted trees and logistic regression."""
    task = AttackTask(released_train=lambda _: features, train_labels=labels, n_classes=n_classes)
    boosting = gradient_boosting.GradientBoostingConfig(components=features.shape[1], draws=1)
    linear = logistic_regression.LogisticRegressionConfig(draws=1)
    adversaries = (
        gradient_boosting.ATTACK.learn(task, boosting, rng, lambda _: None),
        logistic_regression.ATTACK.learn(task, linear, rng, lambda _: None),
    )
    return lambda pairs: np.asarray(np.mean([one.probabilities(pairs) for one in adversaries], axis=0))


def pairs_within(groups: IntArray, most: int, rng: Rng | None) -> tuple[IntArray, IntArray]:
    """Two rows of the same group each, at most so many pairs: in random order, or neighbours where there is no generator.

    Every row is paired with the next ones of its group, as often for all groups as the number of pairs allows.
    """
    noise = np.arange(len(groups)) if rng is None else rng.random(len(groups))
    order = np.lexsort((noise, groups))
    ordered = groups[order]
    _, starts, counts = np.unique(ordered, return_index=True, return_counts=True)
    start, count = np.repeat(starts, counts), np.repeat(counts, counts)
    place = np.arange(len(groups)) - start
    furthest = 1 if rng is None else max(1, min(most // max(1, len(groups)), int(count.max(initial=2)) // 2))
    left, right = [], []
    for step in range(1, furthest + 1):
        # Steps around a circle; beyond half of it, the same pairs would come again.
        inside = 2 * step < count if rng is not None else place + step < count
        inside |= (2 * step == count) & (place < step)
        left.append(order[inside])
        right.append(order[start[inside] + (place[inside] + step) % count[inside]])
    first, second = np.concatenate(left), np.concatenate(right)
    if len(first) > most:
        kept = np.sort((rng or np.random.default_rng(len(first))).permutation(len(first))[:most])
        first, second = first[kept], second[kept]
    return first, second
