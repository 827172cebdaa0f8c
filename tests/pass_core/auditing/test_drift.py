"""Drift of records without labels: silent on the same distribution, loud on another, and no louder than chance by chance."""

from collections.abc import Callable

import numpy as np
import pytest

from pass_core.auditing.drift import Side, find_drift, judge_drift
from pass_core.auditing.findings import Drift
from pass_core.auditing.thresholds import Thresholds
from pass_core.channel.draws import inverse_cdf, uniform_words
from pass_core.data import FloatArray, IntArray
from pass_core.errors import AuditError
from pass_core.randomness import stream
from tests.pass_core.channels import TableChannel, normalised

POOL = 40
THRESHOLDS = Thresholds()


def _people(seed: int, side: str, persons: int, each: int, habit: float = 1.0) -> tuple[FloatArray, IntArray]:
    """Records in five dimensions; everybody has a place of their own that `habit` tells how far others' are from."""
    rng = stream(seed, side)
    places = rng.normal(0, habit, (persons, 5))
    numbers = np.repeat(np.arange(persons), each)
    return (places[numbers] + rng.normal(0, 1, (len(numbers), 5))).astype(np.float32), numbers


def _side(features: FloatArray, persons: IntArray, sharpness: float = 1.0, drawn: bool = False, seed: int = 0) -> Side:
    """Rows of P(x'|x) that follow the features: donors stand at fixed places."""
    donors = stream(0, "donors").normal(0, 1.4, (POOL, 5))
    nearness = -sharpness * ((features[:, None] - donors) ** 2).sum(axis=2) / 4
    table = normalised(np.exp(nearness - nearness.max(axis=1, keepdims=True)))
    chosen = inverse_cdf(table, uniform_words(stream(seed, "drawn"), len(table))) if drawn else None

    def channel(rows: IntArray) -> TableChannel:
        return _Ordered(table[rows])

    return Side(features, persons, persons, channel, drawn=chosen)


class _Ordered(TableChannel):
    """Rows in the order in which they are asked for."""

    def blocks(self, features: FloatArray):
        yield slice(0, len(features)), self.table.copy()


def _drifts(reference: Side, new: Side, permutations: int = 100, seed: int = 1) -> dict[str, Drift]:
    return {d.name: d for d in find_drift(reference, new, permutations, lambda *labels: stream(seed, *labels))}


def _failed(drifts: dict[str, Drift]) -> set[str]:
    return {check.name for check in judge_drift(list(drifts.values()), THRESHOLDS) if not check.passed}


def test_same_distribution_passes_and_names_every_check() -> None:
    reference, new = (_side(*_people(2, side, 30, 20), drawn=True) for side in ("old", "new"))
    drifts = _drifts(reference, new)
    assert set(drifts) == {"feature_drift_at_most", "entropy_drift_at_most", "exposure_drift_at_most", "usage_drift_at_most"}
    assert not _failed(drifts)
    assert drifts["feature_drift_at_most"].unit == "person"
    assert drifts["feature_drift_at_most"].units == 60


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda x: x + 1.5, "feature_drift_at_most"),
        (lambda x: x * 3, "feature_drift_at_most"),
        (lambda x: np.concatenate([x[:, :1] + 6, x[:, 1:]], axis=1), "exposure_drift_at_most"),
        (lambda x: x + np.float32(4), "entropy_drift_at_most"),
    ],
    ids=["moved", "wider", "one feature", "far from all donors"],
)
def test_shifted_records_fail(change: Callable[[FloatArray], FloatArray], expected: str) -> None:
    old, persons = _people(3, "old", 30, 20)
    new, others = _people(3, "new", 30, 20)
    assert expected not in _failed(_drifts(_side(old, persons), _side(new, others)))  # the control
    assert expected in _failed(_drifts(_side(old, persons), _side(change(new), others)))


def test_change_of_form_alone_is_seen() -> None:
    """Same mean, same variance of every feature, other dependence between them."""
    rng = stream(4, "form")
    old = rng.normal(0, 1, (600, 2)).astype(np.float32)
    new = np.repeat(rng.normal(0, 1, (600, 1)), 2, axis=1).astype(np.float32)
    records = np.arange(600)
    drifts = _drifts(Side(old, records, records, None), Side(new, records, records, None))
    assert set(drifts) == {"feature_drift_at_most"}  # without a pool nothing else can be looked at
    assert _failed(drifts) == {"feature_drift_at_most"}


def test_sharper_rows_fail_where_features_have_not_moved() -> None:
    old, persons = _people(5, "old", 30, 20)
    new, others = _people(5, "new", 30, 20)
    drifts = _drifts(_side(old, persons), _side(new, others, sharpness=4.0))
    assert "entropy_drift_at_most" in _failed(drifts)
    assert "feature_drift_at_most" not in _failed(drifts)


def test_draws_that_do_not_follow_the_channel_fail() -> None:
    reference, new = (_side(*_people(6, side, 30, 20), drawn=True) for side in ("old", "new"))
    favourite = Side(new.features, new.persons, new.blocks, new.channel, drawn=np.where(np.arange(600) % 4, new.drawn, 0))
    assert "usage_drift_at_most" not in _failed(_drifts(reference, new))
    assert _failed(_drifts(reference, favourite)) == {"usage_drift_at_most"}


def test_other_people_with_habits_of_their_own_are_no_drift() -> None:
    """Everybody is easily told from everybody else; dealt out over records, that alone would be called drift."""
    old, persons = _people(7, "old", 12, 100, habit=3.0)
    new, others = _people(7, "new", 12, 100, habit=3.0)
    by_person = _drifts(_side(old, persons), _side(new, others))["feature_drift_at_most"]
    records = np.arange(len(old))
    by_record = _drifts(_side(old, records), _side(new, records))["feature_drift_at_most"]
    assert by_person.p_value > 0.01
    assert by_record.p_value < 1e-4
    assert by_person.null_mean > by_record.null_mean + 0.05


def test_too_few_people_and_unknown_ones_are_dealt_out_by_record() -> None:
    old, persons = _people(8, "old", 4, 100)
    new, others = _people(8, "new", 1, 100)
    assert _drifts(_side(old, persons), _side(new, others))["feature_drift_at_most"].unit == "record"
    old, persons = _people(8, "old", 40, 10)
    assert _drifts(_side(old, persons), _side(old, np.arange(400)))["feature_drift_at_most"].unit == "record"
    assert _drifts(_side(old, persons), _side(old, persons))["feature_drift_at_most"].unit == "person"


def test_false_alarms_are_as_rare_as_they_say() -> None:
    """400 pairs of samples of one population of people: p below 0.05 about once in twenty, and never a failed check."""
    seen: dict[str, list[float]] = {}
    failures = 0
    for seed in range(400):
        reference, new = (_side(*_people(100 + seed, side, 15, 10), drawn=True, seed=seed) for side in ("old", "new"))
        drifts = _drifts(reference, new, permutations=60, seed=seed)
        failures += bool(_failed(drifts))
        for name, drift in drifts.items():
            seen.setdefault(name, []).append(drift.p_value)
    assert failures <= 4  # 1 % by design, over all figures; exceeding the limits, too, makes it rarer
    for name, p_values in seen.items():
        share = np.mean(np.array(p_values) < 0.05)
        assert share <= 0.083, (name, share)  # 0.05 and three standard deviations
        assert np.mean(np.array(p_values) < 0.5) == pytest.approx(0.5, abs=0.1), name


def test_what_cannot_be_compared_is_told() -> None:
    old, persons = _people(9, "old", 10, 10)
    with pytest.raises(AuditError, match="at least 20 new records, found 5"):
        _drifts(_side(old, persons), _side(old[:5], persons[:5]))
    other = Side(np.zeros((100, 7), dtype=np.float32), persons, persons, None)
    with pytest.raises(AuditError, match=r"features of shape \(5,\), found \(7,\)"):
        _drifts(_side(old, persons), other)
