"""The permutation null: silent on channels that tell nothing, loud on those that do, and dealt out over persons."""

import numpy as np
import pytest

from pass_core.data import DoubleArray, IntArray
from pass_core.nulls import compare_with_null
from pass_core.randomness import stream

PERSONS, POOL = 40, 200


def _law(leak: float, seed: int) -> tuple[DoubleArray, IntArray]:
    """Every person has a few donors of its own; a share `leak` of the releases shows donors of the person's class."""
    rng = stream(seed, "null")
    classes = (np.arange(PERSONS) % 4 == 0).astype(np.int64)
    law: DoubleArray = np.zeros((PERSONS, POOL))
    for person in range(PERSONS):
        law[person, rng.integers(0, POOL - 2, 5)] += (1 - leak) / 5
        law[person, POOL - 2 + classes[person]] += leak
    return law / PERSONS, classes


def test_habits_of_persons_are_no_leak_of_their_class() -> None:
    """p-values of 40 channels that tell nothing: about a twentieth is below 0.05, and information is far from zero."""
    found = [compare_with_null(*_law(0.0, seed), 2, stream(seed, "deal"), 60) for seed in range(40)]
    assert np.mean([c.p_value < 0.05 for c in found]) <= 0.2
    assert np.mean([c.found for c in found]) > 0.2
    assert abs(np.mean([c.excess / c.deviation for c in found])) < 0.5


@pytest.mark.parametrize("leak", [0.2, 1.0])
def test_a_leak_is_found(leak: float) -> None:
    comparison = compare_with_null(*_law(leak, 1), 2, stream(1, "deal"), 100)
    assert comparison.p_value <= 0.01
    assert comparison.excess > 3 * comparison.deviation


def test_the_smallest_p_value_counts_the_true_assignment() -> None:
    law, classes = _law(1.0, 2)
    assert compare_with_null(law, classes, 2, stream(2, "deal"), 9).p_value == pytest.approx(0.1)
