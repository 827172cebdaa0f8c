"""A filled table as Markdown, as CSV and as one self-contained page; all three have the same figures."""

import csv
import dataclasses
import io
from pathlib import Path

from markupsafe import Markup

from tasks.paper_tables import words
from tasks.paper_tables.aggregate import FilledTable
from tasks.paper_tables.words import NOTHING
from tasks.reports.page import environment
from tasks.reports.scatter import Rival, ours_beside_paper
from tasks.storage.files import write_atomically

CSV_COLUMNS = (
    "table", "effort", "seeds", "row", "method", "column", "role", "nag", "deviation", "accuracy", "paper_nag", "paper_deviation",
    "paper_accuracy", "difference",
)  # fmt: skip


def write_table(filled: FilledTable, folder: Path) -> dict[str, Path]:
    """Writes NAME.md, NAME.csv and NAME.html; their paths."""
    name = filled.plan.name if filled.plan.effort == "full" else f"{filled.plan.name}-{filled.plan.effort}"
    paths = {}
    for ending, content in (("md", markdown(filled)), ("csv", comma_separated(filled)), ("html", page(filled))):
        paths[ending] = folder / f"{name}.{ending}"
        with write_atomically(paths[ending]) as temporary:
            temporary.write_text(content)
    return paths


def markdown(filled: FilledTable) -> str:
    """For docs and pull requests."""
    plan = filled.plan
    heads = words.heads(filled)
    lines = [f"### {title(filled)}", "", *(f"- {sentence}" for sentence in words.caption(plan)), "", words.LEGEND, ""]
    lines += [_line(["method", *heads]), _line(["---"] * (len(heads) + 1))]
    for row in filled.rows:
        cells = []
        for entry in row.entries:
            parts = [f"{words.role_mark(filled, entry)}{words.written(entry.ours)}"]
            if entry.paper is not None:
                parts += [f"paper {words.written(entry.paper)}", words.difference(entry)]
            cells.append("<br>".join(parts))
        lines.append(_line([row.label, *cells]))
    for reference in filled.references:
        cells = [_accuracies(*pair) for pair in zip(reference.ours, reference.paper, strict=True)]
        lines.append(_line([f"{reference.label}, accuracy", *cells]))
    lines += ["", *_beneath(filled)]
    lines += [f"- No figures for {problem}" for problem in words.problems(filled)]
    return "\n".join(lines).rstrip() + "\n"


def _beneath(filled: FilledTable) -> list[str]:
    found = [(row, beneath) for row in filled.rows for beneath in row.beneath]
    if not found:
        return []
    heads = ["method", "attribute", "exact attacker's NAG", "I(X';A) on train, nats", "attacker's balanced accuracy"]
    lines = ["Private attributes beyond accuracy:", "", _line(heads), _line(["---"] * 5)]
    for row, one in found:
        nats = NOTHING if one.information is None else f"{one.information:.4f}"
        lines.append(_line([row.label, one.attribute, words.written(one.exact), nats, words.written(one.balanced)]))
    return [*lines, ""]


def _line(entries: list[str]) -> str:
    return "| " + " | ".join(entry.replace("|", "\\|") for entry in entries) + " |"


def _accuracies(ours: float | None, paper: float | None) -> str:
    if ours is None:
        return NOTHING
    return words.number(ours) + ("" if paper is None else f"<br>paper {words.number(paper)}")


def comma_separated(filled: FilledTable) -> str:
    """One line per row and column, for further analysis."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    plan = filled.plan
    for row in filled.rows:
        for entry in row.entries:
            pairs = [dataclasses.astuple(one) if one else (None,) * 3 for one in (entry.ours, entry.paper)]
            figures = [*pairs[0], *pairs[1], entry.difference]
            written = ["" if value is None else f"{round(value, 4) + 0.0:g}" for value in figures]
            head = [plan.name, plan.effort, len(plan.seeds), row.label, row.method, entry.column.name, entry.role or ""]
            writer.writerow([*head, *written])
    return text.getvalue()


def page(filled: FilledTable) -> str:
    """A page without scripts or external links, in the reader's light or dark theme."""
    plot, rivals = None, [Rival(row.label, row.ours, row.paper) for row in filled.rows]
    if any(rival.ours or rival.paper for rival in rivals):
        plot = Markup(ours_beside_paper(rivals))  # noqa: S704 (our own SVG, its text escaped)
    template = environment().get_template("table.html")
    return template.render(filled=filled, title=title(filled), heads=words.heads(filled), says=words, plot=plot)


def title(filled: FilledTable) -> str:
    """`T8. MotionSense, baselines`."""
    return f"{filled.plan.name}. {filled.plan.table.title}"
