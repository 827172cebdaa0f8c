"""The certificate against brute force: bounds hold for every pair of records, and the largest difference is what it says."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pass_core.auditing.exact_attacker import certify, donor_divergence, donor_leakage, rare_donors
from pass_core.auditing.findings import Certificate
from pass_core.channel.joint_law import posterior
from pass_core.data import DoubleArray, one_hot
from pass_core.randomness import stream


def _channel(seed: int, n: int, pool: int, n_classes: int) -> tuple[DoubleArray, DoubleArray]:
    """P(.|x) of n records, and T[a, d] over them."""
    rng = stream(seed, "certificate")
    p = rng.dirichlet(np.full(pool, 0.3), n)
    return p, one_hot(np.arange(n) % n_classes, n_classes).T @ p / n


def _certified(p: DoubleArray, joint: DoubleArray) -> Certificate:
    return certify(joint, p @ posterior(joint).T, p @ rare_donors(joint), stream(1, "pairs"))


def _distances(p: DoubleArray, joint: DoubleArray) -> DoubleArray:
    """Total variation between the inferred classes of every two records, one by one."""
    told = [sum(row[d] * joint[:, d] / joint[:, d].sum() for d in range(len(row)) if joint[:, d].sum() > 0) for row in p]
    return np.array([0.5 * np.abs(a - b).sum() for a, b in itertools.combinations(told, 2)])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(4, 30), pool=st.integers(2, 12), n_classes=st.integers(2, 4))
def test_no_two_records_are_farther_apart_than_certified(seed: int, n: int, pool: int, n_classes: int) -> None:
    p, joint = _channel(seed, n, pool, n_classes)
    certificate = _certified(p, joint)
    largest = _distances(p, joint).max()
    assert certificate.delta == pytest.approx(largest, abs=1e-9)
    assert largest <= certificate.twice_distance + 1e-9
    assert certificate.twice_distance <= certificate.pinsker + 1e-9
    assert largest <= certificate.robust_bound + 1e-9
    assert certificate.pinsker == pytest.approx(math.sqrt(2 * certificate.gamma))
    assert certificate.records == n


def test_divergence_and_leakage_by_hand() -> None:
    joint = np.array([[0.3, 0.1, 0.1, 0.0], [0.1, 0.3, 0.1, 0.0]])  # the last donor is never shown
    kl = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert donor_divergence(joint) == pytest.approx([kl, kl, 0, 0])
    leakage = donor_leakage(joint)
    assert leakage.largest_ratio == pytest.approx(1.5)
    assert leakage.largest_divergence == pytest.approx(kl)
    assert leakage.divergence_quantiles["0.5"] == pytest.approx(kl)  # four fifths of the releases show such a donor
    blind = donor_leakage(np.outer([0.5, 0.5], [0.2, 0.8]))
    assert (blind.largest_ratio, blind.largest_divergence) == (pytest.approx(1), pytest.approx(0, abs=1e-12))


def test_one_rare_telling_donor_is_set_apart() -> None:
    """A donor that tells everything, in half a percent of the releases: the plain bound is useless, the robust one is not."""
    p = np.tile([0.4975, 0.4975, 0.005, 0.0], (400, 1))
    p[200:] = [0.4975, 0.4975, 0.0, 0.005]
    joint = one_hot(np.repeat([0, 1], 200), 2).T @ p / 400
    certificate = _certified(p, joint)
    assert certificate.pinsker > 1
    assert certificate.robust_gamma == pytest.approx(0, abs=1e-12)
    assert certificate.robust_bound == pytest.approx(0.01, abs=1e-6)
    assert certificate.delta == pytest.approx(0.005, abs=1e-9)


def test_many_records_are_compared_in_a_sample_that_is_told() -> None:
    p, joint = _channel(3, 4000, 10, 3)
    certificate = _certified(p, joint)
    assert certificate.records == 3000
    assert certificate.delta <= certificate.twice_distance
    p, joint = _channel(3, 4000, 10, 2)
    assert _certified(p, joint).records == 4000  # two classes: all of them
