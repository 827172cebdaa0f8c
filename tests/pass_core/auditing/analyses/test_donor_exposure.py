"""Donors: uses, exposure and meetings against tables that say what they are."""

from dataclasses import replace

import numpy as np
import pytest

from pass_core.auditing.analyses.donor_exposure import find_donors
from pass_core.data import Attribute
from pass_core.randomness import stream
from tests.pass_core.channels import normalised, part_of, subject_of

ACTIVITY = Attribute("activity", ("a", "b"), "useful")
N, POOL = 400, 8
PERSONS = np.arange(N) // 100  # four persons
PART = part_of({"activity": np.arange(N) % 2}, PERSONS)
DONOR_ROWS = np.arange(POOL) * 50  # two of every person


def test_uses_are_counted_over_what_was_released() -> None:
    table = normalised(stream(1, "table").gamma(0.3, size=(N, POOL)))
    subject = subject_of((ACTIVITY,), (PART, PART), (table, table), DONOR_ROWS, PERSONS[DONOR_ROWS])
    assert subject.substitution is not None
    only_test = find_donors(subject)
    assert only_test is not None
    counts = np.bincount(subject.substitution.drawn, minlength=POOL)
    assert only_test.uses == tuple(sorted(counts.tolist(), reverse=True))
    assert (only_test.releases, only_test.pool_size) == (N, POOL)
    both = find_donors(subject, released_train=np.zeros(N, dtype=np.int64))
    assert both is not None
    assert both.releases == 2 * N
    assert both.largest_share == pytest.approx((N + counts[0]) / (2 * N))
    assert both.largest_exposure == pytest.approx(table.mean(axis=0, dtype=np.float64).max(), abs=1e-6)


def test_meeting_oneself_and_ones_person() -> None:
    """Every donor of the record's own person with 0.4, the record itself among them where it is a donor."""
    table = normalised(np.where(PERSONS[:, None] == PERSONS[DONOR_ROWS], 0.4, 0.2 / 6))
    subject = subject_of((ACTIVITY,), (PART, PART), (table, table), DONOR_ROWS, PERSONS[DONOR_ROWS])
    drawn_for_train = np.where(np.isin(np.arange(N), DONOR_ROWS), np.arange(N) // 50, 0)
    found = find_donors(subject, drawn_for_train)
    assert found is not None
    assert found.expected_same_person_rate == pytest.approx(0.8, abs=1e-6)
    assert found.expected_self_rate == pytest.approx(0.4 * POOL / (2 * N), abs=1e-6)  # donors are training records
    assert found.self_rate == POOL / (2 * N)  # and here they were all given themselves
    only_test = find_donors(subject)
    assert only_test is not None
    assert only_test.self_rate == only_test.expected_self_rate == 0
    assert only_test.same_person_rate == pytest.approx(0.8, abs=0.1)  # five standard deviations of 400 draws


def test_strangers_meet_nobody() -> None:
    table = np.full((N, POOL), 1 / POOL, dtype=np.float32)
    found = find_donors(subject_of((ACTIVITY,), (PART, PART), (table, table)), np.zeros(N, dtype=np.int64))
    assert found is not None
    assert found.self_rate == found.same_person_rate == found.expected_self_rate == found.expected_same_person_rate == 0
    assert found.largest_exposure == pytest.approx(1 / POOL)


def test_a_method_without_a_pool_has_no_donors() -> None:
    table = np.full((N, POOL), 1 / POOL, dtype=np.float32)
    subject = subject_of((ACTIVITY,), (PART, PART), (table, table))
    assert find_donors(replace(subject, substitution=None)) is None
