"""Whether a candidate takes the champion's place: decided from the figures of two audits on the same hold-out, and nothing else.

A promotion has a price: published records would be drawn once more. A candidate that is only as good as its champion is
therefore promoted where new records have drifted from what the champion was audited on, and held otherwise.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from pass_core.auditing.findings import AuditFindings, Verdict, with_interval
from pass_core.data import Role
from pass_core.statistics.intervals import Estimate

Decision = Literal["PROMOTE", "HOLD", "REJECT"]
Difference = Literal["better", "worse", "alike"]


@dataclass(frozen=True, slots=True)
class Figure:
    """How much of an attribute a protector's releases reveal; small is good where it is private, large where it is useful."""

    role: Role
    nag: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one audit says of one protector."""

    verdict: Verdict
    reasons: tuple[str, ...]  # why it is no pass
    figures: Mapping[str, Figure]  # judged attributes

    @classmethod
    def of(cls, findings: AuditFindings) -> "Measured":
        """The figures of an audit."""
        judged = {row.name: Figure(row.role, row.nag) for row in findings.attributes if row.role != "general"}
        return cls(verdict=findings.verdict, reasons=tuple(findings.reasons), figures=judged)


@dataclass(frozen=True, slots=True)
class Promotion:
    """A decision about a candidate, with the reasons for it."""

    decision: Decision
    reasons: tuple[str, ...]


def decide(candidate: Measured, champion: Measured | str | None, *, drifted: bool) -> Promotion:
    """Compares a candidate with the champion on the same hold-out.

    Args:
        champion: None where there is none yet; a text says why it could not be measured.
        drifted: new records have drifted from those that the champion was audited on, or its audit has expired.
    """
    passed = "the candidate's audit passed"
    if candidate.verdict == "fail":
        return Promotion("REJECT", ("the candidate's audit failed", *candidate.reasons))
    if candidate.verdict == "undecided":
        return Promotion("HOLD", ("the candidate's audit cannot be decided", *candidate.reasons))
    if champion is None:
        return Promotion("PROMOTE", (f"{passed}, and there is no champion yet",))
    if isinstance(champion, str):
        return Promotion("HOLD", (f"{passed}, but the champion cannot be compared with it: {champion}",))
    compared = [_compare(name, figure, champion.figures.get(name)) for name, figure in candidate.figures.items()]
    decision, found = _weigh({kind for kind, _ in compared}, champion.verdict, drifted=drifted)
    failed = champion.reasons if champion.verdict == "fail" else ()
    return Promotion(decision, (f"{passed}{found}", *failed, *(sentence for _, sentence in compared)))


def _weigh(differences: set[Difference], champion: Verdict, *, drifted: bool) -> tuple[Decision, str]:
    """The decision about a candidate that passed, and how its sentence goes on."""
    if champion == "fail":
        return "PROMOTE", ", and the champion's on the same hold-out failed"
    if {"better", "worse"} <= differences:
        return "HOLD", ", but it is better in some figures and worse in others"
    if "worse" in differences:
        return "REJECT", ", but it is worse"
    if "better" in differences:
        return "PROMOTE", ", and it is better"
    if drifted:
        return "PROMOTE", "; it is as good, and the champion can no longer be relied on"
    return "HOLD", ", but it is not clearly better"


def figures_of(measured: Iterable[tuple[str, Measured | str | None]]) -> dict[str, float]:
    """NAG of several protectors under names that MLflow accepts."""
    return {
        f"{who}_nag_{name.replace(' × ', '_and_')}": figure.nag.value
        for who, one in measured
        if isinstance(one, Measured)
        for name, figure in one.figures.items()
    }


def _compare(name: str, candidate: Figure, champion: Figure | None) -> tuple[Difference, str]:
    """Better or worse only where the intervals do not overlap."""
    ours = f"{candidate.role} attribute {name}: NAG {with_interval(candidate.nag)}"
    if champion is None:
        return "alike", f"{ours}; the champion has no such figure"
    smaller, larger = candidate.nag.high < champion.nag.low, candidate.nag.low > champion.nag.high
    found: Difference = "alike"
    if smaller or larger:
        found = "better" if smaller == (candidate.role == "private") else "worse"
    return found, f"{ours}, the champion's {with_interval(champion.nag)}: {found}"
