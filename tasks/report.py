"""Step report: the audit as a page for people, and its figures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from pass_core.errors import DataError
from tasks.models import describe_model
from tasks.reporting.page import make_figures, render
from tasks.step_io import StepIO, StepResult
from tasks.storage import read_json

PAGE = "report.html"


def report(io: StepIO) -> StepResult:
    """Writes report.html and its figures without provenance, so that equal audits give equal bytes."""
    n_figures = write_report(io.outputs["report"], io.inputs, provenance=None)
    return StepResult(counts={"figures": n_figures})


def write_report(folder: Path, inputs: Mapping[str, Path], provenance: Mapping[str, Any] | None) -> int:
    """Writes the page of an audit and its figures below `folder`; returns the number of figures."""
    audit = read_json(inputs["audit"])
    try:
        curves: Mapping[str, Sequence[float]] = pl.read_csv(inputs["curves"]).to_dict(as_series=False)
    except (FileNotFoundError, pl.exceptions.PolarsError):
        raise DataError(f"{inputs['curves']}: is missing or damaged; run train again") from None
    drawn = make_figures(audit, curves)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for name, svg in drawn.items():
        (folder / "figures" / f"{name}.svg").write_text(svg)
    (folder / PAGE).write_text(render(audit, drawn, describe_model(inputs["model"]), provenance))
    return len(drawn)
