"""Reports for people: the page with provenance joined in, audit.json and provenance.json, in one folder."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.registry import STEPS
from tasks.reports.annex import write_annex
from tasks.reports.page import PAGE, write_report
from tasks.running.layout import Layout
from tasks.running.provenance import describe
from tasks.running.step_io import RunKey
from tasks.storage.files import publish, read_json, staging_folder, storage_errors, write_json


def publish_report(layout: Layout, key: RunKey, *, annex: bool = False) -> Path:
    """Writes the folder of a pipeline run, with an annex if wanted; returns the report's path. Versioned files stay."""
    provenance = {}
    for step in STEPS.values():
        path = layout.provenance(step.name, step.key(key.dataset, key.method))
        if path.exists():
            provenance[step.name] = read_json(path)
    inputs = {name: layout.artefact(name, key) for name in ("audit", "curves", "model")}
    with storage_errors(layout.root), staging_folder(layout.staging, f"published-{key}".replace("/", "-")) as staging:
        folder = staging / "published"
        write_report(folder, inputs, provenance)
        if annex:
            write_annex(folder, inputs["audit"], provenance)
        shutil.copyfile(inputs["audit"], folder / "audit.json")
        write_json(folder / "provenance.json", provenance)
        publish(folder, layout.published(key))
    return layout.published(key) / PAGE


def write_audit(folder: Path, audit: Mapping[str, Any], seconds: float) -> Path:
    """Writes the folder of an audit that is no pipeline step and returns the report's path; `seconds` is the audit's duration."""
    with storage_errors(folder):
        provenance = {"audit": describe("command line", seconds) | {"mlflow_run": None}}
        write_json(folder / "audit.json", audit)
        write_json(folder / "provenance.json", provenance)
        write_report(folder, {"audit": folder / "audit.json"}, provenance)
    return folder / PAGE
