"""An audit that is no step of the pipeline, for people and programs: audit.json, report.html and provenance.json in a folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.running.provenance import describe
from tasks.steps.report import PAGE, write_report
from tasks.storage.files import storage_errors, write_json


def write_audit(folder: Path, audit: Mapping[str, Any], seconds: float) -> Path:
    """Writes the folder and returns the report's path; `seconds` is how long the audit took."""
    with storage_errors(folder):
        provenance = {"audit": describe("command line", seconds) | {"mlflow_run": None}}
        write_json(folder / "audit.json", audit)
        write_json(folder / "provenance.json", provenance)
        write_report(folder, {"audit": folder / "audit.json"}, provenance)
    return folder / PAGE
