"""NAG and its intervals."""

import numpy as np
import pytest

from pass_core.data import Attribute
from pass_core.errors import AuditError, DataError
from pass_core.metrics import balanced_accuracy, majority_class, mean_nag, nag
from pass_core.pool import PoolConfig, sample_pool
from pass_core.randomness import stream
from pass_core.statistics import BlockBootstrap, percentile_interval


def test_nag_of_the_papers_figures() -> None:
    """ADV on MotionSense, gender: accuracy 82.8 with guessing 57.0 and 98.0 unprotected is NAG 62.9."""
    assert nag(0.828, 0.570, 0.980) == pytest.approx(0.629, abs=0.001)
    assert nag(0.5, 0.57, 0.98) == 0
    with pytest.raises(AuditError, match="NAG is undefined"):
        nag(0.5, 0.6, 0.6)


def test_mean_nag_and_its_needs() -> None:
    assert mean_nag([0.0, 0.2], [0.9, 0.7]) == pytest.approx(0.7)
    with pytest.raises(AuditError):
        mean_nag([], [1.0])


def test_majority_and_balance() -> None:
    labels = np.array([0, 0, 0, 1])
    assert majority_class(labels) == 0
    assert balanced_accuracy(np.zeros(4, dtype=np.int64), labels) == 0.5


def _coverage(n_blocks: int, size: int, dependent: bool, repetitions: int, rng: np.random.Generator) -> float:
    """How often the interval holds the true NAG of 0.6 when the records of a block are all alike."""
    truth = 0.6
    blocks = np.repeat(np.arange(n_blocks), size) if dependent else np.arange(n_blocks * size)
    labels = np.repeat(np.arange(n_blocks) % 2, size)
    covered = 0
    for _ in range(repetitions):
        # A balanced attribute, read perfectly without protection: NAG 0.6 is accuracy 0.8, block by block.
        hit = np.repeat(rng.random(n_blocks) < 0.5 + truth / 2, size)
        replicates = BlockBootstrap.draw(blocks, rng, 400).nag(hit, np.ones_like(hit), labels, guess=0)
        interval = percentile_interval(replicates)
        covered += interval.low <= truth <= interval.high
    return covered / repetitions


def test_interval_covers_the_truth_when_it_knows_the_blocks_and_only_then() -> None:
    rng = stream(1, "coverage")
    # 95 % nominal; the percentile bootstrap of 80 blocks runs a little short. Three standard errors below 93 %.
    assert _coverage(80, 10, dependent=True, repetitions=400, rng=rng) > 0.89
    # The control: taking dependent records for independent ones makes it far too narrow.
    assert _coverage(80, 10, dependent=False, repetitions=200, rng=rng) < 0.7


def test_pool_is_a_uniform_sample_with_every_useful_class() -> None:
    labels = {"u": np.arange(100) % 4}
    useful = (Attribute("u", ("a", "b", "c", "d"), "useful"),)
    donors = sample_pool(labels, useful, 100, PoolConfig(40), stream(1, "pool"))
    assert len(set(donors.tolist())) == 40
    assert (np.diff(donors) > 0).all()
    assert (donors == sample_pool(labels, useful, 100, PoolConfig(40), stream(1, "pool"))).all()
    counts = np.zeros(100)
    for seed in range(300):
        counts[sample_pool(labels, useful, 100, PoolConfig(40), stream(seed, "pool"))] += 1
    # 300 draws of 40 in 100: each index 120 times, standard deviation 8.5; five of them.
    assert np.abs(counts - 120).max() < 43


def test_pool_that_cannot_serve_is_an_error() -> None:
    useful = (Attribute("u", ("a", "b"), "useful"),)
    with pytest.raises(DataError, match="at most the 3 training records"):
        sample_pool({"u": np.zeros(3, dtype=np.int64)}, useful, 3, PoolConfig(4), stream(1, "p"))
    rare = np.zeros(1000, dtype=np.int64)
    rare[0] = 1
    with pytest.raises(DataError, match="none for 1 class"):
        sample_pool({"u": rare}, useful, 1000, PoolConfig(2), stream(1, "p"))
