"""NAG and its kin against figures worked out by hand; their intervals are in test_statistics."""

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from pass_core.data import DoubleArray, IntArray
from pass_core.errors import AuditError
from pass_core.randomness import stream
from pass_core.statistics.intervals import Blocks
from pass_core.statistics.nag import (
    Scoring,
    class_shares,
    guessed_hits,
    hits_of,
    majority_class,
    mean_nag,
    mean_nag_estimate,
    nag,
)
from pass_core.statistics.score_test import Dealing, hedged, score_test


def _scoring(labels: IntArray, control: DoubleArray | None = None) -> Scoring:
    blocks = Blocks.of(np.arange(len(labels)), labels)
    return Scoring(labels, blocks, guessed_hits(labels), np.ones(len(labels)) if control is None else control)


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


def test_mean_nag_with_its_interval() -> None:
    labels = np.arange(200) % 2
    scoring = _scoring(labels)
    right, half = np.ones(200), (np.arange(200) % 8 < 6).astype(np.float64)  # accuracy 0.75 is NAG 0.5
    told = mean_nag_estimate([(scoring, half)], [(scoring, right), (scoring, half)], scoring.blocks)
    assert told.value == pytest.approx((1 + 0.5) / 2 - 0.5)
    assert told.low < told.value < told.high


def test_guessing_is_the_best_constant_on_the_records_scored() -> None:
    """Whatever the training records' majority: a constant never beats it. A guess by the useful class may be better."""
    assert majority_class(np.array([0, 0, 0, 1])) == 0
    assert class_shares(np.array([0, 0, 0, 2]), 3) == pytest.approx([0.75, 0, 0.25])
    labels = np.array([1, 1, 0, 1])
    assert _scoring(labels).guess == 0.75
    assert guessed_hits(labels, np.array([1, 1, 0, 1])).mean() == 1
    assert guessed_hits(labels, np.array([0, 0, 0, 0])).mean() == 0.75
    assert hits_of(np.array([[0.4, 0.6], [0.9, 0.1]]), np.array([1, 1])).tolist() == [1.0, 0.0]


def test_nag_is_one_on_originals_and_zero_below_guessing() -> None:
    labels = np.arange(100) % 2
    control = (np.arange(100) % 10 > 0).astype(np.float64)
    scoring = _scoring(labels, control)
    same = scoring.nag(control)
    assert (same.value, same.low, same.high) == (1, 1, 1)
    worse = scoring.nag(np.zeros(100))
    assert (worse.value, worse.low) == (0, 0)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_balanced_accuracy_and_auc_are_scikit_learns(n_classes: int) -> None:
    rng = stream(1, "figures", str(n_classes))
    labels = rng.choice(n_classes, 300, p=np.arange(1, n_classes + 1) / np.arange(1, n_classes + 1).sum())
    logits = np.round(rng.normal(size=(300, n_classes)), 1)  # with ties
    logits[np.arange(300), labels] += 0.5
    told = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    scoring = _scoring(labels)
    assert scoring.balanced_accuracy(hits_of(told, labels)).value == pytest.approx(
        balanced_accuracy_score(labels, told.argmax(axis=1))
    )
    expected = roc_auc_score(labels, told[:, 1]) if n_classes == 2 else roc_auc_score(labels, told, multi_class="ovr")
    assert scoring.auc(told).value == pytest.approx(expected)


def test_rare_class_is_seen_by_balance_and_auc_when_accuracy_is_blind() -> None:
    """80 of 100: an attack that never says the rare class but leans to it has NAG 0."""
    labels = (np.arange(500) % 5 == 0).astype(np.int64)
    rare = 0.2 + 0.2 * labels + stream(2, "lean").normal(0, 0.02, 500)
    told = np.stack([1 - rare, rare], axis=1)
    scoring = _scoring(labels)
    assert scoring.nag(hits_of(told, labels)).value == 0
    assert scoring.auc(told).low > 0.95
    every = Dealing.of(labels, np.arange(500), np.zeros_like(labels))
    found = score_test(hedged(told, class_shares(labels, 2)), labels, every, stream(2, "chance"))
    assert found.end(0.001) > 0
    assert found.p_value < 1e-6


def test_gain_of_the_class_shares_is_nothing() -> None:
    labels = np.arange(60) % 3
    prior, every = np.array([0.5, 0.25, 0.25]), Dealing.of(labels, np.arange(60), np.zeros_like(labels))
    found = score_test(hedged(np.tile(prior, (60, 1)), prior), labels, every, stream(2, "nothing"))
    assert (found.gain, found.p_value) == (0, 1)
    certain_and_wrong = hedged(np.eye(3)[(labels + 1) % 3], prior)
    assert certain_and_wrong[np.arange(60), labels] == pytest.approx(np.log(0.5))  # hedged: never worse than that
