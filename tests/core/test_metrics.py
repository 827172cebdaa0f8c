"""NAG and its intervals."""

import numpy as np
import pytest

from pass_core.errors import AuditError
from pass_core.metrics import balanced_accuracy, majority_class, mean_nag, nag
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
