"""What attacks by scikit-learn share: records as flat vectors, and classes that training never showed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pass_core.data import DoubleArray, FloatArray


def flat_features(records: FloatArray) -> FloatArray:
    """Records as vectors; signals (channels, time) are followed by their spectra."""
    flat = records.reshape(len(records), -1)
    if records.ndim != 3:
        return flat
    spectrum = np.log1p(np.abs(np.fft.rfft(records, axis=2))).reshape(len(records), -1)
    return np.concatenate([flat, spectrum], axis=1).astype(np.float32)


@dataclass(frozen=True, slots=True)
class FlatAdversary:
    """A fitted scikit-learn classifier behind whatever its vectors were prepared by."""

    model: Any  # has `classes_` and `predict_proba`
    prepare: Callable[[FloatArray], FloatArray]
    n_classes: int

    def probabilities(self, records: FloatArray) -> DoubleArray:
        told: DoubleArray = np.zeros((len(records), self.n_classes))
        told[:, self.model.classes_] = self.model.predict_proba(self.prepare(flat_features(records)))
        return told
