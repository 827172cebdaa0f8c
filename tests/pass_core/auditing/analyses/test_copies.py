"""Copies: records released as themselves are shown; similar donors and values that many records share are not."""

import numpy as np
import pytest

from pass_core.auditing.analyses.copies import ANALYSIS, find_copies
from pass_core.auditing.exact_attacker import Audited
from pass_core.auditing.findings import Check
from pass_core.auditing.thresholds import Thresholds
from pass_core.data import Attribute
from tests.pass_core.auditing.analyses.releases import World, audited, nearest_donor, verbatim
from tests.pass_core.channels import part_of, subject_of


def _outcomes(one: Audited) -> dict[str, str]:
    return {check.about: check.outcome for check in _checks(one)}


def _checks(one: Audited) -> list[Check]:
    return list(ANALYSIS.checks(find_copies(one), Thresholds()))


@pytest.mark.parametrize("world", [World(records=8000, persons=8000), World(records=8000, persons=60, enrolled=True)])
def test_two_percent_verbatim_are_shown(world: World) -> None:
    assert set(_outcomes(audited(world, 1, verbatim(0.02))).values()) == {"leak shown"}


def test_a_little_noise_makes_a_near_copy_and_no_exact_one() -> None:
    outcomes = _outcomes(audited(World(records=8000, persons=8000), 1, verbatim(0.02, noise=0.01)))
    assert outcomes == {
        "exact copies of test records": "below the limit",
        "near copies of test records": "leak shown",
        "exact copies of training records": "below the limit",
        "near copies of training records": "leak shown",
    }


@pytest.mark.parametrize(
    "world",
    [World(), World(records=300, persons=300), World(features=2), World(digits=0, features=2), World(digits=0, features=1)],
)
def test_random_donors_are_no_copies(world: World) -> None:
    """Also where records have few values, so that a release often equals its original."""
    for seed in range(6):
        found = _outcomes(audited(world, seed))
        assert "leak shown" not in found.values(), (seed, found)


def test_few_values_are_equal_by_chance_and_copies_are_shown_above_it() -> None:
    world = World(records=8000, persons=8000, digits=0, features=1)
    (found, *_) = find_copies(audited(world, 1)).shares
    assert found.share.value > 0.2
    assert found.share.value == pytest.approx(found.control, abs=0.03)
    assert _outcomes(audited(world, 1, verbatim(0.1)))["exact copies of test records"] == "leak shown"


@pytest.mark.parametrize("features", [1, 2, 4])
def test_the_most_similar_donor_is_no_copy(features: int) -> None:
    world = World(records=1500, persons=1500, features=features)
    donors = World(records=1500, persons=1500, features=features).part(77, "train").records.features
    for seed in range(2):
        found = _outcomes(audited(world, seed, nearest_donor(donors)))
        assert "leak shown" not in found.values(), (seed, found)


def test_a_record_drawn_as_its_own_donor_is_a_copy() -> None:
    """Donors are the training records; the copies are training records', never test records'."""
    n, useful = 1000, Attribute("u", ("a", "b"), "useful")
    part = part_of({"u": np.arange(n) % 2}, np.arange(n))
    same = (np.arange(n)[:, None] % 2 == np.arange(n) % 2).astype(np.float64)
    for own, shown in ((0.05, True), (0.0, False)):
        table = ((1 - own) * same / same.sum(axis=1, keepdims=True) + own * np.eye(n)).astype(np.float32)
        subject = subject_of((useful,), (part, part), (table, table), donor_rows=np.arange(n))
        found = _outcomes(Audited(subject=subject, depth=audited(World(records=10), 0).depth, rng_for=_rng_for))
        assert (found["exact copies of training records"] == "leak shown") == shown
        assert found["exact copies of test records"] != "leak shown"


def _rng_for(*labels: str) -> np.random.Generator:
    return np.random.default_rng(len(labels))


def test_the_section_says_what_is_counted() -> None:
    assert "Not analysed" in str(list(ANALYSIS.section(None)))
    assert "not similarity" in str(list(ANALYSIS.section(find_copies(audited(World(), 1)))))
