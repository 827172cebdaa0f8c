"""The permutation null: silent on channels that tell nothing, loud on those that do, and dealt out over persons."""

import numpy as np
import pytest

from pass_core.channel.joint_law import mutual_information
from pass_core.data import DoubleArray, FloatArray, IntArray, one_hot
from pass_core.randomness import stream
from pass_core.statistics import null_distribution
from pass_core.statistics.null_distribution import (
    CellSums,
    NullComparison,
    StreamedSums,
    Units,
    choose_units,
    compare_with_null,
    donor_sums,
)
from tests.pass_core.channels import TableChannel, row_numbers

PERSONS, RECORDS, POOL = 40, 10, 200
PERSON: IntArray = np.repeat(np.arange(PERSONS), RECORDS)
BLOCK: IntArray = np.arange(PERSONS * RECORDS) // 2  # two records a recording
CLASSES: IntArray = (np.arange(PERSONS) % 4 == 0).astype(np.int64)


def _habits(leak: float, seed: int, classes: IntArray = CLASSES) -> DoubleArray:
    """(persons, pool) law: every person has a few donors of its own; a share `leak` of the releases shows the class's donor."""
    rng = stream(seed, "null")
    law: DoubleArray = np.zeros((len(classes), POOL))
    for person, own in enumerate(classes):
        law[person, rng.integers(0, POOL - 2, 5)] += (1 - leak) / 5
        law[person, POOL - 2 + own] += leak
    return law / law.sum(axis=1, keepdims=True)


def _over_persons(law: DoubleArray, classes: IntArray, seed: int, permutations: int) -> NullComparison:
    """One record a person."""
    each = np.arange(len(law))
    units = Units("person", each, np.zeros_like(each))
    return compare_with_null(CellSums(law / len(law), each), classes, units, stream(seed, "deal"), permutations=permutations)[0]


def test_habits_of_persons_are_no_leak_of_their_class() -> None:
    """p-values of 400 channels that tell nothing are those of chance, although information is far from zero."""
    found = [_over_persons(_habits(0.0, seed), CLASSES, seed, 60) for seed in range(400)]
    p_values = np.array([c.p_value for c in found])
    # Four standard deviations above 5 % and 1 %.
    assert (p_values <= 0.05).mean() < 0.05 + 4 * 0.011
    assert (p_values <= 0.01).mean() < 0.01 + 4 * 0.005
    assert (p_values <= 0.5).mean() > 0.3  # nor are they all large
    assert np.mean([c.found for c in found]) > 0.2
    assert abs(np.mean([c.excess / c.null_deviation for c in found])) < 0.2


def test_dealing_over_records_would_call_habits_a_leak() -> None:
    """The control: the same channel, each person's records taken for independent ones."""
    law, labels = _habits(0.0, 1)[PERSON], CLASSES[PERSON]
    sums = CellSums(law / len(law), np.arange(len(law)))
    p_values = {}
    for name, groups in (("person", PERSON), ("record", np.arange(len(PERSON)))):
        units = Units(name, groups, np.zeros(int(groups.max()) + 1, dtype=np.int64))
        p_values[name] = compare_with_null(sums, labels, units, stream(1, name), permutations=100)[0].p_value
    assert p_values["record"] < 1e-6
    assert p_values["person"] > 0.01


@pytest.mark.parametrize("leak", [0.2, 1.0])
def test_a_leak_is_found(leak: float) -> None:
    comparison = _over_persons(_habits(leak, 1), CLASSES, 1, 100)
    assert comparison.p_value < 0.001
    assert comparison.excess > 3 * comparison.null_deviation


def test_few_permutations_show_a_small_p_value_by_the_tail() -> None:
    """Nine permutations alone could not show less than a tenth."""
    assert _over_persons(_habits(1.0, 2), CLASSES, 2, 9).p_value < 0.01


@pytest.mark.parametrize("leak", [0.0, 1.0])
def test_few_persons_cannot_show_more_than_their_number_allows(leak: float) -> None:
    """Six persons, three of each class, can be dealt in 20 ways: nothing about them is rarer than one in 20."""
    classes = np.arange(6) % 2
    for seed in range(20):
        assert _over_persons(_habits(leak, seed, classes), classes, seed, 200).p_value >= 1 / 20


def _records(n: int, seed: int, leak: float) -> tuple[IntArray, IntArray, DoubleArray]:
    """Records whose known class the channel shows, on which the private class depends; and P(.|x)."""
    rng = stream(seed, "side")
    known = rng.integers(0, 2, n)
    private = (rng.random(n) < np.where(known == 1, 0.9, 0.1)).astype(np.int64)
    own, other = one_hot(2 * known + private, 4), np.repeat(one_hot(known, 2), 2, axis=1) / 2
    return private, known, leak * own + (1 - leak) * other


def test_what_the_attacker_knows_is_no_leak() -> None:
    """The channel tells a class that the private one goes with, and nothing beside: I(X';S) is large, I(X';S|K) is chance."""
    p_values = []
    for seed in range(60):
        private, known, p = _records(400, seed, leak=0.0)
        sums = CellSums(p / len(p), np.arange(len(p)))
        units = choose_units(private, [known], np.arange(400), np.arange(400))
        knowing, each = compare_with_null(sums, private, units, stream(seed, "deal"), permutations=60, known=known)
        p_values.append([knowing.p_value, *(c.p_value for c in each.values())])
        blind = choose_units(private, [], np.arange(400), np.arange(400))
        assert compare_with_null(sums, private, blind, stream(seed, "deal"), permutations=60)[0].p_value < 1e-6
    assert (np.array(p_values) < 0.01).mean() < 0.05


def test_what_the_release_adds_to_what_is_known_is_found() -> None:
    private, known, p = _records(2000, 1, leak=0.3)
    units = choose_units(private, [known], np.arange(2000), np.arange(2000))
    knowing, each = compare_with_null(
        CellSums(p / 2000, np.arange(2000)), private, units, stream(1, "deal"), permutations=100, known=known
    )
    assert max(knowing.p_value, *(c.p_value for c in each.values())) < 1e-6
    shares = np.bincount(known) / 2000
    assert knowing.found == pytest.approx(sum(shares[k] * each[k].found for k in (0, 1)))
    for k in (0, 1):
        inside = known == k
        table = one_hot(private[inside], 2).T @ p[inside] / inside.sum()
        assert each[k].found == pytest.approx(mutual_information(table), abs=1e-9)


def test_units_are_the_largest_that_mean_something() -> None:
    records = np.arange(len(PERSON))
    activity = BLOCK % 3  # of a recording
    of_person = choose_units(CLASSES[PERSON], [activity], PERSON, BLOCK)
    assert (of_person.name, of_person.number) == ("person", PERSONS)
    assert (of_person.strata == 0).all()  # a person has several activities, and cannot keep one
    accent = np.arange(PERSONS) % 5
    assert (choose_units(CLASSES[PERSON], [activity, accent[PERSON]], PERSON, BLOCK).strata == accent).all()
    identity = choose_units(PERSON, [activity], PERSON, BLOCK)
    assert (identity.name, identity.number) == ("recording", len(BLOCK) // 2)
    assert len(np.unique(identity.strata)) == 3
    emotion = choose_units(records % 2, [activity], PERSON, BLOCK)
    assert (emotion.name, emotion.number) == ("record", len(PERSON))


def test_sums_are_the_same_held_or_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 60
    table: FloatArray = stream(3, "table").dirichlet(np.ones(7), n).astype(np.float32)
    labels, cells = np.arange(n) % 3, np.arange(n) % 12
    table = table[cells]  # records of a cell are alike, so that their sums are all there is
    channel = TableChannel(table, rows_at_once=16)
    held = donor_sums(channel, row_numbers(n), [cells])
    monkeypatch.setattr(null_distribution, "MOST_CELLS", 2)
    streamed = donor_sums(channel, row_numbers(n), [cells])
    assert isinstance(held, CellSums)
    assert isinstance(streamed, StreamedSums)
    codes = np.stack([labels, (labels + 1) % 3 + 3])
    assert held.tables(codes, 6) == pytest.approx(streamed.tables(codes, 6), abs=1e-7)
    assert held.tables(codes, 6)[:3] == pytest.approx(one_hot(labels, 3).T @ table / n, abs=1e-7)
