"""Releases linked to each other: traces of a person or a record are found; useful classes alone are none."""

import numpy as np
import pytest

from pass_core.auditing.analyses.release_linkability import ANALYSIS, find_linkability
from pass_core.auditing.subject import Part
from pass_core.auditing.thresholds import Thresholds
from pass_core.data import FloatArray
from tests.pass_core.auditing.analyses.releases import World, audited, verbatim


def test_originals_of_one_person_are_linked() -> None:
    found = find_linkability(audited(World(), 1, verbatim(1.0)))
    assert found is not None
    (person,) = found.kinds
    assert person.of == "person"
    assert person.originals_auc is not None
    assert person.auc.value == pytest.approx(person.originals_auc.value, abs=0.03)
    assert [check.outcome for check in ANALYSIS.checks(found, Thresholds())] == ["leak shown"]


@pytest.mark.parametrize("world", [World(), World(persons=24, enrolled=True), World(skew=0.9, persons=40)])
def test_random_donors_are_not_linked(world: World) -> None:
    """Also where persons differ in their useful classes, which a release keeps."""
    for seed in range(1, 3):
        found = find_linkability(audited(world, seed))
        assert found is not None
        assert found.kinds[0].auc.value < 0.56
        assert found.kinds[0].originals_auc is not None
        assert found.kinds[0].originals_auc.low > 0.6  # the attack works where nothing protects
        assert next(check.outcome for check in ANALYSIS.checks(found, Thresholds())) != "leak shown"


def _trace(part: Part, made: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Keeps one feature of the record."""
    shown = made.copy()
    shown[:, 2] = part.records.features[:, 2] + 0.2 * rng.normal(size=len(part))
    return shown


def test_two_releases_of_one_record_are_linked_by_a_trace() -> None:
    world = World(records=1000, persons=1000)
    found = find_linkability(audited(world, 1, _trace, times=2))
    assert found is not None
    assert [one.of for one in found.kinds] == ["record"]
    assert found.kinds[0].auc.low > 0.6
    private = find_linkability(audited(world, 1, times=2))
    assert private is not None
    assert private.kinds[0].auc.low < 0.55


def test_without_pairs_nothing_is_analysed() -> None:
    assert find_linkability(audited(World(records=500, persons=500), 1)) is None
    assert "Not analysed" in str(list(ANALYSIS.section(None)))
