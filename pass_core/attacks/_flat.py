"""Shared by attacks that use scikit-learn: records as flat vectors, stacked releases, classes missing in training."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pass_core.attacks.base import AttackTask
from pass_core.data import DoubleArray, FloatArray, IntArray, Rng

Prepare = Callable[[FloatArray], FloatArray]


def flat_features(records: FloatArray) -> FloatArray:
    """Records as vectors; signals (channels, time) are followed by their spectra."""
    flat = records.reshape(len(records), -1)
    if records.ndim != 3:
        return flat
    spectrum = np.log1p(np.abs(np.fft.rfft(records, axis=2))).reshape(len(records), -1)
    return np.concatenate([flat, spectrum], axis=1).astype(np.float32)


def stacked_releases(task: AttackTask, draws: int, at_most: int, rng: Rng) -> tuple[FloatArray, IntArray]:
    """Records and labels of up to `draws` releases of the training records, `at_most` records in all.

    Releases are taken whole while they fit, of a too long first one a random part, and once if they do not differ (originals).
    """
    first = task.released_train(0)
    n = len(first)
    rows: IntArray = np.sort(rng.permutation(n)[:at_most]) if n > at_most else np.arange(n)
    releases = [first[rows]]
    for draw in range(1, min(draws, at_most // n)):
        another = task.released_train(draw)
        if np.array_equal(another, first):
            break
        releases.append(another)
    return np.concatenate(releases), np.tile(task.train_labels[rows], len(releases))


def principal_components(vectors: FloatArray, components: int, rng: Rng) -> Prepare:
    """The projection of standardised vectors onto their first principal components; short vectors are only standardised."""
    steps = [StandardScaler()]
    if vectors.shape[1] > components:
        steps.append(PCA(min(components, len(vectors)), random_state=int(rng.integers(2**31))))
    prepare: Prepare = make_pipeline(*steps).fit(vectors).transform
    return prepare


@dataclass(frozen=True, slots=True)
class FlatAdversary:
    """A fitted scikit-learn classifier with the preparation of its vectors."""

    model: Any  # has `classes_` and `predict_proba`
    prepare: Prepare
    n_classes: int

    def probabilities(self, records: FloatArray) -> DoubleArray:
        found: DoubleArray = np.zeros((len(records), self.n_classes))
        found[:, self.model.classes_] = self.model.predict_proba(self.prepare(flat_features(records)))
        return found
