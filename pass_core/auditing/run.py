"""The audit from end to end."""

import dataclasses
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from pass_core.auditing.analyses.base import every_analysis, left_out
from pass_core.auditing.analyses.seed_replay import Replay
from pass_core.auditing.exact_attacker import Audited, ExactPass, exact_findings, pass_exactly
from pass_core.auditing.findings import AttributeFindings, AuditFindings, ChannelFindings, Check, Evidence
from pass_core.auditing.side_information import find_conditional
from pass_core.auditing.subject import Subject
from pass_core.auditing.thresholds import Depth, Effort, Thresholds
from pass_core.auditing.trained_attacks import Attacked, KeepControl, NamedAttack, OnAttack, RngFor, attack_attribute
from pass_core.auditing.validity import EXACT, find_validity
from pass_core.auditing.verdict import attribute_verdict, judge, outcomes, reasons
from pass_core.channel.joint_law import mutual_information
from pass_core.data import Attribute, DoubleArray
from pass_core.errors import AuditError
from pass_core.statistics.intervals import Blocks, Estimate
from pass_core.statistics.nag import FLOOR, Scoring, label_entropy, mean_nag_estimate
from pass_core.statistics.score_test import score_test
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
    effort: Effort = "full",
    keep: KeepControl | None = None,
    analyses: Collection[str] | None = None,
) -> AuditFindings:
    """Attacks every attribute with every attack, on originals (the control) and on the release; then analyses and judges.

    Args:
        rng_for: a generator for labels, so that adding an attack changes no other attack's draws.
        on_attack: called with the name of the running attack or analysis, and its finished epochs.
        replay: whether the draws can be repeated; found by the caller, who knows how they were drawn.
        effort: a quick audit leaves some analyses out, and says so; `attacks` are those that it tries (`tried`).
        keep: gives controls that an earlier audit has learnt; None: all are learnt.
        analyses: keys of those to make, for a search that audits many protectors; None: all, as every verdict needs.
    """
    if all(named.attack.needs_pool for named in attacks):
        some = " (logistic_regression or network for a quick audit)" if effort == "quick" else ""
        raise AuditError(f"an audit needs an attack that can also be tried on originals: name some under audit.attacks{some}")
    attacked = tuple(attack_attribute(subject, a, attacks, rng_for, on_attack=on_attack, keep=keep) for a in subject.attributes)
    passed = None if subject.substitution is None else pass_exactly(subject, subject.substitution, depth, rng_for)
    validity = find_validity(subject, attacked, attacks, thresholds, depth, rng_for=rng_for, on_attack=on_attack)
    audited = Audited(subject=subject, attacked=attacked, passed=passed, depth=depth, rng_for=rng_for, validity=validity)
    rows = []
    for one in attacked:
        if one.findings:
            on_attack(f"{one.attribute.name}: exact attacker and subgroups", Epoch(1, 1, {}))
            rows.append(_attribute(audited, one))
    unwanted = () if analyses is None else [one.key for one in every_analysis() if one.key not in analyses]
    found: dict[str, Any] = dict.fromkeys((*left_out(effort), *unwanted))
    for analysis in (one for one in every_analysis() if one.key not in found):
        on_attack(analysis.key, Epoch(1, 1, {}))
        found[analysis.key] = replay if analysis.finding is Replay else analysis.find(audited)
    unreadable = tuple(one.attribute for one in attacked if not one.findings)
    checks = (*judge(rows, found, thresholds, subject.population), *_unreadable_checks(unreadable, thresholds))
    verdict, privacy, utility = outcomes(checks)
    return AuditFindings(
        verdict=verdict,
        privacy=privacy,
        utility=utility,
        reasons=reasons(checks),
        checks=checks,
        unreadable=tuple(attribute.name for attribute in unreadable),
        mnag=_mean_nag(subject, tuple(one for one in attacked if one.findings)),
        attributes=tuple(dataclasses.replace(row, verdict=attribute_verdict(row, checks)) for row in rows),
        channel=_channel(subject, passed),
        analyses=found,
        not_promised=(_quick_audit(attacks), *NOT_PROMISED) if effort == "quick" else NOT_PROMISED,
        effort=effort,
    )


def _quick_audit(attacks: tuple[NamedAttack, ...]) -> str:
    """What a quick audit is, for people."""
    missing = left_out("quick")
    titles = ", ".join(f"“{one.title}”" for one in every_analysis() if one.key in missing)
    return (
        f"This is a quick audit (audit.effort: quick), for trying things out: the only attacks tried are "
        f"{', '.join(named.name for named in attacks)}, and these analyses were left out: {titles}. "
        "Audit with audit.effort=full before you publish anything."
    )


def _unreadable_checks(attributes: tuple[Attribute, ...], thresholds: Thresholds) -> Iterator[Check]:
    """Without a control nothing is shown: attacks that fail on originals prove nothing when they fail on the release."""
    nothing = Estimate(0.0, 0.0, 1.0)
    for attribute in attributes:
        found = "no attack reads it from originals, so that failing on the release proves nothing; give other attacks or features"
        if attribute.role == "private":
            words, limit = f"private attribute {attribute.name}: {found}", thresholds.private_nag_at_most
            yield Check.at_most("private_nag_at_most", limit, attribute.name, nothing, words, attribute=attribute.name)
        elif attribute.role == "useful":
            words, limit = f"useful attribute {attribute.name}: {found}", thresholds.useful_nag_at_least
            yield Check.at_least("useful_nag_at_least", limit, attribute.name, nothing, words, attribute=attribute.name)


def _attribute(audited: Audited, one: Attacked) -> AttributeFindings:
    attribute, scoring, subject = one.attribute, one.scoring, audited.subject
    exact = exact_findings(audited, one)
    subgroups, side_information, evidence = find_conditional(audited, one)
    worst = max(one.findings, key=lambda found: found.accuracy.value)
    beaten = exact is not None and attribute.role == "private" and exact.rule_accuracy.value > worst.accuracy.value
    return AttributeFindings(
        name=attribute.name,
        role=attribute.role,
        combines=subject.combines.get(attribute.name, ()),
        n_classes=attribute.n_classes,
        guess=scoring.guess,
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
        through_useful=_through_useful(subject, attribute),
        evidence=(*_evidence(audited, one), *evidence) if attribute.role == "private" else (),
        verdict=None,
    )


def _evidence(audited: Audited, one: Attacked) -> Iterator[Evidence]:
    """Tests over all test records: of every attack, and of the exact attacker."""
    subject, attribute, labels = audited.subject, one.attribute, one.scoring.labels
    tests = {f"attack {found.name}": found.gain for found in one.findings}
    names = {f"attack {found.name}": found.name for found in one.findings}
    if audited.passed is not None:
        scores = audited.passed.scores[attribute.name] - np.log(np.maximum(subject.baseline(attribute), FLOOR))
        rng = audited.rng_for("chance", attribute.name, "exact")
        tests[EXACT] = score_test(scores, labels, subject.dealing(attribute), rng)
    for who, test in tests.items():
        yield Evidence(
            attribute=attribute.name,
            about=f"{attribute.name} by {who}",
            population=subject.population,
            test=test,
            entropy=label_entropy(labels),
            # An attack that misses a planted leak can show one, and cannot show that there is none.
            required=audited.validity is None or audited.validity.counts(attribute.name, names.get(who, who)),
        )


def _through_useful(subject: Subject, attribute: Attribute) -> float:
    """I(useful classes; attribute) of the training records: what a release that keeps the useful classes reveals on purpose."""
    given, labels = subject.given(attribute)[0], subject.labels("train", attribute.name)
    joint = np.zeros((attribute.n_classes, int(given.max(initial=0)) + 1))
    np.add.at(joint, (labels, given), 1 / len(labels))
    return mutual_information(joint)


def _mean_nag(subject: Subject, attacked: tuple[Attacked, ...]) -> Estimate:
    """mNAG of the single attributes, by the strongest trained attack as in the paper: none that looks donors up."""
    sides: dict[bool, list[tuple[Scoring, DoubleArray]]] = {True: [], False: []}
    for one in attacked:
        if one.attribute.name not in subject.combines:
            trained = [found for found in one.findings if found.unprotected_accuracy is not None]
            strongest = max(trained, key=lambda found: found.accuracy.value).name
            sides[one.attribute.role == "private"].append((one.scoring, one.hits[strongest]))
    if not all(sides.values()):
        return Estimate(0.0, -1.0, 1.0)  # no attack reads the attributes of one side from originals: anything is possible
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
