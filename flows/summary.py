"""Summarises an audit for the terminal and for Prefect's artifacts."""

from pathlib import Path

from pass_core.auditing.findings import with_interval
from pass_core.storage.audits import Audit, read_audit


def audit_rows(audit: Path) -> list[dict[str, str]]:
    """One row per attribute, formatted for people."""
    return [
        {
            "attribute": row.name,
            "role": row.role,
            "no protection": f"{row.unprotected.value:.1%}",
            "protected": f"{row.protected.value:.1%}",
            "guess": f"{row.guess:.1%}",
            "NAG": f"{row.nag.value:.1%} ({100 * row.nag.low:.1f}–{row.nag.high:.1%})",
            "exact": "–" if row.exact is None else f"{row.exact.rule.value:.1%} … {row.exact.plug_in:.1%}",
            "verdict": row.verdict or "–",
        }
        for row in read_audit(audit).attributes
    ]


def headline(audit: Audit) -> str:
    """Verdict, privacy and utility in a line."""
    utility = audit.utility or "not tested"
    return f"{audit.verdict.upper()}, privacy {audit.privacy}, utility {utility}, mNAG {with_interval(audit.mnag)}"


def audit_markdown(audit: Path, report: Path) -> str:
    """The audit as Markdown: verdict, reasons, attributes, linkage, and where the report is."""
    document = read_audit(audit)
    met, broken = (sum(getattr(check, name) for check in document.checks) for name in ("passed", "failed"))
    undecided = len(document.checks) - met - broken
    lines = [
        f"# {document.dataset} / {document.method}: {document.verdict.upper()}",
        f"Privacy: **{document.privacy}**. Utility: **{document.utility or 'not tested'}**. mNAG {with_interval(document.mnag)}.",
        f"{len(document.checks)} checks: {met} met, {broken} broken, {undecided} cannot be decided.",
        "",
    ]
    if document.recipient is not None:
        lines += [document.recipient.words(), ""]
    if document.basis == "unlabelled":
        lines += ["**Private attributes were not attacked on these data: they carry no labels.**", ""]
    if document.stamp:
        lines += [f"Stamp of the release: {document.stamp}.", ""]
    lines += [*[f"- {reason}" for reason in document.reasons], ""]
    lines += [*_table(audit_rows(audit)), "", _linkage_line(document), "", document.not_promised[0], "", f"Report: `{report}`"]
    return "\n".join(lines)


def _linkage_line(document: Audit) -> str:
    """How often a release is traced to its original, and how well several records of one person reveal an attribute."""
    from pass_core.auditing.analyses.linkage import Linkage  # heavy: only where an audit is shown

    linkage = document.finding(Linkage)
    if linkage is None:
        return "Linkage was not measured."
    found, chance = with_interval(linkage.reidentified), f"chance {linkage.chance:.2%}"
    parts = [f"Linkage: {found} of releases are traced to their originals among {linkage.gallery} ({chance})"]
    for bundle in linkage.bundles:
        if bundle.sizes:
            largest = bundle.sizes[-1]
            parts.append(
                f"{bundle.attribute} from {largest.records} records of one person: "
                f"{largest.accuracy.value:.1%} (guess {bundle.guess:.1%})"
            )
    return "; ".join(parts) + "."


def _table(rows: list[dict[str, str]]) -> list[str]:
    """Rows as a Markdown table; names of attributes come from users' data and may contain the separator."""
    if not rows:
        return ["No attribute was attacked."]
    cells = [[value.replace("|", "\\|") for value in row.values()] for row in rows]
    return [f"| {' | '.join(rows[0])} |", f"|{'---|' * len(rows[0])}", *[f"| {' | '.join(row)} |" for row in cells]]
