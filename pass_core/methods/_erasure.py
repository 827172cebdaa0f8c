"""Linear erasure in closed form: records lose every linear trace of the private attributes, and move as little as possible.

With Σ = Cov(x), W = (Σ^½)⁺ and u spanning W Cov(x, private classes), v spanning W Cov(x, useful classes):

    LEACE     x' = x − W⁺ u uᵀ W (x − μ)                           (Belrose et al. 2023)
    SPLINCE   x' = x − W⁺ u (uᵀ v⊥ u)⁻¹ uᵀ v⊥ W (x − μ),  v⊥ = I − v vᵀ   (Holstege et al. 2025): Cov(x', useful) = Cov(x, useful)

No linear model then reads the private classes from training records; other models may. Released are features, not real records.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pass_core.checks import NoSettings
from pass_core.data import Attribute, DoubleArray, FloatArray, Records, Rng, one_hot
from pass_core.errors import MethodError
from pass_core.methods.base import RecordMaker, ReleaseContext

MOST_FEATURES = 10_000  # whose covariance is computed: 800 MB
SMALLEST = 1e-6  # of the largest eigenvalue, or singular value: what is smaller counts as zero


@dataclass(frozen=True, slots=True)
class Erasure:
    """LEACE, or SPLINCE where the useful classes' covariance is kept."""

    summary: str
    keeps_useful: bool
    config_type: type[NoSettings] = NoSettings  # the solution has a closed form

    def fit(self, data: Records, *, context: ReleaseContext, **_: object) -> RecordMaker:
        """Solves for the projection on the training records."""
        flat = data.features.reshape(len(data), -1).astype(np.float64)
        if flat.shape[1] > MOST_FEATURES:
            found = f"expected at most {MOST_FEATURES} numbers per record, found {flat.shape[1]}"
            raise MethodError(f"linear erasure: {found}; extract features first")
        mean = flat.mean(axis=0)
        flat -= mean
        values, vectors = np.linalg.eigh(flat.T @ flat / len(flat))
        kept = values > SMALLEST * values[-1]
        vectors, roots = vectors[:, kept], np.sqrt(values[kept])
        white = flat @ vectors / roots  # within the span of the records; W's other directions are zero
        u = _directions(white, data, context.needed("private"))
        rest = u
        if self.keeps_useful:
            v = _directions(white, data, context.needed("useful"))
            rest = u - v @ (v.T @ u)
        read = np.linalg.pinv(rest.T @ u, rcond=SMALLEST) @ rest.T / roots @ vectors.T
        learnt = {"mean": mean, "removed": vectors * roots @ u, "read": read}
        return _maker({name: torch.from_numpy(value.astype(np.float32)) for name, value in learnt.items()})

    def from_state_dict(self, state: Mapping[str, Tensor], context: ReleaseContext, config: NoSettings) -> RecordMaker:
        return _maker(state)


def _directions(white: DoubleArray, data: Records, attributes: tuple[Attribute, ...]) -> DoubleArray:
    """An orthonormal basis of the directions in which whitened records are correlated with the classes."""
    classes = np.concatenate([one_hot(data.labels[a.name], a.n_classes) for a in attributes], axis=1)
    basis, sizes, _ = np.linalg.svd(white.T @ (classes - classes.mean(axis=0)) / len(white), full_matrices=False)
    return np.asarray(basis[:, sizes > SMALLEST * max(sizes[0], SMALLEST)])


def _maker(learnt: Mapping[str, Tensor]) -> RecordMaker:
    mean, removed, read = (learnt[name].numpy() for name in ("mean", "removed", "read"))

    def release(records: FloatArray, _: Rng) -> FloatArray:
        flat = records.reshape(len(records), -1)
        return np.asarray((flat - (flat - mean) @ read.T @ removed.T).reshape(records.shape), dtype=np.float32)

    return RecordMaker(release, learnt)
