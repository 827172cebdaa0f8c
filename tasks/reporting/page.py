"""audit.json, training curves and model.json to one page; every word that people read is in the template."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from tasks.reporting import figures


def make_figures(audit: Mapping[str, Any], curves: Mapping[str, Sequence[float]]) -> dict[str, str]:
    """Figure name -> SVG."""
    drawn = {"nag": figures.nag_bars(audit["attributes"], audit["thresholds"])}
    if len(curves["epoch"]):
        drawn["training_curves"] = figures.training_curves(curves)
    if audit["donors"]:
        drawn["donor_reuse"] = figures.donor_reuse(audit["donors"])
    for name, matrix in (audit["confusion"] or {}).items():
        drawn[f"confusion_{name}"] = figures.confusion(name, audit["classes"][name], matrix)
    return drawn


def render(
    audit: Mapping[str, Any], drawn: Mapping[str, str], model: Mapping[str, Any], provenance: Mapping[str, Any] | None
) -> str:
    """The page; `provenance` is joined in for people and left out of the versioned copy."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = lambda value: f"{100 * value:.1f} %"
    environment.filters["nats"] = lambda value: f"{value:.4f}"
    return environment.get_template("template.html").render(
        audit=audit,
        figures={name: Markup(svg) for name, svg in drawn.items()},  # noqa: S704 (our own SVG, its text escaped)
        model=model,
        provenance=provenance,
    )
