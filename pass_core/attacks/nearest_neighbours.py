"""Nearest neighbours on principal components: the attack without a model, which is consistent for whatever is released."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from sklearn.neighbors import NearestNeighbors

from pass_core.attacks._flat import Prepare, flat_features, principal_components, stacked_releases
from pass_core.attacks._released import RecordNumbers
from pass_core.attacks.base import Attack, AttackTask
from pass_core.checks import Checked, ranged
from pass_core.data import DoubleArray, FloatArray, IntArray, Rng
from pass_core.statistics.nag import class_shares
from pass_core.training.epochs import Epoch, OnEpoch


@dataclass(frozen=True, slots=True)
class NearestNeighboursConfig(Checked):
    """`neighbours` is k."""

    neighbours: int = ranged(15, at_least=1)
    components: int = ranged(64, at_least=1)
    draws: int = ranged(4, at_least=1)  # releases that are stacked,
    records: int = ranged(60_000, at_least=1)  # so many records at most in all


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourAdversary:
    """Distinct training points with the classes that they were seen with."""

    search: NearestNeighbors
    counts: DoubleArray  # (points, classes)
    prior: DoubleArray  # (classes,)
    neighbours: int
    prepare: Prepare

    def probabilities(self, records: FloatArray) -> DoubleArray:
        distinct, places = _distinct(records)
        points = self.prepare(flat_features(distinct))
        met = self.search.kneighbors(points, min(self.neighbours, len(self.counts)), return_distance=False)
        sightings = self.counts.sum(axis=1)[met]  # (m, k)
        before = np.cumsum(sightings, axis=1) - sightings
        seen: DoubleArray = np.zeros((len(points), self.counts.shape[1]))
        for place in range(met.shape[1]):
            seen += np.where(before[:, place, None] < self.neighbours, self.counts[met[:, place]], 0.0)
        # As if there were one more average neighbour: a class that k neighbours lack is not impossible.
        shares: DoubleArray = ((seen + self.prior) / (seen.sum(axis=1, keepdims=True) + 1))[places]
        return shares


class NearestNeighboursAttack(Attack):
    """k nearest neighbours, where a point seen several times counts as often: of a pool's donor, all sightings count."""

    summary: ClassVar[str] = "k nearest neighbours on principal components"
    config_type: ClassVar[type[NearestNeighboursConfig]] = NearestNeighboursConfig

    def learn(self, task: AttackTask, config: NearestNeighboursConfig, rng: Rng, on_epoch: OnEpoch) -> NeighbourAdversary:
        records, labels = stacked_releases(task, config.draws, config.records, rng)
        prepare = principal_components(flat_features(records), config.components, rng)
        distinct, places = _distinct(records)
        counts: DoubleArray = np.zeros((len(distinct), task.n_classes))
        np.add.at(counts, (places, labels), 1.0)
        search = NearestNeighbors(algorithm="brute").fit(prepare(flat_features(distinct)))
        on_epoch(Epoch(1, 1, {}))
        prior = class_shares(labels, task.n_classes)
        return NeighbourAdversary(search=search, counts=counts, prior=prior, neighbours=config.neighbours, prepare=prepare)


def _distinct(records: FloatArray) -> tuple[FloatArray, IntArray]:
    """Every record once, and the place of each among them; by their bytes, before arithmetic rounds copies apart."""
    places = RecordNumbers().number(records)
    return records[np.unique(places, return_index=True)[1]], places


ATTACK = NearestNeighboursAttack()
