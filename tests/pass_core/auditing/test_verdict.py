"""The verdict's sentences: every threshold on both sides of its limit, and whose verdict a failure is."""

import dataclasses

import pytest

from pass_core.auditing.analyses.linkage import Linkage
from pass_core.auditing.analyses.membership import Membership
from pass_core.auditing.analyses.seed_replay import Replay
from pass_core.auditing.analyses.unseen_people import StrangerFindings, Strangers
from pass_core.auditing.findings import (
    AttackFindings,
    AttributeFindings,
    Check,
    DonorLeakage,
    ExactFindings,
    Information,
    SideInformation,
    Subgroup,
)
from pass_core.auditing.thresholds import Limit, Thresholds
from pass_core.auditing.verdict import judge
from pass_core.data import Role
from pass_core.statistics.intervals import Estimate

THRESHOLDS = Thresholds()
HALF = Estimate(0.5, 0.4, 0.6)
SILENT = Information(found=0.1, null_mean=0.1, null_deviation=0.01, p_value=0.5, excess=0.0, unit="person", units=24)
LEAKING = dataclasses.replace(SILENT, found=0.2, p_value=1e-9, excess=0.1)


def _attack(nag: Estimate, gain: float = 0.0, p_value: float = 1.0) -> AttackFindings:
    return AttackFindings(
        name="network", accuracy=HALF, nag=nag, balanced_accuracy=HALF, auc=HALF, unprotected_accuracy=0.9,
        log_loss_gain=Estimate(gain, gain - 1, gain + 1), gain_p_value=p_value,
    )  # fmt: skip


def _row(role: Role, nag: Estimate, name: str = "s", **changed: object) -> AttributeFindings:
    row = AttributeFindings(
        name=name, role=role, combines=(), n_classes=2, guess=0.5, unprotected=HALF, unprotected_attack="network",
        protected=HALF, attack="network", nag=nag, attacks=(_attack(nag),), exact=None, unfinetuned=None, own_adversary=None,
        trained_on_released=None, subgroups=(), side_information=(), verdict=None,
    )  # fmt: skip
    return dataclasses.replace(row, **changed)


def _judge(*rows: AttributeFindings, thresholds: Thresholds = THRESHOLDS, **found: object) -> tuple[Check, ...]:
    return judge(rows, found, thresholds)


def _subgroup(label: int, records: int, nag: Estimate | None, **changed: object) -> Subgroup:
    group = Subgroup(attribute="u", label=label, records=records, nag=nag, exact_nag=None, information=None)
    return dataclasses.replace(group, **changed)


def _one(name: str, checks: tuple[Check, ...]) -> Check:
    return next(check for check in checks if check.name == name)


@pytest.mark.parametrize(("high", "passed"), [(0.15, True), (0.151, False)])
def test_private_attributes_are_judged_by_the_far_end(high: float, passed: bool) -> None:
    check = _one("private_nag_at_most", _judge(_row("private", Estimate(0.05, 0.0, high))))
    assert (check.passed, check.found, check.limit, check.attribute) == (passed, high, 0.15, "s")
    assert check.sentence == (f"private attribute s: NAG 5.0% (0.0% to {high:.1%}) under attack network, at most 15.0% allowed")


@pytest.mark.parametrize(("low", "passed"), [(0.9, True), (0.899, False)])
def test_useful_attributes_are_judged_by_the_near_end(low: float, passed: bool) -> None:
    check = _one("useful_nag_at_least", _judge(_row("useful", Estimate(0.95, low, 1.0), "u")))
    assert (check.passed, check.found, check.attribute) == (passed, low, "u")
    assert check.sentence == f"useful attribute u: NAG 95.0% ({low:.1%} to 100.0%), at least 90.0% required"


def test_hidden_attributes_are_not_judged() -> None:
    assert _judge(_row("general", Estimate(1.0, 1.0, 1.0))) == ()


def test_the_worst_subgroup_is_judged_by_the_near_end() -> None:
    groups = (
        _subgroup(0, 300, Estimate(0.1, 0.0, 0.9)),
        _subgroup(1, 200, Estimate(0.2, 0.1, 0.3), exact_nag=Estimate(0.3, 0.2, 0.4)),
    )
    check = next(c for c in _judge(_row("private", Estimate(0, 0, 0), subgroups=groups)) if "subgroup" in c.about)
    assert (check.passed, check.found, check.attribute) == (False, 0.2, "s")
    assert "among 200 records of one class of u" in check.sentence
    assert "under an attacker who knows the subgroup" in check.sentence


def _with_gains(*gains: tuple[float, float]) -> AttributeFindings:
    return _row("private", Estimate(0, 0, 0), attacks=tuple(_attack(Estimate(0, 0, 0), *gain) for gain in gains))


def test_without_a_channel_the_gain_of_an_attack_is_judged() -> None:
    assert not _one("information_excess_at_most", _judge(_with_gains((0.01, 1e-6)))).passed
    assert _one("information_excess_at_most", _judge(_with_gains((0.01, 0.2)))).passed  # may be chance
    assert _one("information_excess_at_most", _judge(_with_gains((1e-6, 1e-6)))).passed  # too little to matter
    # Significance is shared: what fails alone passes among many.
    assert not _one("information_excess_at_most", _judge(_with_gains((0.01, 0.005)))).passed
    assert _one("information_excess_at_most", _judge(_with_gains((0.01, 0.005), *[(0.0, 1.0)] * 9))).passed


KNOWING_U = SideInformation(known="u", released=False, guess=0.5, accuracy=HALF, nag=None, information=LEAKING)


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
    assert (check.passed, check.about, check.found, check.attribute) == (False, about, 0.1, "s")
    assert "0.10000 nats above its null over 24 persons, more than chance (p 1e-09" in check.sentence
    silent = _one("information_excess_at_most", _judge(_exactly(SILENT), strangers=Strangers(0, ())))
    assert silent.passed
    assert "no more than chance" in silent.sentence


@pytest.mark.parametrize(("low", "passed"), [(0.59, True), (0.61, False)])
def test_membership_and_linkage_fail_when_the_whole_interval_is_above(low: float, passed: bool) -> None:
    found = Estimate(0.65, low, 0.7)
    membership = Membership(members=100, non_members=100, against="held-out records", auc=found, true_positive_rate=0.02)
    linkage = Linkage(
        gallery=2000, reidentified=found, chance=1 / 2000, attack="likelihood",
        person=HALF, person_chance=0.1, bundles=(), repeated_draws=(),
    )  # fmt: skip
    strict = dataclasses.replace(THRESHOLDS, reidentified_at_most=Limit(0.6, "a release must not be traced"))
    checks = _judge(membership=membership, linkage=linkage, thresholds=strict)
    assert [check.passed for check in checks] == [passed, passed]
    assert f"AUC 65.0% ({low:.1%} to 70.0%)" in checks[0].sentence
    assert "among 2000 in 65.0%" in checks[1].sentence
    assert _one("reidentified_at_most", _judge(linkage=linkage)).passed  # shown, not judged, unless somebody asks for it


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
