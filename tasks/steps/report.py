"""Step report: the audit as a page for people, and its figures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from pass_core.errors import DataError
from pass_core.storage.audits import read_audit
from tasks.reports.page import make_figures, render
from tasks.reports.svg import standalone
from tasks.running.step_io import StepIO, StepResult
from tasks.storage.models import describe_model

PAGE = "report.html"


def report(io: StepIO) -> StepResult:
    """Writes report.html and its figures without provenance, so that equal audits give equal bytes."""
    n_figures = write_report(io.outputs["report"], io.inputs, provenance=None)
    return StepResult(counts={"figures": n_figures})


def write_report(folder: Path, inputs: Mapping[str, Path], provenance: Mapping[str, Any] | None) -> int:
    """Writes the page of an audit and its figures below `folder`; returns the number of figures.

    Args:
        inputs: `audit`, and where this pipeline trained the protector `curves` and `model`.
    """
    audit = read_audit(inputs["audit"])
    drawn = make_figures(audit, _curves(inputs["curves"]) if "curves" in inputs else {})
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for name, svg in drawn.items():
        (folder / "figures" / f"{name}.svg").write_text(standalone(svg))
    model = describe_model(inputs["model"]) if "model" in inputs else None
    (folder / PAGE).write_text(render(audit, drawn, model, provenance))
    return len(drawn)


def _curves(path: Path) -> Mapping[str, Sequence[float]]:
    try:
        curves: Mapping[str, Sequence[float]] = pl.read_csv(path).to_dict(as_series=False)
    except (FileNotFoundError, pl.exceptions.PolarsError):
        raise DataError(f"{path}: is missing or damaged; run train again") from None
    return curves
