"""Membership: memory is shown, smoothness is not, the pool itself is no memory, and few others decide nothing."""

from dataclasses import replace

import numpy as np
import pytest

from pass_core.auditing.analyses.membership import ANALYSIS, Membership, find_membership
from pass_core.auditing.subject import Part, Subject
from pass_core.auditing.thresholds import Thresholds
from pass_core.data import Attribute, FloatArray, IntArray
from pass_core.randomness import stream
from tests.pass_core.channels import normalised, part_of, subject_of

SHAPE = Attribute("shape", ("a", "b"), "useful")
N, POOL = 600, 40


def _rng_for(*labels: str) -> np.random.Generator:
    return stream(8, *labels)


def _parts(persons: IntArray | None = None, test_persons: IntArray | None = None) -> tuple[Part, Part]:
    """Recordings of ten records; train and test have recordings of their own."""
    labels, who = {"shape": np.arange(N) % 2}, np.zeros(N, dtype=np.int64)
    train = part_of(labels, who if persons is None else persons, np.arange(N) // 10)
    return train, part_of(labels, who if test_persons is None else test_persons, N + np.arange(N) // 10)


def _smooth(seed: int) -> FloatArray:
    """A function of places in the plane: rows differ, records of a recording are alike, nothing knows what was learnt from."""
    rng = stream(seed, "smooth")
    places = rng.normal(size=(N // 10, 2)).repeat(10, axis=0) + 0.3 * rng.normal(size=(N, 2))
    return normalised(np.exp(places @ stream(0, "donors").normal(size=(2, POOL))))


def _sharpened(table: FloatArray, rows: IntArray) -> FloatArray:
    sharp = table.copy()
    sharp[rows] = normalised(table[rows] ** 4)
    return sharp


DONOR_ROWS = np.arange(0, 80, 2)
LEARNT_FROM = np.arange(300)


def _find(tables: tuple[FloatArray, FloatArray], learnt_from: IntArray | None = LEARNT_FROM) -> Membership:
    subject = subject_of((SHAPE,), _parts(), tables, DONOR_ROWS, np.zeros(POOL, int), learnt_from)
    found = find_membership(subject, _rng_for)
    assert found is not None
    return found


def _outcomes(found: Membership) -> list[str]:
    return [check.outcome for check in ANALYSIS.checks(found, Thresholds())]


@pytest.mark.parametrize("seeds", [range(5), pytest.param(range(5, 25), marks=pytest.mark.slow)])
def test_a_channel_that_is_smooth_raises_no_alarm(seeds: range) -> None:
    covered = []
    for seed in seeds:
        found = _find((_smooth(seed), _smooth(seed + 100)))
        assert (found.members, found.non_members, found.against) == (300 - POOL, 300, "held-out training records")
        assert (found.unit, found.non_member_units) == ("recording", 15)
        covered.append(found.auc.low <= 0.5 <= found.auc.high)
        assert "leak shown" not in _outcomes(found)
    assert np.mean(covered) >= 0.8  # few enough seeds that one or two of them may miss by chance


def test_what_is_sharper_on_learnt_records_is_found() -> None:
    table = np.tile(_smooth(1)[:1], (N, 1))
    tables = _sharpened(table, LEARNT_FROM), table
    found = _find(tables)
    assert found.auc.value == 1
    assert found.auc.low > 0.8
    assert _outcomes(found) == ["leak shown", "cannot be decided"]


def test_memory_among_rows_that_differ_anyway_is_found() -> None:
    tables = _sharpened(_smooth(1), LEARNT_FROM), _smooth(2)
    found = _find(tables)
    assert _outcomes(found)[0] == "leak shown"


def test_loyalty_to_the_own_class_is_memory_too() -> None:
    """All rows are as sharp; those of learnt records lie on donors of their own class, the others' on either."""
    rng = stream(9, "loyal")
    table = np.stack([rng.permutation(row) for row in np.tile(_smooth(1)[:1], (N, 1))])
    donor_rows = np.arange(POOL)  # even donors are of class 0
    own = (np.arange(N)[:, None] % 2) == (np.arange(POOL) % 2)
    loyal = table.copy()
    for row in LEARNT_FROM:
        order = np.argsort(~own[row], kind="stable")
        loyal[row, order] = np.sort(table[row])[::-1]
    subject = subject_of((SHAPE,), _parts(), (loyal, table), donor_rows, np.zeros(POOL, int), LEARNT_FROM)
    found = find_membership(subject, _rng_for)
    assert found is not None
    assert found.auc.value > 0.95


def test_few_held_out_records_are_replaced_by_test_records() -> None:
    """And a test record that is treated like the others gives nothing away."""
    tables = _smooth(1), _smooth(2)
    for learnt_from in (None, np.arange(N - 49)):
        subject = subject_of((SHAPE,), _parts(), tables, DONOR_ROWS, np.zeros(POOL, int), learnt_from)
        found = find_membership(subject, _rng_for)
        assert found is not None
        assert found.against.startswith("test records")
        assert found.non_members == N
        assert found.auc.low <= 0.5 <= found.auc.high


def test_that_the_pool_holds_nobody_of_a_person_is_no_memory() -> None:
    """Test persons are strangers: their own mass is zero, which is the pool's doing."""
    persons = np.arange(N) // 10
    parts = _parts(persons, persons + 1000)
    found = find_membership(subject_of((SHAPE,), parts, (_smooth(1), _smooth(2)), DONOR_ROWS, persons[DONOR_ROWS]), _rng_for)
    assert found is not None
    assert (found.unit, found.non_member_units) == ("person", 30)
    assert found.auc.low <= 0.5 <= found.auc.high


def test_donors_are_no_members() -> None:
    """A channel that knows its donors alone tells nothing: that they were in training is published."""
    table = np.tile(_smooth(1)[:1], (N, 1))
    tables = _sharpened(table, DONOR_ROWS), table
    found = _find(tables)
    assert found.auc.value == pytest.approx(0.5)


def test_nothing_is_found_where_nothing_can_be_compared() -> None:
    train, test = _parts()
    everyone = subject_of((SHAPE,), (train, test), (np.full((N, N), 1 / N, np.float32),) * 2, np.arange(N), np.zeros(N, int))
    assert find_membership(everyone, _rng_for) is None
    assert find_membership(replace(everyone, substitution=None), _rng_for) is None
    assert "nobody can say which records the protector learnt from" in str(list(ANALYSIS.section(None)))


def test_too_few_persons_are_not_compared() -> None:
    """Three persons on one side: two would teach the attack, and one cannot be told from a person of another kind."""
    persons = np.arange(N) // 200
    subject = subject_of((SHAPE,), _parts(persons, persons + 1000), (_smooth(1), _smooth(2)), DONOR_ROWS, persons[DONOR_ROWS])
    assert find_membership(subject, _rng_for) is None


def _independent(seed: int, remembered: float) -> Subject:
    """Independent records of which the protector remembers a share of those it learnt from: their rows are the sharpest."""
    n, rng = 4000, stream(seed, "independent")
    table = normalised(np.exp(rng.normal(size=(n, 2)) @ stream(0, "donors").normal(size=(2, POOL))))
    known = np.flatnonzero(rng.random(n // 2) < remembered)
    table[known] = np.eye(POOL, dtype=np.float32)[rng.integers(0, POOL, len(known))]
    train, test = (part_of({"shape": np.arange(n) % 2}, np.zeros(n, int), first + np.arange(n)) for first in (0, n))
    return subject_of((SHAPE,), (train, test), (table, table), DONOR_ROWS, np.zeros(POOL, int), np.arange(n // 2))


def test_a_protector_that_remembers_one_record_in_ten_is_shown_by_its_rate_alone() -> None:
    found = find_membership(_independent(1, 0.1), _rng_for)
    assert found is not None
    assert _outcomes(found) == ["below the limit", "leak shown"]
    one_percent, one_in_thousand = found.recognised
    assert one_percent.rate is not None
    assert one_percent.rate.low > 0.05
    assert one_in_thousand.rate is None
    assert 0.001 < found.smallest_false_alarms < 0.01
    text = str(list(ANALYSIS.section(found)))
    assert "Recognised with 0.1% false alarms" in text
    assert "cannot be decided" in text


@pytest.mark.parametrize("seeds", [range(5), pytest.param(range(5, 25), marks=pytest.mark.slow)])
def test_independent_records_that_nobody_remembers_raise_no_alarm(seeds: range) -> None:
    for seed in seeds:
        found = find_membership(_independent(seed, 0.0), _rng_for)
        assert found is not None
        assert _outcomes(found)[0] == "below the limit"
        assert _outcomes(found)[1] != "leak shown"
