"""audit.json, training curves and model.json to one page; every word that people read is in the templates or in words.py."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from tasks.reporting import intervals, lines, maps, planes, svg, words


def make_figures(audit: Mapping[str, Any], curves: Mapping[str, Sequence[float]]) -> dict[str, str]:
    """Figure name -> SVG; what was not looked at has none."""
    attributes, thresholds = audit["attributes"], audit["thresholds"]
    drawn = {}
    if attributes:
        drawn["nag"] = intervals.nag_of_attributes(attributes, thresholds)
        drawn["before_and_after"] = intervals.before_and_after(attributes)
        drawn["before_against_after"] = planes.before_against_after(attributes)
    for row in attributes:
        if row["role"] == "private":
            drawn[figure_name("attacks", row["name"])] = intervals.nag_of_attacks(row, thresholds)
    if any(group["nag"] for row in attributes for group in row["subgroups"]):
        drawn["subgroups"] = intervals.nag_of_subgroups(attributes, thresholds, _namer(audit))
    comparisons = information_comparisons(audit)
    if comparisons:
        drawn["information"] = planes.information_hills(comparisons)
    for name, matrix in (audit["confusion"] or {}).items():
        if len(matrix) <= maps.MOST_CLASSES:
            drawn[figure_name("confusion", name)] = maps.confusion(name, audit["classes"][name], matrix)
    if audit["linkage"]:
        drawn |= _linkage_figures(audit)
    if audit["donors"]:
        drawn["donor_reuse"] = maps.donor_reuse(audit["donors"])
    if curves.get("epoch"):
        drawn["training_curves"] = lines.training_curves(curves)
    return drawn


def figure_name(kind: str, attribute: str) -> str:
    """The name of an attribute's figure, which is also its file's."""
    return f"{kind}_{quote(attribute, safe='')}"


def information_comparisons(audit: Mapping[str, Any]) -> list[planes.Comparison]:
    """Of every private attribute: itself, beside what is known, in its most suspicious subgroup, and of strangers."""
    found = []
    for row in audit["attributes"]:
        if row["role"] != "private" or row["exact"] is None:
            continue
        found.append(planes.Comparison(row["name"], row["exact"]["information"]))
        for known in row["side_information"]:
            if known["information"]:
                found.append(planes.Comparison(f"{row['name']}, when {known['known']} is known", known["information"]))
        groups = [group for group in row["subgroups"] if group["information"]]
        if groups:
            worst = min(groups, key=lambda group: (group["information"]["p_value"], -group["information"]["excess"]))
            where = words.class_name(audit, worst["attribute"], worst["label"])
            found.append(planes.Comparison(f"{row['name']} where {where}", worst["information"]))
    for stranger in (audit["strangers"] or {}).get("attributes", ()):
        if stranger["information"]:
            found.append(planes.Comparison(f"{stranger['attribute']} of strangers", stranger["information"]))
    return found


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
        expiry=words.expiry(audit, provenance),
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
    made.filters |= {"percent": svg.percent, "estimate": words.estimate, "nats": words.nats, "readable": words.readable, "p_value": planes.p_value}
    made.globals |= {
        "words": words,
        "maps": maps,
        "figure_name": figure_name,
        "style": Markup(svg.palette() + (Path(__file__).parent / "page.css").read_text()),  # noqa: S704 (our own files)
    }
    return made


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
    return lambda attribute, label: words.class_name(audit, attribute, label)
