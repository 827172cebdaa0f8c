"""The verdict's sentences: every threshold on both sides of its limit, and whose verdict a failure is."""

import dataclasses

import pytest

from pass_core.auditing.analyses._record_bundles import Bundle, Bundles
from pass_core.auditing.analyses.linkage import Linkage
from pass_core.auditing.analyses.membership import Membership, Recognised
from pass_core.auditing.analyses.seed_replay import Replay
from pass_core.auditing.analyses.unseen_people import StrangerFindings, Strangers
from pass_core.auditing.findings import (
    AttackFindings,
    AttributeFindings,
    Check,
    DonorLeakage,
    Evidence,
    ExactFindings,
    Information,
    SideInformation,
    Subgroup,
)
from pass_core.auditing.thresholds import Limit, Thresholds
from pass_core.auditing.verdict import judge, outcomes, reasons
from pass_core.data import Role
from pass_core.statistics.intervals import Estimate
from pass_core.statistics.score_test import ScoreTest

THRESHOLDS = Thresholds()
HALF = Estimate(0.5, 0.4, 0.6)
SILENT = Information(found=0.1, null_mean=0.1, null_deviation=0.01, p_value=0.5, excess=0.0, unit="person", units=24)
LEAKING = dataclasses.replace(SILENT, found=0.2, p_value=1e-9, excess=0.1)


CHANCE = ScoreTest(gain=0.0, deviation=0.0001, degrees=100.0, p_value=0.5, unit="record", units=400, records=400)


def _attack(nag: Estimate, auc: Estimate = HALF) -> AttackFindings:
    return AttackFindings(
        name="network", accuracy=HALF, nag=nag, balanced_accuracy=HALF, auc=auc, unprotected_accuracy=0.9, gain=CHANCE
    )


def _row(role: Role, nag: Estimate, name: str = "s", **changed: object) -> AttributeFindings:
    row = AttributeFindings(
        name=name, role=role, combines=(), n_classes=2, guess=0.5, unprotected=HALF, unprotected_attack="network",
        protected=HALF, attack="network", nag=nag, attacks=(_attack(nag),), exact=None, unfinetuned=None, own_adversary=None,
        trained_on_released=None, subgroups=(), side_information=(), through_useful=0.0, evidence=(), verdict=None,
    )  # fmt: skip
    return dataclasses.replace(row, **changed)


def _judge(*rows: AttributeFindings, thresholds: Thresholds = THRESHOLDS, **found: object) -> tuple[Check, ...]:
    return judge(rows, found, thresholds, "enrolled people")


def _subgroup(label: int, records: int, nag: Estimate | None, **changed: object) -> Subgroup:
    group = Subgroup(attribute="u", label=label, records=records, persons=7, nag=nag, exact_nag=None, information=None)
    return dataclasses.replace(group, **changed)


def _one(name: str, checks: tuple[Check, ...]) -> Check:
    return next(check for check in checks if check.name == name)


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [(0.0, 0.15, "below the limit"), (0.0, 0.151, "cannot be decided"), (0.151, 0.3, "leak shown")],
)
def test_whole_interval_on_one_side_of_the_limit_decides(low: float, high: float, outcome: str) -> None:
    check = _one("private_nag_at_most", _judge(_row("private", Estimate(max(low, 0.05), low, high))))
    assert (check.outcome, check.limit, check.attribute) == (outcome, 0.15, "s")
    assert check.population == "enrolled people"
    assert f"({low:.1%} to {high:.1%}) under attack network, at most 15.0% allowed" in check.sentence


def test_what_would_decide_is_said() -> None:
    """An interval of twice the width that is left needs four times as many records."""
    check = _one("private_nag_at_most", _judge(_row("private", Estimate(0.05, 0.0, 0.25))))
    assert (check.outcome, check.units, check.needed) == ("cannot be decided", 400, 1600)
    assert check.detectable == pytest.approx(0.15 + 0.2)
    assert reasons((check,)) == (
        f"cannot be decided: {check.sentence}; about 1600 instead of 400 independent units would decide",
    )
    assert reasons((dataclasses.replace(check, required=False),)) == ()


@pytest.mark.parametrize(("low", "high", "outcome"), [(0.9, 1.0, "kept"), (0.899, 1.0, "cannot be decided"), (0.5, 0.89, "lost")])
def test_utility_has_outcomes_of_its_own(low: float, high: float, outcome: str) -> None:
    checks = _judge(_row("useful", Estimate(0.88, low, high), "u"))
    check = _one("useful_nag_at_least", checks)
    assert (check.outcome, check.attribute) == (outcome, "u")
    assert "read from releases with NAG 88.0%" in check.sentence
    assert outcomes(checks)[1:] == ("below the limit", outcome)  # nothing is said against privacy


def test_verdict_follows_from_both_sides() -> None:
    hidden, kept = _judge(_row("private", Estimate(0, 0, 0.1))), _judge(_row("useful", Estimate(1, 0.95, 1), "u"))
    leak, open_question = _judge(_row("private", Estimate(0.4, 0.3, 0.5))), _judge(_row("private", Estimate(0.1, 0, 0.3)))
    lost = _judge(_row("useful", Estimate(0.1, 0, 0.2), "u"))
    assert outcomes((*hidden, *kept)) == ("pass", "below the limit", "kept")
    assert outcomes((*leak, *kept)) == ("fail", "leak shown", "kept")
    assert outcomes((*hidden, *lost)) == ("fail", "below the limit", "lost")
    assert outcomes((*open_question, *kept)) == ("undecided", "cannot be decided", "kept")
    not_needed = [dataclasses.replace(check, required=False) for check in open_question]
    assert outcomes((*hidden, *not_needed, *kept)) == ("pass", "below the limit", "kept")


def test_area_under_the_curve_is_judged_where_accuracy_is_blind() -> None:
    row = _row("private", Estimate(0, 0, 0), attacks=(_attack(Estimate(0, 0, 0), auc=Estimate(0.86, 0.82, 0.9)),))
    assert _one("private_nag_at_most", _judge(row)).outcome == "below the limit"
    assert _one("private_auc_at_most", _judge(row)).outcome == "leak shown"


def test_general_attributes_are_not_judged() -> None:
    assert _judge(_row("general", Estimate(1.0, 1.0, 1.0))) == ()


def test_the_worst_subgroup_is_judged_and_not_needed_for_a_pass() -> None:
    groups = (
        _subgroup(0, 300, Estimate(0.1, 0.0, 0.9)),
        _subgroup(1, 200, Estimate(0.2, 0.1, 0.3), exact_nag=Estimate(0.3, 0.2, 0.4)),
    )
    check = next(c for c in _judge(_row("private", Estimate(0, 0, 0), subgroups=groups)) if "subgroup" in c.about)
    assert (check.outcome, check.found.low, check.attribute, check.required) == ("leak shown", 0.2, "s", False)
    assert "among 200 records of 7 person(s) of one class of u" in check.sentence
    assert "under an attacker who knows the subgroup" in check.sentence
    declared = (dataclasses.replace(KNOWING_U, judged=False),)  # somebody who does not know the subgroup
    row = _row("private", Estimate(0, 0, 0), subgroups=groups, side_information=declared)
    check = next(c for c in _judge(row) if "subgroup" in c.about)
    assert (check.outcome, "under the worst attack" in check.sentence) == ("cannot be decided", True)


def _evidence(gain: float, p_value: float, *, others: int = 0, required: bool = True) -> AttributeFindings:
    found = Evidence(
        attribute="s", about="s by attack network", population="enrolled people", entropy=0.69, required=required,
        test=dataclasses.replace(CHANCE, gain=gain, p_value=p_value),
    )  # fmt: skip
    silent = dataclasses.replace(found, test=CHANCE, about="s by another attack")
    return _row("private", Estimate(0, 0, 0), evidence=(found, *[silent] * others))


def test_gain_of_attackers_is_judged_over_all_tests_together() -> None:
    def outcome(row: AttributeFindings) -> str:
        return _one("private_gain_at_most", _judge(row)).outcome

    assert outcome(_evidence(0.05, 1e-6)) == "leak shown"
    assert outcome(_evidence(0.05, 0.2)) == "cannot be decided"  # may be chance
    assert outcome(_evidence(0.005, 1e-6)) == "below the limit"  # for certain, and too little to matter
    assert outcome(_evidence(0.05, 0.005)) == "leak shown"
    assert outcome(_evidence(0.05, 0.005, others=9)) == "cannot be decided"  # significance is shared


KNOWING_U = SideInformation(known="u", released=False, guess=0.5, accuracy=HALF, nag=None, information=LEAKING, judged=True)


def _exactly(information: Information, **changed: object) -> AttributeFindings:
    exact = ExactFindings(
        rule=Estimate(0, 0, 0), plug_in=0, bound=0, rule_accuracy=HALF, plug_in_accuracy=0.5, bound_accuracy=0.6,
        balanced_plug_in_accuracy=0.5, information=information, leakage=DonorLeakage(1, 0, {}), certificate=None,
    )  # fmt: skip
    return _row("private", Estimate(0, 0, 0), exact=exact, **changed)


@pytest.mark.parametrize(
    ("row", "strangers", "about"),
    [
        (_exactly(LEAKING), None, "s"),
        (_exactly(SILENT, side_information=(KNOWING_U,)), None, "s, when u is known"),
        (_exactly(SILENT, subgroups=(_subgroup(1, 200, None, information=LEAKING),)), None, "s in a subgroup of u"),
        (_exactly(SILENT), Strangers(5, (StrangerFindings("s", HALF, None, LEAKING),)), "s of unseen people"),
    ],
)
def test_information_is_judged_wherever_it_was_found(row: AttributeFindings, strangers: Strangers | None, about: str) -> None:
    check = _one("information_excess_at_most", _judge(row, strangers=strangers))
    assert (check.outcome, check.about, check.found.value, check.attribute) == ("leak shown", about, 0.1, "s")
    assert "0.10000 nats above its null over 24 persons, more than chance (p 1e-09" in check.sentence
    silent = _one("information_excess_at_most", _judge(_exactly(SILENT), strangers=Strangers(0, ())))
    assert silent.outcome == "cannot be decided"
    assert not silent.required
    assert "no more than chance" in silent.sentence


def test_what_the_recipient_does_not_know_is_shown_and_not_judged() -> None:
    unknown = dataclasses.replace(KNOWING_U, judged=False)
    check = _one("information_excess_at_most", _judge(_exactly(SILENT, side_information=(unknown,))))
    assert check.about == "s"


@pytest.mark.parametrize(
    ("low", "high", "outcome"), [(0.5, 0.59, "below the limit"), (0.59, 0.7, "cannot be decided"), (0.61, 0.7, "leak shown")]
)
def test_membership_and_linkage_follow_the_same_rule(low: float, high: float, outcome: str) -> None:
    found = Estimate((low + high) / 2, low, high)
    membership = Membership(
        members=100, non_members=100, against="held-out records", unit="record", member_units=100, non_member_units=100,
        auc=found, attack="the learnt combination", recognised=(Recognised(0.01, Estimate(0.0, 0.0, 0.04)),),
        smallest_false_alarms=0.03,
    )  # fmt: skip
    linkage = Linkage(
        gallery=2000, reidentified=found, chance=0.0, declared=0.0, alike=found, alike_records=2000, alike_chance=0.0,
        attack="likelihood", person=HALF, person_chance=0.1,
        bundles=(), judged_records=10, judged_draws=1, repeated_draws=(),
    )  # fmt: skip
    lenient = dataclasses.replace(THRESHOLDS, reidentified_at_most=Limit(0.6, "a release may be traced in most cases"))
    checks = _judge(membership=membership, linkage=linkage, thresholds=lenient)
    assert [check.outcome for check in checks if check.name != "membership_rate_at_most"] == [outcome, outcome]
    assert f"({low:.1%} to {high:.1%})" in _one("membership_auc_at_most", checks).sentence
    assert "among 2000 in" in _one("reidentified_at_most", checks).sentence
    assert _one("reidentified_at_most", _judge(linkage=linkage)).outcome == "leak shown"  # by default


def test_bundles_are_judged_at_what_the_recipient_holds() -> None:
    """id is right in a quarter of the cases from 100 records, and in 6 of 100 from ten."""
    sizes = tuple(Bundle(n, Estimate(v, v - 0.02, v + 0.02)) for n, v in ((1, 0.05), (10, 0.06), (100, 0.255)))
    for held, outcome in ((10, "below the limit"), (100, "leak shown")):
        linkage = Linkage(
            gallery=2000, reidentified=Estimate(0, 0, 0), chance=0.0, declared=0.0, alike=None, alike_records=0, alike_chance=1.0,
            attack="likelihood", person=HALF, person_chance=0.1,
            bundles=(Bundles("id", 0.04, 24, sizes),), judged_records=held, judged_draws=1, repeated_draws=(),
        )  # fmt: skip
        check = next(c for c in _judge(linkage=linkage) if c.attribute == "id")
        assert (check.outcome, check.about) == (outcome, f"id from {held} records of a person")


@pytest.mark.parametrize(
    ("replay", "passed", "sentence"),
    [
        (Replay(64, 4096, replayed=True, claimed_secret=True), False, "can be repeated from a guessable seed"),
        (Replay(64, 4096, replayed=True, claimed_secret=False), True, "seed, as the release declares"),
        (Replay(64, 4096, replayed=False, claimed_secret=True), True, "none of 4096 guessable seeds reproduces"),
        (Replay(0, 4096, replayed=False, claimed_secret=True), True, "trying seeds shows nothing"),
    ],
)
def test_replay(replay: Replay, passed: bool, sentence: str) -> None:
    (check,) = _judge(replay=replay)
    assert check.passed == passed
    assert sentence in check.sentence
    assert check.attribute is None
