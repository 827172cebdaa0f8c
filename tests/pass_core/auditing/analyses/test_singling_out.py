"""Singling out: originals released as they are are singled out; random donors single out nobody more than the control."""

import pytest

from pass_core.auditing.analyses.singling_out import ANALYSIS, find_singling_out
from pass_core.auditing.thresholds import Thresholds
from tests.pass_core.auditing.analyses.releases import World, audited, verbatim

WORLDS = [
    World(),
    World(persons=24, enrolled=True),
    World(features=40),
    World(digits=0),
    World(records=300, persons=300),
]


def test_originals_are_singled_out() -> None:
    found = find_singling_out(audited(World(records=3000, persons=3000), 1, verbatim(1.0)))
    assert found is not None
    assert [one.kind for one in found.risks] == ["one feature", "several features"]
    several = found.risks[1]
    assert several.main > 0.9
    assert several.control < 0.5
    assert several.baseline < 0.3
    assert {check.outcome for check in ANALYSIS.checks(found, Thresholds())} == {"leak shown"}


def test_a_fifth_verbatim_is_shown_by_several_features() -> None:
    found = find_singling_out(audited(World(records=3000, persons=3000), 1, verbatim(0.2)))
    assert found is not None
    assert next(iter(ANALYSIS.checks(found, Thresholds()))).outcome == "leak shown"


@pytest.mark.parametrize("world", WORLDS)
def test_random_donors_single_out_nobody(world: World) -> None:
    for seed in range(500, 502 if world.records > 300 else 512):
        found = find_singling_out(audited(world, seed))
        assert found is not None
        assert "leak shown" not in {check.outcome for check in ANALYSIS.checks(found, Thresholds())}, (seed, found)


def test_too_few_records_are_not_analysed() -> None:
    assert find_singling_out(audited(World(records=60, persons=60), 1)) is None
    assert "Not analysed" in str(list(ANALYSIS.section(None)))
