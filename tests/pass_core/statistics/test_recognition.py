"""Rates at few false alarms: exact ends, coverage by simulation, and no figure where others are too few."""

import numpy as np
import pytest
from scipy import stats

from pass_core.randomness import stream
from pass_core.statistics.intervals import clopper_pearson
from pass_core.statistics.recognition import rate_among_others


def test_exact_ends() -> None:
    """As published for 3 of 20, and one-sided where nothing or all was found."""
    low, high = clopper_pearson(0.15, 20, 0.025)
    assert (low, high) == pytest.approx((0.0321, 0.3789), abs=1e-4)
    assert clopper_pearson(0.0, 100, 0.025) == pytest.approx((0.0, 1 - 0.025**0.01))
    assert clopper_pearson(1.0, 100, 0.025) == pytest.approx((0.025**0.01, 1.0))


@pytest.mark.parametrize(("others", "measurable"), [(400, False), (600, True)])
def test_few_others_measure_no_small_rate(others: int, measurable: bool) -> None:
    rng = stream(1, "few")
    is_member = np.arange(1000 + others) < 1000
    scores = rng.normal(size=len(is_member)) + 10.0 * is_member
    rate, smallest = rate_among_others(scores, is_member, np.arange(len(scores)), 0.01)
    assert smallest == pytest.approx(1 - 0.0125 ** (1 / others))
    assert (rate.low > 0.99) == measurable
    assert ((rate.low, rate.high) == (0.0, 1.0)) == (not measurable)


def test_records_of_one_unit_count_together() -> None:
    """Two thousand others, but of twenty persons whose records are alike, measure no rate of one in a hundred."""
    rng = stream(2, "units")
    units = np.arange(4000) // 100
    scores = rng.normal(size=40)[units] + 0.01 * rng.normal(size=4000)
    rate, smallest = rate_among_others(scores, np.arange(4000) < 2000, units, 0.01)
    assert smallest > 0.1
    assert (rate.low, rate.high) == (0.0, 1.0)


def _covers(seed: int, *, shift: float, size: int, allowed: float) -> bool:
    """Members' scores are higher by `shift`; records of a unit share a third of their variance."""
    rng = stream(seed, "coverage", str(shift), str(size))
    n = 3000
    units = np.arange(2 * n) // size
    shared = 0.0 if size == 1 else 1 / 3
    scores = np.sqrt(shared) * rng.normal(size=2 * n)[units] + np.sqrt(1 - shared) * rng.normal(size=2 * n)
    is_member = np.arange(2 * n) < n
    rate, _ = rate_among_others(scores + shift * is_member, is_member, units, allowed)
    return bool(rate.low <= stats.norm.sf(stats.norm.isf(allowed) - shift) <= rate.high)


@pytest.mark.slow
@pytest.mark.parametrize("allowed", [0.01, 0.003])
@pytest.mark.parametrize("shift", [0.0, 0.5, 2.0, 6.0])
@pytest.mark.parametrize("size", [1, 5, 20])
def test_intervals_cover(shift: float, size: int, allowed: float) -> None:
    assert np.mean([_covers(seed, shift=shift, size=size, allowed=allowed) for seed in range(500)]) >= 0.93


@pytest.mark.parametrize("size", [1, 10])
def test_intervals_cover_quickly(size: int) -> None:
    assert sum(_covers(seed, shift=1.0, size=size, allowed=0.01) for seed in range(40)) >= 36
