"""Dealing classes anew over people whose records have several useful classes, which share information with the class."""

import numpy as np
import pytest

from pass_core.data import DoubleArray, IntArray
from pass_core.randomness import stream
from pass_core.statistics.score_test import Dealing, baseline_shares, hedged, score_test

PEOPLE = 900


def _people(seed: int) -> tuple[IntArray, IntArray, IntArray]:
    """Of every record the class, which is its person's, a useful class that is entangled with it, and the person."""
    rng = stream(seed, "people")
    persons = np.repeat(np.arange(PEOPLE), rng.choice([1, 2, 3], PEOPLE, p=[0.7, 0.2, 0.1]))
    labels = (rng.random(PEOPLE) < 0.4).astype(np.int64)[persons]
    useful = (rng.random(len(labels)) < np.where(labels == 1, 0.6, 0.9)).astype(np.int64)
    return labels, useful, persons


def _test(guessed: DoubleArray, labels: IntArray, useful: IntArray, persons: IntArray) -> tuple[float, float]:
    baseline = baseline_shares(labels, 2, useful, useful)
    found = score_test(hedged(guessed, baseline), labels, Dealing.of(labels, persons, useful), stream(1, "chance"))
    assert (found.unit, found.units) == ("group", PEOPLE)
    return found.gain, found.p_value


@pytest.mark.parametrize("seed", range(3))
def test_a_constant_guess_gains_nothing_and_a_leak_is_found(seed: int) -> None:
    labels, useful, persons = _people(seed)
    assert len(np.unique(np.stack([persons, useful]), axis=1).T) > PEOPLE + 50, "people have several useful classes"
    shares = np.bincount(labels) / len(labels)
    constant = np.tile(shares, (len(labels), 1))
    gain, p_value = _test(constant, labels, useful, persons)
    assert abs(gain) < 1e-9  # dealt among all people it would be -0.06 and less
    assert p_value > 0.05
    rng, leaking = stream(seed, "leak"), constant.copy()
    read = rng.random(len(labels)) < 0.15
    leaking[read] = 0.05 + 0.9 * np.eye(2)[labels[read]]
    gain, p_value = _test(leaking, labels, useful, persons)
    assert gain > 0.01
    assert p_value < 1e-3


def test_noise_is_no_leak() -> None:
    """The control: of attackers who guess at random about one in twenty is called significant at 5 %."""
    p_values = []
    for seed in range(60):
        labels, useful, persons = _people(seed)
        one = stream(seed, "noise").random(len(labels))
        p_values.append(_test(np.stack([1 - one, one], axis=1), labels, useful, persons)[1])
    assert np.mean(np.array(p_values) < 0.05) < 0.17


def test_people_with_one_useful_class_are_dealt_within_it() -> None:
    """As it was: where all records of a person share the useful class, that class is the stratum."""
    persons: IntArray = np.array([0, 0, 1, 2, 2, 3])
    dealing = Dealing.of(np.array([0, 0, 1, 0, 0, 1]), persons, np.array([5, 5, 5, 2, 2, 2]))
    assert dealing.strata.tolist() == [1, 1, 0, 0]
