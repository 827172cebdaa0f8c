"""The figures against their limits: every check with its sentence, and the verdict that follows.

One rule for all: a whole interval above the limit shows a leak, a whole interval below it is a pass, anything else cannot be
decided on these records.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from scipy import special

from pass_core.auditing.analyses.base import every_analysis
from pass_core.auditing.findings import (
    AttributeFindings,
    Check,
    Comparison,
    Evidence,
    Kept,
    Outcome,
    Population,
    Verdict,
    with_interval,
)
from pass_core.auditing.thresholds import Limit, Thresholds
from pass_core.auditing.validity import EXACT, Validity
from pass_core.statistics.intervals import CONFIDENCE, Estimate


def judge(
    attributes: Sequence[AttributeFindings], found: Mapping[str, Any], thresholds: Thresholds, population: Population
) -> tuple[Check, ...]:
    """All checks: of attributes, of tests and information, then of analyses in the order of their thresholds.

    Args:
        found: key of an analysis -> its finding.
        population: whom the test records are of.
    """
    made = [(analysis, found[analysis.key]) for analysis in every_analysis() if found.get(analysis.key) is not None]
    validity = found.get("attack_validity")
    checks = [check for row in attributes for check in _attribute_checks(row, thresholds, population, validity)]
    evidence = [one for row in attributes for one in row.evidence]
    evidence += [one for analysis, finding in made for one in analysis.evidence(finding)]
    checks += _evidence_checks(evidence, thresholds)
    checks += _information_checks(attributes, [c for analysis, one in made for c in analysis.comparisons(one)], thresholds)
    names = [field.name for field in dataclasses.fields(Thresholds)]
    of_analyses = [check for analysis, one in made for check in analysis.checks(one, thresholds)]
    return (*checks, *sorted(of_analyses, key=lambda c: names.index(c.name) if c.name in names else len(names)))


def outcomes(checks: Iterable[Check]) -> tuple[Verdict, Outcome, Kept | None]:
    """The verdict; what it says about privacy; and about utility."""
    utility = [check for check in checks if check.name == "useful_nag_at_least"]
    privacy = [check for check in checks if check.name != "useful_nag_at_least"]
    hidden: Outcome = "cannot be decided"
    if any(check.failed for check in privacy):
        hidden = "leak shown"
    elif all(check.passed for check in privacy if check.required):
        hidden = "below the limit"
    kept: Kept | None = None
    if utility:
        lost, all_kept = any(check.failed for check in utility), all(check.passed for check in utility)
        kept = "lost" if lost else "kept" if all_kept else "cannot be decided"
    if hidden == "leak shown" or kept == "lost":
        return "fail", hidden, kept
    return "pass" if hidden == "below the limit" and kept in ("kept", None) else "undecided", hidden, kept


def reasons(checks: Sequence[Check]) -> tuple[str, ...]:
    """Why the verdict is no pass: what is broken; where nothing is, what is needed and cannot be decided."""
    if broken := tuple(check.sentence for check in checks if check.failed):
        return broken
    undecided = []
    for check in checks:
        if check.required and check.outcome == "cannot be decided":
            more = f"; about {check.needed} instead of {check.units} independent units would decide" if check.needed else ""
            undecided.append(f"cannot be decided: {check.sentence}{more}")
    return tuple(undecided)


def attribute_verdict(row: AttributeFindings, checks: Iterable[Check]) -> Outcome | Kept | None:
    """What the checks of one attribute say together; None for a general one."""
    if row.role == "general":
        return None
    _, hidden, kept = outcomes([check for check in checks if check.attribute == row.name])
    return kept if row.role == "useful" else hidden


def _attribute_checks(
    row: AttributeFindings, thresholds: Thresholds, population: Population, validity: Validity | None
) -> Iterator[Check]:
    if row.role == "useful":
        limit = thresholds.useful_nag_at_least
        words = f"useful attribute {row.name}: read from releases with NAG {with_interval(row.nag)}"
        words += f", at least {limit.value:.1%} required"
        yield Check.at_least("useful_nag_at_least", limit, row.name, row.nag, words, attribute=row.name)
    if row.role != "private":
        return
    common = {"attribute": row.name, "population": population, "units": row.attacks[0].gain.units}
    nags = {one.name: one.nag for one in row.attacks}
    if row.exact is not None:
        nags[EXACT] = row.exact.rule
    areas = {one.name: one.auc for one in row.attacks}
    for name, title, figures in (("private_nag_at_most", "NAG", nags), ("private_auc_at_most", "AUC", areas)):
        limit = getattr(thresholds, name)
        worst, found = _worst(_counted(figures, row.name, limit, validity))
        worst = "the exact attacker's rule" if worst == EXACT else f"attack {worst}"
        words = f"private attribute {row.name}: {title} {with_interval(found)} under {worst}, at most {limit.value:.1%} allowed"
        yield Check.at_most(name, limit, row.name, found, words, **common)
    yield from _known_checks(row, thresholds.private_nag_at_most, common)
    yield from _subgroup_checks(row, thresholds.private_nag_at_most, common)


def _counted(figures: Mapping[str, Estimate], attribute: str, limit: Limit, validity: Validity | None) -> Mapping[str, Estimate]:
    """Figures of attacks that find a planted leak, and those that show one; without any, nothing is known to be small."""
    if validity is None:
        return figures
    kept = {who: one for who, one in figures.items() if validity.counts(attribute, who) or one.low > limit.value}
    return kept or {who: dataclasses.replace(one, high=1.0) for who, one in figures.items()}


def _worst(figures: Mapping[str, Estimate]) -> tuple[str, Estimate]:
    """The attack with the largest figure; the ends are the largest of all attacks, since each of them must be below a limit."""
    worst = max(figures, key=lambda name: (figures[name].high, figures[name].value))
    low, value, high = (max(getattr(one, end) for one in figures.values()) for end in ("low", "value", "high"))
    return worst, Estimate(value, low, high)


def _known_checks(row: AttributeFindings, limit: Limit, common: Mapping[str, Any]) -> Iterator[Check]:
    """Published columns; what the recipient may know otherwise is judged by its gain."""
    for side in row.side_information:
        if side.released and side.nag is not None:
            words = (
                f"private attribute {row.name} from the release and the published column {side.known}: NAG "
                f"{with_interval(side.nag)}, at most {limit.value:.1%} allowed"
            )
            yield Check.at_most("private_nag_at_most", limit, f"{row.name}, with column {side.known}", side.nag, words, **common)


def _subgroup_checks(row: AttributeFindings, limit: Limit, common: Mapping[str, Any]) -> Iterator[Check]:
    """The worst subgroup: small ones have wide intervals, so that a pass does not need them decided."""
    figures = [(group.nag, "the worst attack", group) for group in row.subgroups if group.nag is not None]
    knowing = [group for group in row.subgroups if group.attribute not in _not_known(row)]
    figures += [(one.exact_nag, "an attacker who knows the subgroup", one) for one in knowing if one.exact_nag is not None]
    if not figures:
        return
    nag, who, subgroup = max(figures, key=lambda figure: figure[0].low)
    words = (
        f"private attribute {row.name} among {subgroup.records} records of {subgroup.persons} person(s) of one class of "
        f"{subgroup.attribute}, the worst subgroup: NAG {with_interval(nag)} under {who}, at most {limit.value:.1%} allowed"
    )
    about = f"{row.name} in a subgroup of {subgroup.attribute}"
    yield Check.at_most("private_nag_at_most", limit, about, nag, words, **{**common, "required": False, "units": None})


def _evidence_checks(evidence: Sequence[Evidence], thresholds: Thresholds) -> Iterator[Check]:
    """Per attribute and population the strongest test of those that a pass needs, and of the others; all share one error."""
    limit, significance = thresholds.private_gain_at_most, thresholds.significance.value
    groups: dict[tuple[str, Population, bool], list[tuple[Evidence, Estimate]]] = {}
    for one in evidence:
        share = one.test.gain / one.entropy if one.entropy else 0.0
        low = one.test.end(significance / len(evidence)) / one.entropy if one.entropy else 0.0
        high = one.test.end((1 + CONFIDENCE) / 2) / one.entropy if one.entropy else 0.0
        if one.test.p_value * len(evidence) > significance:
            low = min(low, limit.value)  # no more than chance, however large
        groups.setdefault((one.attribute, one.population, one.required), []).append((one, Estimate(share, low, high)))
    for (attribute, population, required), tests in groups.items():
        one, found = max(tests, key=lambda pair: (pair[1].low > limit.value, pair[1].high if required else pair[1].value))
        words = (
            f"private attribute {one.about}: a release reveals {found.value:.2%} ({found.low:.2%} to {found.high:.2%}) of what "
            f"there is to know (p {one.test.p_value:.2g}, {len(evidence)} tests), at most {limit.value:.1%} allowed"
        )
        yield Check.at_most(
            "private_gain_at_most", limit, one.about, found, words,
            attribute=attribute, population=population, required=required, units=one.test.units,
        )  # fmt: skip


def _information_checks(
    attributes: Sequence[AttributeFindings], elsewhere: Sequence[Comparison], thresholds: Thresholds
) -> Iterator[Check]:
    """Per private attribute the most significant comparison of information with its null: a supplement that can show a leak."""
    limit, significance = thresholds.information_excess_at_most, thresholds.significance.value
    every = {row.name: [*comparisons_of(row), *(c for c in elsewhere if c.attribute == row.name)] for row in attributes}
    every = {row.name: every[row.name] for row in attributes if row.role == "private" and every[row.name]}
    number = sum(map(len, every.values()))
    for name, comparisons in every.items():
        worst = min(comparisons, key=lambda one: (one.information.p_value, -one.information.excess))
        found, sure = worst.information, worst.information.p_value * number <= significance
        # The null's deviation times the quantile of its p-value's level, as if it were normal; its p-value counts its skewness.
        reach = -float(special.ndtri(significance / number)) * found.null_deviation
        low = found.excess if sure else min(found.excess - reach, limit.value)
        chance = "more than chance" if sure else "no more than chance"
        words = (
            f"private attribute {worst.about}: the release reveals {found.excess:.5f} nats above its null over {found.units} "
            f"{found.unit}s, {chance} (p {found.p_value:.2g}, {number} comparisons); at most {limit.value:g} nats allowed"
        )
        ends = Estimate(found.excess, low, max(found.excess, 0.0) + reach)
        yield Check.at_most(
            "information_excess_at_most", limit, worst.about, ends, words + _uninformative(found), attribute=name, required=False
        )


def _uninformative(found: Any) -> str:
    """Says so where the null is so large that a leak of ordinary size would hide in it."""
    if found.null_mean <= max(10 * found.null_deviation, 0.05) and math.isfinite(found.null_mean):
        return ""
    return "; this null is large, since the release keeps what persons have in common: it is not informative here"


def _not_known(row: AttributeFindings) -> set[str]:
    """Attributes that the recipient is not assumed to know."""
    return {one.known for one in row.side_information if not one.judged}


def comparisons_of(row: AttributeFindings) -> Iterator[Comparison]:
    """Information on one attribute: alone, with side information, and in every subgroup."""
    situations = [(row.name, None if row.exact is None else row.exact.information)]
    for known in row.side_information:
        how = f"with column {known.known}" if known.released else f"when {known.known} is known"
        if known.judged:
            situations.append((f"{row.name}, {how}", known.information))
    judged = [group for group in row.subgroups if group.attribute not in _not_known(row)]
    situations += [(f"{row.name} in a subgroup of {group.attribute}", group.information) for group in judged]
    for about, information in situations:
        if information is not None:
            yield Comparison(row.name, about, information)
