"""LEACE and SPLINCE: what linear models read, and what others still do."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from pass_core.data import Attribute, FloatArray, Records
from pass_core.errors import MethodError
from pass_core.methods import leace, splince
from pass_core.methods._erasure import Erasure
from pass_core.methods.base import ReleaseContext
from pass_core.randomness import stream

ATTRIBUTES = (Attribute("s", ("a", "b"), "private"), Attribute("u", ("a", "b", "c"), "useful"))


def _records(n: int = 3000) -> Records:
    """The classes are entangled; the private one also shows in the spread of a feature, which no linear model sees."""
    rng = stream(1, "records")
    s = rng.integers(0, 2, n)
    u = np.where(rng.random(n) < 0.5, s, rng.integers(0, 3, n))
    x = rng.normal(size=(n, 8))
    x[:, 0] += 2 * s
    x[:, 1] += 2 * u + s
    x[:, 2] *= 1 + 3 * s
    x[:, 3] = x[:, 4]  # the covariance has no inverse
    return Records(x.astype(np.float32), {"s": s, "u": u})


def _released(method: Erasure, data: Records) -> FloatArray:
    context = ReleaseContext(ATTRIBUTES, data.subset(np.arange(10)), torch.device("cpu"))
    return method.fit(data, context=context).transform(data.features, stream(1, "release"))


def _covariance(x: FloatArray, labels: np.ndarray) -> np.ndarray:
    classes = np.eye(labels.max() + 1)[labels]
    return np.asarray((x - x.mean(axis=0)).T @ (classes - classes.mean(axis=0)) / len(x))


def _read(x: FloatArray, labels: np.ndarray, model: LogisticRegression | KNeighborsClassifier) -> float:
    return float(model.fit(x[::2], labels[::2]).score(x[1::2], labels[1::2]))


@pytest.mark.parametrize("method", [leace.METHOD, splince.METHOD])
def test_no_linear_model_reads_the_private_class_and_another_one_does(method: Erasure) -> None:
    data = _records()
    s, released = data.labels["s"], _released(method, data)
    assert _read(data.features, s, LogisticRegression()) > 0.8  # the control
    assert np.abs(_covariance(released, s)).max() < 1e-5
    assert _read(released, s, LogisticRegression()) < 0.55
    assert _read(released, s, KNeighborsClassifier(20)) > 0.6


def test_splince_keeps_what_leace_loses_and_moves_records_further() -> None:
    data = _records()
    before, moved, changed = _covariance(data.features, data.labels["u"]), {}, {}
    for method in (leace.METHOD, splince.METHOD):
        released = _released(method, data)
        changed[method.keeps_useful] = np.abs(_covariance(released, data.labels["u"]) - before).max()
        moved[method.keeps_useful] = float(((released - data.features) ** 2).sum())
    assert changed[True] < 1e-4
    assert changed[False] > 0.05  # the control
    assert moved[False] < moved[True]


def test_records_with_too_many_numbers_are_refused() -> None:
    wide = Records(np.zeros((4, 10_001), dtype=np.float32), {"s": np.arange(4) % 2, "u": np.arange(4) % 3})
    with pytest.raises(MethodError, match=r"expected at most 10000 numbers per record, found 10001; extract features"):
        leace.METHOD.fit(wide, context=ReleaseContext(ATTRIBUTES, wide, torch.device("cpu")))
