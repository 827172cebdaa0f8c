"""An audit in a few lines: for the terminal and for Prefect's artifacts."""

from pathlib import Path

from tasks.storage import read_json


def audit_rows(audit: Path) -> list[dict[str, str]]:
    """One row per attribute, as people read it."""
    document = read_json(audit)
    return [
        {
            "attribute": row["name"],
            "role": row["role"],
            "no protection": f"{row['accuracy']['unprotected']:.1%}",
            "protected": f"{row['accuracy']['protected']:.1%}",
            "guess": f"{row['accuracy']['majority']:.1%}",
            "NAG": f"{row['nag']:.1%}",
            "exact": "–" if row["nag_exact"] is None else f"{row['nag_exact']['rule']:.1%} … {row['nag_exact']['plug_in']:.1%}",
            "verdict": row["verdict"] or "–",
        }
        for row in document["attributes"]
    ]


def audit_markdown(audit: Path, report: Path) -> str:
    """The audit as Markdown."""
    document = read_json(audit)
    rows = audit_rows(audit)
    names = list(rows[0])
    lines = [
        f"# {document['dataset']} / {document['method']}: {document['verdict'].upper()}",
        f"mNAG {document['mnag']:.1%} ({document['mnag_interval']['low']:.1%} to {document['mnag_interval']['high']:.1%})",
        "",
        *[f"- {reason}" for reason in document["reasons"]],
        "",
        f"| {' | '.join(names)} |",
        f"|{'---|' * len(names)}",
        *[f"| {' | '.join(row.values())} |" for row in rows],
        "",
        document["not_promised"],
        "",
        f"Report: `{report}`",
    ]
    return "\n".join(lines)
