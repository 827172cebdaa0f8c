"""What people read after a run: report with provenance joined in, audit.json, provenance.json, in one folder."""

import shutil
from pathlib import Path

from tasks.registry import STEPS
from tasks.running.layout import Layout
from tasks.running.step_io import RunKey
from tasks.steps.report import PAGE, write_report
from tasks.storage.files import publish, read_json, staging_folder, storage_errors, write_json


def publish_report(layout: Layout, key: RunKey) -> Path:
    """Writes the folder for people and returns the report's path; the versioned files stay as they are."""
    provenance = {}
    for step in STEPS.values():
        path = layout.provenance(step.name, step.key(key.dataset, key.method))
        if path.exists():
            provenance[step.name] = read_json(path)
    inputs = {name: layout.artefact(name, key) for name in ("audit", "curves", "model")}
    with storage_errors(layout.root), staging_folder(layout.staging, f"published-{key}".replace("/", "-")) as staging:
        folder = staging / "published"
        write_report(folder, inputs, provenance)
        shutil.copyfile(inputs["audit"], folder / "audit.json")
        write_json(folder / "provenance.json", provenance)
        publish(folder, layout.published(key))
    return layout.published(key) / PAGE
