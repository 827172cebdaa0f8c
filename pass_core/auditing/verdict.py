"""The figures against their limits: every check with its sentence."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pass_core.auditing.analyses.base import every_analysis
from pass_core.auditing.findings import AttributeFindings, Check, Comparison, with_interval
from pass_core.auditing.thresholds import Thresholds


@dataclass(frozen=True, slots=True)
class _Suspicion:
    """Information on a private attribute that may be more than chance."""

    about: str
    excess: float
    p_value: float
    compared: str  # with what, for people


def judge(attributes: Sequence[AttributeFindings], found: Mapping[str, Any], thresholds: Thresholds) -> tuple[Check, ...]:
    """All checks: of attributes, of information, then of analyses (`found`: key -> finding) in the order of their thresholds."""
    made = [(analysis, found[analysis.key]) for analysis in every_analysis() if found.get(analysis.key) is not None]
    checks = [check for row in attributes for check in _nag_checks(row, thresholds)]
    checks += _information_checks(attributes, [c for analysis, one in made for c in analysis.comparisons(one)], thresholds)
    names = [field.name for field in dataclasses.fields(Thresholds)]
    of_analyses = [check for analysis, one in made for check in analysis.checks(one, thresholds)]
    return (*checks, *sorted(of_analyses, key=lambda c: names.index(c.name) if c.name in names else len(names)))


def _nag_checks(row: AttributeFindings, thresholds: Thresholds) -> Iterator[Check]:
    if row.role == "useful":
        limit, low = thresholds.useful_nag_at_least, row.nag.low
        sentence = f"useful attribute {row.name}: NAG {with_interval(row.nag)}, at least {limit.value:.1%} required"
        passed = low >= limit.value
        yield Check.of("useful_nag_at_least", limit, row.name, found=low, passed=passed, sentence=sentence, attribute=row.name)
    if row.role == "private":
        limit = thresholds.private_nag_at_most
        for about, found, words, how in _private_figures(row):
            sentence = f"private attribute {row.name}{words}, at most {limit.value:.1%} allowed{how}"
            passed = found <= limit.value
            yield Check.of("private_nag_at_most", limit, about, found=found, passed=passed, sentence=sentence, attribute=row.name)


def _private_figures(row: AttributeFindings) -> Iterator[tuple[str, float, str, str]]:
    """What each is about, the end of its interval that is judged, and its words: before the limit and after it."""
    figures = {f"attack {found.name}": found.nag for found in row.attacks}
    if row.exact is not None:
        figures["the exact attacker's rule"] = row.exact.rule
    worst = max(figures, key=lambda name: figures[name].high)
    yield row.name, figures[worst].high, f": NAG {with_interval(figures[worst])} under {worst}", ""
    for side in row.side_information:
        if side.released and side.nag is not None:
            words = f" from the release and the published column {side.known}: NAG {with_interval(side.nag)}"
            yield f"{row.name}, with column {side.known}", side.nag.high, words, ""
    in_subgroups = [
        (nag, who, subgroup)
        for subgroup in row.subgroups
        for nag, who in ((subgroup.nag, "the worst attack"), (subgroup.exact_nag, "an attacker who knows the subgroup"))
        if nag is not None
    ]
    if in_subgroups:
        # The near end counts: small subgroups have wide intervals.
        nag, who, subgroup = max(in_subgroups, key=lambda figure: figure[0].low)
        words = (
            f" among {subgroup.records} records of one class of {subgroup.attribute}, the worst subgroup: "
            f"NAG {with_interval(nag)} under {who}"
        )
        yield f"{row.name} in a subgroup of {subgroup.attribute}", nag.low, words, " for the lower end"


def _information_checks(
    attributes: Sequence[AttributeFindings], elsewhere: Sequence[Comparison], thresholds: Thresholds
) -> Iterator[Check]:
    """Per private attribute the most significant of all comparisons; significance is shared among them all."""
    limit, significance = thresholds.information_excess_at_most, thresholds.significance
    both = dataclasses.replace(limit, reason=f"{limit.reason} {significance.reason}")
    suspicions = {row.name: list(_suspicions(row, elsewhere)) for row in attributes if row.role == "private"}
    number = sum(map(len, suspicions.values()))

    def leaks(one: _Suspicion) -> bool:
        return one.p_value * number <= significance.value and one.excess > limit.value

    for name, found in suspicions.items():
        if not found:
            continue
        worst = min(found, key=lambda one: (not leaks(one), one.p_value))  # the surest leak, or else the least likely figure
        chance = "more than chance" if worst.p_value * number <= significance.value else "no more than chance"
        sentence = (
            f"private attribute {worst.about}: the release reveals {worst.excess:.5f} nats above {worst.compared}, {chance} "
            f"(p {worst.p_value:.2g}, {number} comparisons); at most {limit.value:g} nats allowed"
        )
        yield Check.of(
            "information_excess_at_most", both, worst.about,
            found=worst.excess, passed=not leaks(worst), sentence=sentence, attribute=name,
        )  # fmt: skip


def _suspicions(row: AttributeFindings, elsewhere: Sequence[Comparison]) -> Iterator[_Suspicion]:
    if row.exact is None:
        # Without P(x'|x), an attack's real gain in predicting classes is a lower end of the information.
        for tried in row.attacks:
            yield _Suspicion(row.name, tried.log_loss_gain.value, tried.gain_p_value, f"the class shares, by attack {tried.name}")
        return
    for one in (*comparisons_of(row), *(one for one in elsewhere if one.attribute == row.name)):
        found = one.information
        yield _Suspicion(one.about, found.excess, found.p_value, f"its null over {found.units} {found.unit}s")


def comparisons_of(row: AttributeFindings) -> Iterator[Comparison]:
    """Information on one attribute: alone, with side information, and in every subgroup."""
    situations = [(row.name, None if row.exact is None else row.exact.information)]
    for known in row.side_information:
        how = f"with column {known.known}" if known.released else f"when {known.known} is known"
        situations.append((f"{row.name}, {how}", known.information))
    situations += [(f"{row.name} in a subgroup of {group.attribute}", group.information) for group in row.subgroups]
    for about, information in situations:
        if information is not None:
            yield Comparison(row.name, about, information)
