"""The annex to a data protection impact assessment: what the audit measured, in the places where frameworks ask for it.

Parts that no audit can fill are left to the controller and marked. Headings name clauses and topics; the words are ours.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pass_core.auditing.analyses.linkage import Linkage
from pass_core.auditing.section import Cell, Table
from pass_core.statistics.intervals import Estimate
from pass_core.storage.audits import Audit, read_audit
from tasks.reports import risk, wording
from tasks.reports.page import PAGE, environment

NAME = "annex-dpia"
TO_COMPLETE = "To be completed by the controller"


@dataclass(frozen=True, slots=True)
class Entry:
    """One heading of a framework: what was measured, and what the controller has to add."""

    reference: str
    topic: str
    found: Sequence[str | Table] = ()
    controller: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Chapter:
    """A framework."""

    key: str
    title: str
    about: str
    entries: Sequence[Entry]


def write_annex(folder: Path, audit_path: Path, provenance: Mapping[str, Any] | None) -> tuple[Path, Path]:
    """Writes the annex as HTML and as Markdown beside the report; returns both paths."""
    audit = read_audit(audit_path)
    validity = wording.validity(audit, provenance)
    chapters = (_dpia(audit, validity), _iso_27559(audit, validity), _nist_800_188(audit))
    page = (
        environment()
        .get_template("annex.html")
        .render(audit=audit, chapters=chapters, validity=validity, to_complete=TO_COMPLETE, report=PAGE)
    )
    paths = folder / f"{NAME}.html", folder / f"{NAME}.md"
    paths[0].write_text(page)
    paths[1].write_text("\n".join(_markdown(audit, chapters)))
    return paths


def _dpia(audit: Audit, validity: tuple[str, str] | None) -> Chapter:
    until = f"Audited on {validity[0]}, valid until {validity[1]}." if validity else f"Valid for {audit.valid_days} days."
    overview = (
        f"Data set {audit.dataset}, released by the method {audit.method} of PASS Pipeline. {until}",
        _table("Audited files", "SHA-256 digests of what was audited.", ("File", "Digest"), _digests(audit)),
    )
    description = (
        _subjects(audit),
        _attributes(audit),
        _replacement(audit),
        f"Published beside the payload: {', '.join(audit.pass_through) or 'no further column'}.",
    )
    minimised = (
        "Private attributes are suppressed, useful ones kept on purpose. What was not declared was not analysed.",
        _table("Declared by the operator", "Not measured by the audit.", ("What", "Declaration"), risk.declared(audit)),
    )
    conclusion = (
        f"Privacy: {audit.privacy}. Utility: {audit.utility or 'not tested'}. Verdict of the audit: {audit.verdict}.",
        *(audit.not_promised[:1] if audit.effort == "quick" else ()),
        *audit.reasons,
        "The audit's verdict is one input to this decision. A pass means that these attacks failed, not that none can succeed.",
    )
    entries = (
        Entry("Section 0", "Overview of the processing", overview, (
            "Controllers, processors and sub-processors; name and timeline of the processing.",
            "Assessment team, standards used, and why an assessment is made.",
        )),
        Entry("Section 1", "Systematic description of the processing", description, (
            "Purposes; categories of data beside those audited; data flows, assets and places of storage.",
            "Recipients by name, and their contracts; retention of originals, of the pool and of the draw key.",
        )),
        Entry("Section 2", "Analysis of compliance", minimised, (
            "Legal basis for each purpose, also for publishing donors' records; how donors agreed and can withdraw.",
            "Rights of the people concerned; security of processing; who holds the draw key.",
        )),
        Entry("Section 3", "Necessity and proportionality", (_utility(audit),), (
            "Why the purposes cannot be reached with less data, and whether what survives is enough for them.",
        )),
        Entry("Section 4", "Risk assessment and management", tuple(_risks(audit)), (
            "Severity for the people concerned; threats that are no attack on the released data, such as theft of the originals.",
            "Action plan: further measures, who takes them and until when; the residual risk after them.",
        )),
        Entry("Section 5", "Involvement of interested parties", (), (
            "Advice of the data protection officer; views of the people concerned and of donors, or of their representatives.",
        )),
        Entry("Section 6", "Conclusion", conclusion, (
            "Decision: approve, approve with conditions, reject, or consult the supervisory authority; date and signature.",
        )),
    )  # fmt: skip
    about = "Sections as in the European Data Protection Board's template of 2026 (version for public consultation)."
    return Chapter("dpia", "Data protection impact assessment", about, entries)


def _iso_27559(audit: Audit, validity: tuple[str, str] | None) -> Chapter:
    again = f"The audit expires on {validity[1]}." if validity else f"The audit expires after {audit.valid_days} days."
    entries = (
        Entry("7.2", "Data features", (_subjects(audit), _attributes(audit)), (
            "How the people in the data were chosen, and whom they stand for.",
        )),
        Entry("7.3.2", "Maximum or average risk", (
            "Averages are over the attacked records; the maximum is that of the worst attack, subgroup and release.",
            _worst(audit),
        )),
        Entry("8.2.2", "Quantifying identifiability", (_linkage(audit), _questions(audit)), (
            "The threshold for this environment, and why: the limits of the audit are its defaults unless they were changed.",
        )),
        Entry("8.2.3", "Adversarial testing", tuple(_adversary(audit)), (
            "Tests by people who were not involved in making the release.",
        )),
        Entry("8.3.3", "Transforming the data", (_replacement(audit), _utility(audit))),
        Entry("8.3.4", "Re-evaluation", (
            f"{again} Audit again then, and whenever data, model, pool or release change: the digests above show it.",
            *_undecided(audit),
        ), ("Who decides on a new release after a change, and who watches for new attacks.",)),
        Entry("6, 8.3.2 and 9", "Context, environment and governance", (), (
            "Threats, motives and capacity of recipients; controls on the environment; roles, policies, incidents.",
        )),
    )  # fmt: skip
    about = "ISO/IEC 27559:2022, a framework for de-identification: the clauses to which an audit contributes."
    return Chapter("iso", "ISO/IEC 27559", about, entries)


def _nist_800_188(audit: Audit) -> Chapter:
    entries = (
        Entry("Study", "Who attacks, knowing what", tuple(_adversary(audit))),
        Entry("Study", "What was attempted, and how often it succeeded", (_questions(audit), _linkage(audit), _residual(audit))),
        Entry("Study", "What the study could not have seen", tuple(_undecided(audit)) or ("Every check was decided.",), (
            "Outside data that a recipient may hold and that was not available to the audit.",
        )),
        Entry("Governance", "Review and sharing model", (), (
            "Who reviews the disclosure, on which sharing model, and with which conditions of use.",
        )),
    )  # fmt: skip
    about = "NIST SP 800-188, on de-identifying government data: the audit as a re-identification study."
    return Chapter("nist", "NIST SP 800-188", about, entries)


def _table(label: str, caption: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Table:
    return Table(label, caption, columns, rows)


def _subjects(audit: Audit) -> str:
    new = f" {audit.unlabelled.records} new records without labels rely on it." if audit.unlabelled else ""
    return (
        f"{audit.records.test} released records of {audit.persons.test} persons were attacked; attackers learnt from "
        f"{audit.records.train} records of {audit.persons.train} persons.{new}"
    )


def _digests(audit: Audit) -> list[tuple[str, str]]:
    named = {"Protected data": audit.protected_digest, "Originals": audit.original_digest, "Model": audit.model_digest}
    return [(name, value or "not known") for name, value in (named | {"Pool of donors": audit.pool_digest}).items()]


def _attributes(audit: Audit) -> Table:
    rows: list[tuple[Cell, ...]] = [(row.name, row.role, str(row.n_classes), f"{row.guess:.1%}") for row in audit.attributes]
    rows += [(name, "no attack reads it from originals", "–", "–") for name in audit.unreadable]
    caption = "Private: to be hidden. Useful: to be kept. General: measured, not judged."
    return _table("Attributes", caption, ("Attribute", "Role", "Classes", "Blind guessing is right"), rows)


def _replacement(audit: Audit) -> str:
    if audit.channel is None:
        return "How records were replaced is not known to the audit as probabilities: it had originals and their releases."
    key = "" if audit.stamp else " and a secret key"
    never = risk.FORBIDDEN.get(str(audit.forbid), str(audit.forbid))
    return (
        f"Every record is replaced by the real record of one of {audit.channel.pool_size} donors, drawn at random with trained "
        f"probabilities{key}. Excluded as a record’s donor: {never}."
    )


def _utility(audit: Audit) -> Table:
    rows = [
        (row.name, row.unprotected, row.protected, row.trained_on_released, row.verdict or "not judged")
        for row in audit.attributes
        if row.role != "private"
    ]
    caption = "How often a model reads the attribute correctly; and the share of the lead over guessing that a model keeps which "
    caption += "is trained on releases and used on originals."
    columns = ("Attribute", "On originals", "On releases", "Trained on releases", "Outcome")
    return _table("What survives", caption, columns, rows)


def _residual(audit: Audit) -> Table:
    rows = [
        (row.name, f"{row.guess:.1%}", row.unprotected, row.protected, row.attack, str(row.verdict))
        for row in audit.attributes
        if row.role == "private"
    ]
    columns = ("Private attribute", "Guessing", "Before protection", "After protection", "Worst attack", "Outcome")
    caption = "How often an attacker who sees one record is right: inherent risk before protection, measured residual risk after."
    return _table("Before and after", caption, columns, rows)


def _questions(audit: Audit) -> Table:
    return _table("Measured risks", "Outcome of the checks by question.", ("Question", "Outcome", "Checks"), risk.measured(audit))


def _risks(audit: Audit) -> Iterator[str | Table]:
    yield _residual(audit)
    yield _questions(audit)
    people = [(one.name.capitalize(), one.outcome or "not tested", one.summary) for one in risk.populations(audit)]
    yield _table("People", "Outcome by the people concerned.", ("People", "Outcome", "Checks"), people)
    yield f"Rule by which measured and declared risk are combined: {risk.RULE}"
    yield from risk.combined(audit)


def _worst(audit: Audit) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for row in audit.attributes:
        if row.role == "private":
            group = wording.worst_subgroup(row)
            named = "" if group is None else wording.class_name(audit, group.attribute, group.label)
            where = "–" if group is None else f"{named}, {group.records} records"
            odds = "–" if row.exact is None else f"× {row.exact.leakage.largest_ratio:.2f}"
            nags = [] if group is None else [nag for nag in (group.nag, group.exact_nag) if nag]
            worst: Estimate | None = max(nags, key=lambda nag: nag.low, default=None)
            rows.append((row.name, row.nag, where, worst, odds))
    caption = "NAG: the share of an attacker's lead over guessing that is left. Last column: by how much one release raises odds."
    columns = ("Private attribute", "NAG on average", "Worst subgroup", "NAG there", "Most revealing release")
    return _table("Average and worst", caption, columns, rows)


def _linkage(audit: Audit) -> str:
    found = audit.finding(Linkage)
    if found is None:
        return "Whether a release can be traced to its original was not measured."
    alike = "" if found.alike is None else f"{100 * found.alike.value:.0f}; by chance {100 * found.alike_chance:.0f}"
    beyond = (
        f" Among originals that share the useful and general attributes, which are kept on purpose: {alike}." if alike else ""
    )
    return (
        f"Of 100 releases, an attacker who holds {found.gallery} originals traces {100 * found.reidentified.value:.0f} "
        f"({100 * found.reidentified.low:.0f} to {100 * found.reidentified.high:.0f}) to their very record; chance gives "
        f"{100 * found.chance:.2f}. The person is right in {100 * found.person.value:.0f}; by chance in "
        f"{100 * found.person_chance:.0f}.{beyond}"
    )


def _adversary(audit: Audit) -> Iterator[str | Table]:
    yield audit.recipient.words() if audit.recipient else "The assumed recipient is not known: an older version made the audit."
    yield "The attacker also knows the method, the model, the pool and labelled training records; everything but the draw key."
    if audit.basis == "unlabelled":
        yield "The new records carry no labels and were not attacked; labelled records of the same protector were."
    names = list(audit.attack_settings) + (["exact"] if any(row.exact for row in audit.attributes) else [])
    rows = [(name, wording.ATTACKS.get(name, "An attack of this installation.")) for name in names]
    yield _table("Attacks", "Attacks on every private attribute.", ("Attack", "What it does"), rows)


def _undecided(audit: Audit) -> Iterator[str]:
    for check in risk.undecided(audit):
        yield f"Cannot be decided: {check.sentence}. {wording.undecided_because(check)}".strip()
    for name in audit.unreadable:
        yield f"No attack reads {name} from originals: that attacks fail on releases proves nothing."
    for title in risk.not_made(audit):
        yield f"Not analysed: {title}."


def _markdown(audit: Audit, chapters: Sequence[Chapter]) -> Iterator[str]:
    yield f"# Annex to the impact assessment: {audit.dataset}, released by {audit.method}"
    yield f"\nFigures are those of `audit.json` and `{PAGE}` beside this file. **{TO_COMPLETE}** marks what no audit can say."
    for chapter in chapters:
        yield f"\n## {chapter.title}\n\n{chapter.about}"
        for entry in chapter.entries:
            yield f"\n### {entry.reference}: {entry.topic}"
            for block in entry.found:
                yield f"\n{wording.readable(block)}" if isinstance(block, str) else "\n" + "\n".join(_markdown_table(block))
            if entry.controller:
                yield f"\n**{TO_COMPLETE}:**\n"
                yield from (f"- [ ] {prompt}" for prompt in entry.controller)
    yield ""


def _markdown_table(table: Table) -> Iterator[str]:
    def line(cells: Sequence[Cell]) -> str:
        texts = [cell if isinstance(cell, str) else wording.estimate(cell) for cell in cells]
        return f"| {' | '.join(text.replace('|', chr(92) + '|') for text in texts)} |"

    yield f"{table.caption}\n"
    yield line(tuple(table.columns))
    yield f"|{'---|' * len(table.columns)}"
    yield from map(line, table.rows)
