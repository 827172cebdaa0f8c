"""The audit from end to end."""

import dataclasses

import numpy as np

from pass_core.auditing.analyses.base import every_analysis
from pass_core.auditing.analyses.seed_replay import Replay
from pass_core.auditing.exact_attacker import Audited, ExactPass, exact_findings, pass_exactly
from pass_core.auditing.findings import AttributeFindings, AuditFindings, ChannelFindings
from pass_core.auditing.side_information import find_conditional
from pass_core.auditing.subject import Subject
from pass_core.auditing.thresholds import Depth, Thresholds
from pass_core.auditing.trained_attacks import Attacked, NamedAttack, OnAttack, RngFor, attack_attribute
from pass_core.auditing.verdict import judge
from pass_core.data import DoubleArray
from pass_core.errors import AuditError
from pass_core.statistics.intervals import Blocks, Estimate
from pass_core.statistics.nag import Scoring, mean_nag_estimate
from pass_core.training.epochs import Epoch

NOT_PROMISED = (
    "Attribute suppression: not differential privacy, and not by itself anonymous data.",
    "The figures hold for one released draw per record, for the attributes named here, and for the attackers listed.",
    "Several records known to be one person's reveal more (see linkage). Attributes that are not named were not analysed.",
    "Where a pool is used, every released record is a real donor's: the donors are shown, and must have agreed.",
    "The certificate bounds what one release changes in an attacker's inference, on average over draws.",
    "It is not local differential privacy, assumes an attacker without side information, and is estimated on a sample.",
    "Timing and sizes of files are not covered. A pass means that these attacks failed, not that none can succeed.",
)


def run_audit(
    subject: Subject,
    attacks: tuple[NamedAttack, ...],
    thresholds: Thresholds,
    depth: Depth,
    rng_for: RngFor,
    *,
    on_attack: OnAttack,
    replay: Replay | None = None,
) -> AuditFindings:
    """Attacks every attribute with every attack, on originals (the control) and on the release; then analyses and judges.

    Args:
        rng_for: a generator for labels, so that adding an attack changes no other attack's draws.
        on_attack: called with the name of the running attack or analysis, and its finished epochs.
        replay: whether the draws can be repeated; found by the caller, who knows how they were drawn.
    """
    if all(named.attack.needs_pool for named in attacks):
        raise AuditError("an audit needs an attack that can also be tried on originals: name some under audit.attacks")
    attacked = tuple(attack_attribute(subject, a, attacks, rng_for, on_attack) for a in subject.attributes)
    passed = None if subject.substitution is None else pass_exactly(subject, subject.substitution, depth, rng_for)
    audited = Audited(subject=subject, attacked=attacked, passed=passed, depth=depth, rng_for=rng_for)
    rows = []
    for one in attacked:
        on_attack(f"{one.attribute.name}: exact attacker and subgroups", Epoch(1, 1, {}))
        rows.append(_attribute(audited, one))
    found = {}
    for analysis in every_analysis():
        on_attack(analysis.key, Epoch(1, 1, {}))
        found[analysis.key] = replay if analysis.finding is Replay else analysis.find(audited)
    checks = judge(rows, found, thresholds)
    reasons = tuple(check.sentence for check in checks if not check.passed)
    failed = {check.attribute for check in checks if not check.passed}
    return AuditFindings(
        verdict="fail" if reasons else "pass",
        reasons=reasons,
        checks=checks,
        mnag=_mean_nag(subject, attacked),
        attributes=tuple(
            dataclasses.replace(row, verdict="fail" if row.name in failed else "pass") if row.role != "general" else row
            for row in rows
        ),
        channel=_channel(subject, passed),
        analyses=found,
        not_promised=NOT_PROMISED,
    )


def _attribute(audited: Audited, one: Attacked) -> AttributeFindings:
    attribute, scoring, subject = one.attribute, one.scoring, audited.subject
    exact = exact_findings(audited, one)
    subgroups, side_information = find_conditional(audited, one)
    worst = max(one.findings, key=lambda found: found.accuracy.value)
    beaten = exact is not None and attribute.role == "private" and exact.rule_accuracy.value > worst.accuracy.value
    return AttributeFindings(
        name=attribute.name,
        role=attribute.role,
        combines=subject.combines.get(attribute.name, ()),
        n_classes=attribute.n_classes,
        guess=scoring.majority,
        unprotected=scoring.accuracy(scoring.control),
        unprotected_attack=one.control,
        protected=exact.rule_accuracy if beaten and exact else worst.accuracy,
        attack="exact" if beaten else worst.name,
        nag=exact.rule if beaten and exact else worst.nag,
        attacks=one.findings,
        exact=exact,
        unfinetuned=one.unfinetuned,
        own_adversary=one.own_adversary,
        trained_on_released=scoring.nag(one.downstream),
        subgroups=subgroups,
        side_information=side_information,
        verdict=None,
    )


def _mean_nag(subject: Subject, attacked: tuple[Attacked, ...]) -> Estimate:
    """mNAG of the single attributes, by the strongest trained attack as in the paper: none that looks donors up."""
    sides: dict[bool, list[tuple[Scoring, DoubleArray]]] = {True: [], False: []}
    for one in attacked:
        if one.attribute.name not in subject.combines:
            trained = [found for found in one.findings if found.unprotected_accuracy is not None]
            strongest = max(trained, key=lambda found: found.accuracy.value).name
            sides[one.attribute.role == "private"].append((one.scoring, one.hits[strongest]))
    blocks = Blocks.of(subject.dependent(), np.zeros(len(subject.test), dtype=np.int64))
    return mean_nag_estimate(sides[True], sides[False], blocks)


def _channel(subject: Subject, passed: ExactPass | None) -> ChannelFindings | None:
    if passed is None or subject.substitution is None:
        return None
    return ChannelFindings(
        pool_size=len(subject.substitution.donor_features),
        record_information_train=subject.substitution.train_law.record_information,
        record_information_test=passed.law.record_information,
        row_entropy=passed.law.row_entropy,
        maximal_leakage=float(np.log(passed.law.largest.sum())),
    )
