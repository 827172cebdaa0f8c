"""What an audit answers, in the order in which a regulator asks; and the risk as measured, declared and combined."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, get_args

from pass_core.auditing.analyses.base import Analysis, every_analysis, left_out
from pass_core.auditing.findings import Check, Kept, Outcome, Population
from pass_core.auditing.section import Block
from pass_core.auditing.thresholds import DRIFTS, Thresholds
from pass_core.storage.audits import Audit

FORBIDDEN = {
    "none": "none; a record may be replaced by itself or by another record of the same person",
    "self": "the record itself",
    "same_person": "all records of the same person",
}


@dataclass(frozen=True, slots=True)
class Question:
    """One thing that is asked of a release, and the analyses that answer it."""

    key: str
    title: str
    asks: str
    analyses: tuple[str, ...] = ()


WORST_OFF, WHOLE_RELEASE, INFERENCE, NEW_RECORDS, UTILITY, OTHER = (
    "worst_off", "whole_release", "inference", "new_records", "survived", "other",
)  # fmt: skip
QUESTIONS = (
    Question(
        "singled_out", "Singling out", "Can one person’s record be picked out of the release, or found in it word for word?",
        ("singling_out", "copies", "membership"),
    ),
    Question(
        "linkability", "Linkability", "Can a release be traced to its original or its person, or two releases to each other?",
        ("linkage", "release_linkability"),
    ),
    Question(
        INFERENCE, "Inference", "Can a private attribute be read from a release, or from anything that comes with it?",
        ("side_channels", "strangers", "attack_validity"),
    ),
    Question(WORST_OFF, "The worst-off", "An average can hide one person or group that fares worse. Who fares worst?"),
    Question(
        WHOLE_RELEASE, "What a whole release reveals", "What do several released records of one person reveal together?",
        ("person_pairs",),
    ),
    Question(
        "donors_shown", "Donors", "Whose real records are published, how often, and can the draws be repeated?",
        ("donors", "replay"),
    ),
    Question(NEW_RECORDS, "Records without labels", "Do the findings apply to the new records?"),
    Question(OTHER, "Further analyses", "What else was analysed?"),
)  # fmt: skip

POPULATIONS: Mapping[Population, str] = {
    "enrolled people": "The attacker holds labelled records of these very people.",
    "new people": "The attacker has never seen these people and learnt on others.",
    "donors": "Their real records are published in place of other people’s.",
}

NOT_QUICK = "Left out: this is a quick audit. A full one (audit.effort=full) makes this analysis."
NOT_TESTED = {"donors": "Published as they are, by design: see the section on donors for exposure and consent."}


@dataclass(frozen=True, slots=True)
class Section:
    """An analysis as the page shows it."""

    key: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """The checks and analyses that answer a question."""

    question: Question
    checks: tuple[Check, ...]
    sections: tuple[Section, ...]

    @property
    def outcome(self) -> Outcome | Kept | None:
        return joint(self.checks)

    @property
    def summary(self) -> str:
        return counted(self.checks)


@dataclass(frozen=True, slots=True)
class PopulationVerdict:
    """What the checks about one kind of people say together."""

    name: str
    who: str
    outcome: Outcome | Kept | None
    summary: str


def joint(checks: Sequence[Check]) -> Outcome | Kept | None:
    """Checks together: one leak shows, and all must be met to be below the limit; None without a check.

    Stricter than the verdict, which can do without some: nothing undecided is shown in green.
    """
    if not checks:
        return None
    useful = all(check.name == "useful_nag_at_least" for check in checks)
    if any(check.failed for check in checks):
        return "lost" if useful else "leak shown"
    if all(check.passed for check in checks):
        return "kept" if useful else "below the limit"
    return "cannot be decided"


def counted(checks: Sequence[Check]) -> str:
    """How many checks say what."""
    if not checks:
        return "No check was made."
    met, broken = sum(check.passed for check in checks), sum(check.failed for check in checks)
    open_ = [check for check in checks if not check.passed and not check.failed]
    words = [f"{met} of {len(checks)} {'check' if len(checks) == 1 else 'checks'} met"]
    words += [f"{broken} {'shows a leak or a loss' if broken == 1 else 'show leaks or losses'}"] if broken else []
    spare = sum(not check.required for check in open_)
    if open_:
        aside = f" ({spare} of them not needed for a pass)" if spare else ""
        words.append(f"{len(open_)} cannot be decided{aside}")
    return "; ".join(words) + "."


def answers(audit: Audit) -> list[Answer]:
    """Every question that has a check or an analysis; unknown analyses answer the last one."""
    of_analysis = {key: question.key for question in QUESTIONS for key in question.analyses}
    asked = [(check, _question_of(check, audit, of_analysis)) for check in audit.checks]
    found, skipped = [], left_out(audit.effort)
    for question in QUESTIONS:
        checks = tuple(check for check, key in asked if key == question.key)
        sections = tuple(
            Section(one.key, one.title, (NOT_QUICK,) if one.key in skipped else tuple(one.section(audit.analyses[one.key])))
            for one in every_analysis()
            if of_analysis.get(one.key, OTHER) == question.key
        )
        if checks or sections or question.key in (INFERENCE, WORST_OFF, WHOLE_RELEASE):
            found.append(Answer(question, checks, sections))
    return found


def utility_checks(audit: Audit) -> list[Check]:
    """What must be kept."""
    return [check for check in audit.checks if check.name == "useful_nag_at_least"]


def _question_of(check: Check, audit: Audit, of_analysis: Mapping[str, str]) -> str:
    if check.name == "useful_nag_at_least":
        return UTILITY
    if check.name in (*DRIFTS, "labelled_audit", "valid_days"):
        return NEW_RECORDS
    limits = thresholds_of(audit)
    for analysis in every_analysis():
        finding = audit.analyses[analysis.key]
        if check.name in analysis.demands:
            return of_analysis.get(analysis.key, OTHER)
        if finding is not None and check.about in _abouts(analysis, finding, limits):
            return WHOLE_RELEASE if analysis.key == "linkage" else of_analysis.get(analysis.key, OTHER)
    return WORST_OFF if "in a subgroup of" in check.about else INFERENCE


def _abouts(analysis: Analysis[Any], finding: Any, limits: Thresholds) -> set[str]:
    """What an analysis judges: its own checks, and what it hands to the common ones."""
    judged: list[Any] = [*analysis.checks(finding, limits), *analysis.evidence(finding), *analysis.comparisons(finding)]
    return {one.about for one in judged}


def thresholds_of(audit: Audit) -> Thresholds:
    """The limits of an audit; those that it did not have are the defaults."""
    known = {field.name for field in fields(Thresholds)}
    return Thresholds(**{name: limit for name, limit in audit.thresholds.items() if name in known})


def populations(audit: Audit) -> list[PopulationVerdict]:
    """The verdict for each kind of people, and for what belongs to no kind."""
    found = []
    for name in get_args(Population):
        checks = [check for check in audit.checks if check.population == name]
        words = counted(checks) if checks else NOT_TESTED.get(name, "No check of this audit is about them.")
        found.append(PopulationVerdict(name, POPULATIONS[name], joint(checks), words))
    rest = [check for check in audit.checks if check.population is None and check.name != "useful_nag_at_least"]
    if rest:
        who = "Checks of the release as a whole, whoever is in it."
        found.append(PopulationVerdict("everybody", who, joint(rest), counted(rest)))
    return found


def not_made(audit: Audit) -> list[str]:
    """Titles of analyses that these data, or this audit, did not allow."""
    return [one.title for one in every_analysis() if audit.analyses[one.key] is None]


def undecided(audit: Audit) -> list[Check]:
    """Checks whose interval holds the limit."""
    return [check for check in audit.checks if check.outcome == "cannot be decided"]


def measured(audit: Audit) -> list[tuple[str, str, str]]:
    """Question, outcome and counts: what attacks found."""
    found = [(one.question.title, one.outcome or "not tested", one.summary) for one in answers(audit)]
    useful = utility_checks(audit)
    return [*found, ("Utility", joint(useful) or "not tested", counted(useful))]


def declared(audit: Audit) -> list[tuple[str, str]]:
    """What the operator says and no attack can measure."""
    if audit.recipient is None:
        recipient = "Not declared: this audit was made by a version that had no recipient profile."
    else:
        recipient = audit.recipient.words()
    shown = [("Recipient (attacker.knows, records_per_person, draws_per_record)", recipient)]
    columns = ", ".join(audit.pass_through)
    shown.append(("Published columns", f"{columns}: every recipient knows them." if columns else "None beside the payload."))
    if audit.channel is not None:
        only = " and ".join(f"{name} = {value}" for name, value in (audit.donors_only or {}).items())
        agreed = f"Every donor has {only}; that this means consent is the operator’s word." if only else (
            "No condition on donors is declared (pool.only), so that this audit has no sign of their consent."
        )  # fmt: skip
        shown += [("Donors", agreed), ("Excluded as a record’s donor", FORBIDDEN.get(str(audit.forbid), str(audit.forbid)))]
    stamp = f"{audit.stamp}." if audit.stamp else "Nothing. The draw key is taken to be secret."
    return [*shown, ("The release says of itself", stamp)]


RULE = (
    "A leak that an attack shows counts, whatever was declared. A figure below its limit holds for the declared recipient only. "
    "What cannot be decided, or was not tested, rests on the declarations alone. No single score is formed."
)


def combined(audit: Audit) -> list[str]:
    """Measured and declared together, in words."""
    who = "the recipient declared above" if audit.recipient else "a recipient who was not declared"
    open_, leaks = undecided(audit), [check for check in audit.checks if check.outcome == "leak shown"]
    said = {
        "leak shown": f"Privacy: leak shown by {_number(leaks, 'check')}. No declaration lowers it: do not publish this release.",
        "cannot be decided": f"Privacy: no leak is shown, and none is excluded, for {who}. To publish now is to rely on the "
        "declarations; to audit more records would decide.",
        "below the limit": f"Privacy: below the limits where a pass needs it, for {who}. A recipient who knows more, or holds "
        "more records of a person, was not tested.",
    }
    words = [said[audit.privacy]]
    if open_ and audit.privacy != "cannot be decided":
        words.append(f"Undecided, and resting on the declarations: {_number(open_, 'check')}. See what could not have been seen.")
    if audit.channel is not None:
        words.append("Donors are shown as they are: that they agreed is declared, and was not measured.")
    if audit.utility is not None:
        words.append({"kept": "Utility: kept.", "lost": "Utility: lost."}.get(audit.utility, "Utility: cannot be decided."))
    if audit.stamp:
        words.append("The release’s own stamp limits what it may be used for, whatever the figures say.")
    return words


def _number(found: Iterable[Check], noun: str) -> str:
    number = len(list(found))
    return f"{number} {noun}{'' if number == 1 else 's'}"
