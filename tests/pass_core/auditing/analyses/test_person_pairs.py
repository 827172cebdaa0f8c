"""Pairs of one person's releases: a secret split between two releases is shown, and nothing where nothing is."""

import pytest

from pass_core.auditing.analyses.person_pairs import ANALYSIS, find_person_pairs
from pass_core.auditing.exact_attacker import Audited
from pass_core.auditing.recipient import Recipient
from pass_core.auditing.thresholds import Thresholds
from pass_core.auditing.verdict import judge
from tests.pass_core.auditing.analyses.releases import World, audited, split_secret

PRIVATE = {
    "persons": World(),
    "few persons": World(persons=24),
    "enrolled": World(persons=60, enrolled=True),
    "useful class reveals": World(persons=100, skew=0.5),
}


def _outcome(one: Audited) -> str:
    found = find_person_pairs(one)
    assert found is not None
    (check,) = judge((), {"person_pairs": found}, Thresholds(), one.subject.population)
    return check.outcome


@pytest.mark.parametrize("world", [World(records=8000, persons=800), World(records=8000, persons=60, enrolled=True)])
def test_a_secret_split_between_two_releases_is_shown(world: World) -> None:
    assert _outcome(audited(world, 1, split_secret)) == "leak shown"


@pytest.mark.parametrize("name", PRIVATE)
def test_random_donors_reveal_nothing(name: str) -> None:
    assert _outcome(audited(PRIVATE[name], 1)) != "leak shown"


@pytest.mark.slow
@pytest.mark.parametrize("name", PRIVATE)
def test_false_alarms_are_rare(name: str) -> None:
    assert [_outcome(audited(PRIVATE[name], seed)) for seed in range(100, 120)].count("leak shown") == 0


@pytest.mark.slow
@pytest.mark.parametrize("world", [World(records=8000, persons=800), World(records=8000, persons=60)])
def test_power(world: World) -> None:
    assert [_outcome(audited(world, seed, split_secret)) for seed in range(20)].count("leak shown") >= 19


def test_what_data_do_not_allow_is_not_analysed() -> None:
    assert find_person_pairs(audited(World(records=500, persons=500), 1)) is None
    assert find_person_pairs(audited(World(), 1, recipient=Recipient(records_per_person=1))) is None
    assert find_person_pairs(audited(World(records=500, persons=5), 1)) is None
    assert "Not analysed" in str(list(ANALYSIS.section(None)))
