"""audit.json, training curves and model.json to one page; its words are in the templates, wording.py and the audit's analyses."""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pass_core.auditing.analyses.base import every_analysis
from pass_core.auditing.analyses.donor_exposure import half_of_releases
from pass_core.auditing.findings import Comparison
from pass_core.auditing.section import Bars, Block, Curve, Part, Table
from pass_core.auditing.verdict import comparisons_of
from pass_core.errors import DataError
from pass_core.storage.audits import Audit, read_audit
from pass_core.storage.models import describe_model
from tasks.reports import charts, intervals, risk, scatter, svg, wording

PAGE = "report.html"


def write_report(folder: Path, inputs: Mapping[str, Path], provenance: Mapping[str, Any] | None) -> int:
    """Writes the page of an audit and its figures below `folder`; returns the number of figures.

    Args:
        inputs: `audit`, and where this pipeline trained the protector `curves` and `model`.
        provenance: joined in for people; None for the versioned copy.
    """
    audit = read_audit(inputs["audit"])
    drawn = make_figures(audit, _curves(inputs["curves"]) if "curves" in inputs else {})
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for name, drawing in drawn.items():
        (folder / "figures" / f"{name}.svg").write_text(svg.standalone(drawing))
    page = environment().get_template("report.html").render(
        audit=audit,
        figures={name: Markup(drawing) for name, drawing in drawn.items()},  # noqa: S704 (our own SVG, its text escaped)
        comparisons=information_comparisons(audit),
        answers=risk.answers(audit),
        model=describe_model(inputs["model"]) if "model" in inputs else None,
        provenance=provenance,
        validity=wording.validity(audit, provenance),
        named_class=partial(wording.class_name, audit),
    )  # fmt: skip
    (folder / PAGE).write_text(page)
    return len(drawn)


def _curves(path: Path) -> dict[str, list[float]]:
    try:
        return pl.read_csv(path).to_dict(as_series=False)
    except (FileNotFoundError, pl.exceptions.PolarsError):
        raise DataError(f"{path}: is missing or damaged; run train again") from None


def make_figures(audit: Audit, curves: Mapping[str, Sequence[float]]) -> dict[str, str]:
    """Figure name -> SVG; what was not analysed has none."""
    drawn = _attribute_figures(audit) if audit.attributes else {}
    if audit.unlabelled and audit.unlabelled.drift:
        drifts = [Comparison("", wording.demand(drift.name).title, drift) for drift in audit.unlabelled.drift]
        drawn["drift"] = scatter.information_hills(drifts, "Drift of new records", unit="")
    comparisons = information_comparisons(audit)
    if comparisons:
        drawn["information"] = scatter.information_hills(comparisons, "Information on private attributes", unit=" nats")
    for name, matrix in (audit.confusion or {}).items():
        if len(matrix) <= charts.MOST_CLASSES:
            drawn[figure_name(f"confusion_{name}")] = charts.confusion(name, audit.classes[name], matrix)
    for section in (section for answer in risk.answers(audit) for section in answer.sections):
        for one in _figures(section.blocks):
            drawn[figure_name(one.name)] = (
                charts.bars_figure(one) if isinstance(one, Bars) else charts.growth(one.series, one.unit, one.label)
            )
    if curves.get("epoch"):
        drawn["training_curves"] = charts.training_curves(curves)
    return drawn


def figure_name(name: str) -> str:
    """The name of a figure's file: names of columns may hold anything."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", name)
    return name if plain == name else f"{plain}_{sha256(name.encode()).hexdigest()[:6]}"


def information_comparisons(audit: Audit) -> list[Comparison]:
    """Of every private attribute: alone, with side information, in its most suspicious subgroup; then those of the analyses."""
    found: list[Comparison] = []
    for row in audit.attributes:
        if row.role == "private" and row.exact:
            found += comparisons_of(dataclasses.replace(row, subgroups=()))
            groups = [(group, group.information) for group in row.subgroups if group.information]
            if groups:
                group, information = min(groups, key=lambda pair: (pair[1].p_value, -pair[1].excess))
                where = wording.class_name(audit, group.attribute, group.label)
                found.append(Comparison(row.name, f"{row.name} where {where}", information))
    for analysis in every_analysis():
        if audit.analyses[analysis.key] is not None:
            found += analysis.comparisons(audit.analyses[analysis.key])
    return found


def _figures(blocks: Iterable[Block]) -> Iterator[Curve | Bars]:
    for block in blocks:
        if isinstance(block, Part):
            yield from _figures(block.blocks)
        elif not isinstance(block, str | Table):
            yield from (item for item in block if isinstance(item, Curve | Bars))


def _as_table(curve: Curve) -> Table:
    """The values of a curve; its series have the same numbers."""
    columns = zip(*(one.accuracies for one in curve.series), strict=True)
    rows = [(str(number), *values) for number, values in zip(curve.series[0].numbers, columns, strict=True)]
    guesses = ", ".join(f"{one.name} {one.guess:.2%}".strip() for one in curve.series)
    names = [one.name.capitalize() or "Accuracy" for one in curve.series]
    return Table(f"{curve.title}, {curve.unit}", f"{curve.label}. Guessing: {guesses}.", (curve.unit.capitalize(), *names), rows)


def environment() -> Environment:
    """Templates with the filters that turn figures into words."""
    folder = Path(__file__).parent
    loader = FileSystemLoader(folder / "templates")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    words = (
        wording.estimate, wording.nats, wording.of_a_limit, wording.readable, wording.spaced, wording.wrappable,
        svg.percent, scatter.p_value,
    )  # fmt: skip
    made.filters |= {filter_.__name__: filter_ for filter_ in words}
    made.filters |= {"as_dict": dataclasses.asdict, "as_table": _as_table}
    made.tests["a"] = lambda value, kind: type(value).__name__ == kind  # a block of an analysis's section
    made.globals |= {
        "words": wording,
        "risk": risk,
        "charts": charts,
        "figure_name": figure_name,
        "half_of_releases": half_of_releases,
        "style": Markup(svg.palette() + (folder / "page.css").read_text()),  # noqa: S704 (our own files)
    }
    return made


def _attribute_figures(audit: Audit) -> dict[str, str]:
    attributes, thresholds = audit.attributes, audit.thresholds
    drawn = {
        "nag": intervals.nag_of_attributes(attributes, thresholds),
        "before_and_after": intervals.before_and_after(attributes),
        "before_against_after": scatter.before_against_after(attributes),
    }
    for row in attributes:
        if row.role == "private":
            drawn[figure_name(f"attacks_{row.name}")] = intervals.nag_of_attacks(row, thresholds)
    if any(group.nag for row in attributes for group in row.subgroups):
        drawn["subgroups"] = intervals.nag_of_subgroups(attributes, thresholds, partial(wording.class_name, audit))
    return drawn
