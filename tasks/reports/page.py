"""audit.json, training curves and model.json to one page; every word that people read is in the templates or in words.py."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from tasks.reports import curves as lines
from tasks.reports import heatmaps, intervals, scatter, svg, wording


def make_figures(audit: Mapping[str, Any], curves: Mapping[str, Sequence[float]]) -> dict[str, str]:
    """Figure name -> SVG; what was not looked at has none."""
    drawn = _attribute_figures(audit) if audit["attributes"] else {}
    drifts = [scatter.Comparison(wording.demand(drift["name"], 0)[0], drift, "") for drift in wording.drifts(audit)]
    if drifts:
        drawn["drift"] = scatter.information_hills(drifts, "Drift of new records")
    comparisons = information_comparisons(audit)
    if comparisons:
        drawn["information"] = scatter.information_hills(comparisons)
    for name, matrix in (audit["confusion"] or {}).items():
        if len(matrix) <= heatmaps.MOST_CLASSES:
            drawn[figure_name("confusion", name)] = heatmaps.confusion(name, audit["classes"][name], matrix)
    if audit["linkage"]:
        drawn |= _linkage_figures(audit)
    if audit["donors"]:
        drawn["donor_reuse"] = heatmaps.donor_reuse(audit["donors"])
    if curves.get("epoch"):
        drawn["training_curves"] = lines.training_curves(curves)
    return drawn


def figure_name(kind: str, attribute: str) -> str:
    """The name of an attribute's figure, which is also its file's: names of columns may hold anything."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", attribute)
    return f"{kind}_{plain}" if plain == attribute else f"{kind}_{plain}_{sha256(attribute.encode()).hexdigest()[:6]}"


def information_comparisons(audit: Mapping[str, Any]) -> list[scatter.Comparison]:
    """Of every private attribute: itself, beside what is known, in its most suspicious subgroup, and of strangers."""
    found = [
        (about, information)
        for row in audit["attributes"]
        if row["role"] == "private" and row["exact"]
        for about, information in _comparisons(row, audit)
    ]
    strangers = (audit["strangers"] or {}).get("attributes", ())
    found += [(f"{stranger['attribute']} of strangers", stranger["information"]) for stranger in strangers]
    return [scatter.Comparison(about, information) for about, information in found if information]


def _comparisons(row: Mapping[str, Any], audit: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any] | None]]:
    yield row["name"], row["exact"]["information"]
    for known in row["side_information"]:
        yield f"{row['name']}, when {known['known']} is known", known["information"]
    groups = [group for group in row["subgroups"] if group["information"]]
    if groups:
        worst = min(groups, key=lambda group: (group["information"]["p_value"], -group["information"]["excess"]))
        yield f"{row['name']} where {wording.class_name(audit, worst['attribute'], worst['label'])}", worst["information"]


def render(
    audit: Mapping[str, Any], drawn: Mapping[str, str], model: Mapping[str, Any] | None, provenance: Mapping[str, Any] | None
) -> str:
    """The page; `provenance` is joined in for people and left out of the versioned copy."""
    return environment().get_template("report.html").render(
        audit=audit,
        figures={name: Markup(drawing) for name, drawing in drawn.items()},  # noqa: S704 (our own SVG, its text escaped)
        comparisons=information_comparisons(audit),
        model=model,
        provenance=provenance,
        validity=wording.validity(audit, provenance),
        named_class=_namer(audit),
    )  # fmt: skip


def environment() -> Environment:
    """Templates with the filters that turn figures into words."""
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "percent": svg.percent,
        "estimate": wording.estimate,
        "nats": wording.nats,
        "readable": wording.readable,
        "wrappable": wording.wrappable,
        "p_value": scatter.p_value,
    }
    made.globals |= {
        "words": wording,
        "maps": heatmaps,
        "figure_name": figure_name,
        "style": Markup(svg.palette() + (Path(__file__).parent / "page.css").read_text()),  # noqa: S704 (our own files)
    }
    return made


def _attribute_figures(audit: Mapping[str, Any]) -> dict[str, str]:
    attributes, thresholds = audit["attributes"], audit["thresholds"]
    drawn = {
        "nag": intervals.nag_of_attributes(attributes, thresholds),
        "before_and_after": intervals.before_and_after(attributes),
        "before_against_after": scatter.before_against_after(attributes),
    }
    for row in attributes:
        if row["role"] == "private":
            drawn[figure_name("attacks", row["name"])] = intervals.nag_of_attacks(row, thresholds)
    if any(group["nag"] for row in attributes for group in row["subgroups"]):
        drawn["subgroups"] = intervals.nag_of_subgroups(attributes, thresholds, _namer(audit))
    return drawn


def _linkage_figures(audit: Mapping[str, Any]) -> dict[str, str]:
    roles = {row["name"]: row["role"] for row in audit["attributes"]}
    drawn = {}
    for bundle in audit["linkage"]["bundles"]:
        if bundle["sizes"]:
            role = roles.get(bundle["attribute"], "private")
            drawn[figure_name("bundles", bundle["attribute"])] = lines.bundles_of(bundle, role, intervals.SHAPES[role])
    if audit["linkage"]["repeated_draws"]:
        drawn["repeated_draws"] = lines.repeated_draws(audit["linkage"])
    return drawn


def _namer(audit: Mapping[str, Any]) -> Callable[[str, int], str]:
    return lambda attribute, label: wording.class_name(audit, attribute, label)
