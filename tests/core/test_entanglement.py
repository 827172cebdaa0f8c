"""What the data allow: against a slow reference, and against channels that reach or break it."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pass_core.data import Attribute, one_hot
from pass_core.entanglement import joint_entropy, what_the_data_allow
from pass_core.exact import mutual_information


def _attribute(name: str, n: int, role: str) -> Attribute:
    return Attribute(name, tuple(map(str, range(n))), role)  # type: ignore[arg-type]


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 60), st.integers(1, 3), st.integers(0, 10_000))
def test_entropy_equals_a_count_by_hand(n: int, columns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = [rng.integers(0, 4, n) for _ in range(columns)]
    counts = Counter(zip(*(column.tolist() for column in labels), strict=True))
    expected = -sum(c / n * math.log(c / n) for c in counts.values())
    assert joint_entropy(labels) == pytest.approx(expected, abs=1e-12)


def test_independent_attributes_cost_nothing_and_equal_ones_everything() -> None:
    u = np.arange(1200) % 4
    free = what_the_data_allow(
        {"s": (np.arange(1200) // 4) % 3, "u": u}, (_attribute("s", 3, "private"), _attribute("u", 4, "useful"))
    )
    assert free.share == pytest.approx(1.0)
    bound = what_the_data_allow({"s": u, "u": u}, (_attribute("s", 4, "private"), _attribute("u", 4, "useful")))
    assert bound.share == pytest.approx(0.0, abs=1e-12)
    assert bound.most_entangled == "s"


def test_correlated_useful_attributes_count_twice() -> None:
    """Two copies of one useful attribute: each of them can be told, so the ceiling is twice its entropy."""
    u = np.arange(400) % 2
    attributes = (_attribute("s", 2, "private"), _attribute("u", 2, "useful"), _attribute("v", 2, "useful"))
    allowed = what_the_data_allow({"s": (np.arange(400) // 2) % 2, "u": u, "v": u}, attributes)
    assert allowed.total_correlation == pytest.approx(math.log(2))
    assert allowed.ceiling == pytest.approx(2 * math.log(2))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 100_000), st.floats(0.5, 6.0))
def test_no_channel_beats_the_theorem(seed: int, sharpness: float) -> None:
    """Σ I(X';U) ≤ I(X';S) + H(U|S) + TC(U) for random channels of random records (eq. 11)."""
    rng = np.random.default_rng(seed)
    n, pool = 40, 6
    labels = {"s": rng.integers(0, 3, n), "u": rng.integers(0, 2, n)}
    labels["v"] = np.where(rng.random(n) < 0.7, labels["u"], rng.integers(0, 2, n))
    logits = sharpness * rng.normal(size=(n, pool)) + 3 * labels["s"][:, None] * (np.arange(pool) % 3 == 0)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    attributes = (_attribute("s", 3, "private"), _attribute("u", 2, "useful"), _attribute("v", 2, "useful"))
    information = {a.name: mutual_information(one_hot(labels[a.name], a.n_classes).T @ p / n) for a in attributes}
    ceiling = what_the_data_allow(labels, attributes).ceiling
    assert information["u"] + information["v"] <= information["s"] + ceiling + 1e-9
