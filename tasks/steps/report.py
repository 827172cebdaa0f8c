"""Step report: the audit as a page for people, and its figures."""

from tasks.reports.page import write_report
from tasks.running.step_io import StepIO, StepResult


def report(io: StepIO) -> StepResult:
    """Writes report.html and its figures without provenance, so that equal audits give equal bytes."""
    return StepResult(counts={"figures": write_report(io.outputs["report"], io.inputs, provenance=None)})
