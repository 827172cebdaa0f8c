"""What every analysis of the audit provides."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pass_core import discovery
from pass_core.auditing import analyses
from pass_core.auditing.findings import AuditFindings, Check, Comparison, Evidence
from pass_core.auditing.section import Block, Card, Demand
from pass_core.auditing.thresholds import Effort, Thresholds
from pass_core.errors import AuditError

if TYPE_CHECKING:  # heavy, and a reader of findings does not need it
    from pass_core.auditing.exact_attacker import Audited

Finding = TypeVar("Finding")


@dataclass(frozen=True, kw_only=True)
class Analysis(Generic[Finding]):
    """An analysis; the functions that get a finding are pure, so that a stored audit can be judged and shown again."""

    key: str  # of the finding in audit.json
    rank: int  # its place among the analyses, in audit.json and in the report
    title: str  # of its section
    finding: type[Finding]  # a dataclass of figures; never of values that belong to a person
    find: "Callable[[Audited], Finding | None]"  # None where these data do not allow the analysis
    section: Callable[[Finding | None], Iterable[Block]]
    checks: Callable[[Finding, Thresholds], Iterable[Check]] = lambda _finding, _thresholds: ()
    evidence: Callable[[Finding], Iterable[Evidence]] = lambda _: ()  # tests of attackers, judged together with all others
    comparisons: Callable[[Finding], Iterable[Comparison]] = lambda _: ()  # judged together with all other information
    quick: bool = True  # whether quick audits make it, too
    highlights: Callable[[Finding], Iterable[Card]] = lambda _: ()  # for the top of the report
    demands: Mapping[str, Demand] = dataclasses.field(default_factory=dict)  # name of a check -> how the report shows its limit


def left_out(effort: Effort) -> tuple[str, ...]:
    """Keys of the analyses that an audit of this effort does not make."""
    return tuple(one.key for one in every_analysis() if effort == "quick" and not one.quick)


def every_analysis() -> tuple[Analysis[Any], ...]:
    """All analyses, in the order of their ranks."""
    found = [discovery.load(analyses, name).ANALYSIS for name in discovery.available(analyses)]
    taken = {field.name for field in dataclasses.fields(AuditFindings)}
    for one in found:
        if one.key in taken:
            raise AuditError(f"analyses: expected a key of its own, found {one.key!r} twice in the audit; rename it")
        taken.add(one.key)
    return tuple(sorted(found, key=lambda one: (one.rank, one.key)))
