"""The paths below a root: the only place where Python spells them."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tasks.running.step_io import RunKey

# Artefacts that steps read and write; a test keeps dvc.yaml equal to them.
ARTEFACTS = {
    "raw": "raw/{dataset}",
    "records": "records/{dataset}",
    "validation": "validation/{dataset}",
    "features": "features/{dataset}",
    "pool": "pools/{dataset}",
    "model": "models/{dataset}/{method}",
    "trained_on": "trained_on/{dataset}/{method}.parquet",  # secret: the ids of the records that the model learnt from
    "curves": "curves/{dataset}/{method}.csv",
    "protected": "protected/{dataset}/{method}",
    "linkage": "linkage/{dataset}/{method}.parquet",  # secret: which released row belongs to which record
    "audit": "audits/{dataset}/{method}/audit.json",
    "metrics": "audits/{dataset}/{method}/metrics.json",
    "nag_table": "audits/{dataset}/{method}/nag.csv",
    "bundle_table": "audits/{dataset}/{method}/bundles.csv",
    "report": "audits/{dataset}/{method}/report",
}


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths below `root`; `raw_root` holds the raw data sets when they are not below `root`."""

    root: Path
    raw_root: Path | None = None

    def artefact(self, name: str, key: RunKey) -> Path:
        """The path of an artefact of `ARTEFACTS`."""
        if name == "raw" and self.raw_root is not None:
            return self.raw_root / key.dataset
        return self.root / ARTEFACTS[name].format(dataset=key.dataset, method=key.method)

    def step_report(self, step: str, key: RunKey) -> Path:
        """What a step counted and measured: versioned, the same for the same inputs."""
        return self.root / "reports" / step / f"{key}.json"

    def provenance(self, step: str, key: RunKey) -> Path:
        """When, where and with which versions a step ran: changes from run to run, never versioned."""
        return self.root / "provenance" / step / f"{key}.json"

    def data_docs(self, step: str, key: RunKey) -> Path:
        """Great Expectations' pages (they hold times): never versioned."""
        return self.root / "docs" / step / str(key)

    def published(self, key: RunKey) -> Path:
        """The published files: report with provenance, audit.json, provenance.json."""
        return self.root / "published" / str(key)

    @property
    def cache(self) -> Path:
        """What steps reuse, such as features already computed; may be deleted at any time."""
        return self.root / ".cache"

    @property
    def staging(self) -> Path:
        """Where steps write before anything gets its final name; same file system as the outputs."""
        return self.root / ".staging"


def layout_at(root: Path, *, raw_data_from_environment: bool) -> Layout:
    """The layout below `root`; PASS_RAW_DATA, when set, is the folder of raw data that are neither generated nor DVC's."""
    elsewhere = os.environ.get("PASS_RAW_DATA")
    return Layout(root, Path(elsewhere) if elsewhere and raw_data_from_environment else None)


def owned_by_dvc(root: Path, project: Path) -> str | None:
    """An output of the project's dvc.yaml inside or around `root`, which only DVC's stages may write; None without one."""
    path = project / "dvc.yaml"
    if not path.exists():
        return None
    stages: dict[str, Any] = yaml.safe_load(path.read_text())["stages"]
    for stage in stages.values():
        for out in [*stage.get("outs", ()), *stage.get("metrics", ()), *stage.get("plots", ())]:
            text = out if isinstance(out, str) else next(iter(out))
            fixed = (project / text.split("${")[0]).resolve()  # the part before the first placeholder
            if fixed.is_relative_to(root) or root.is_relative_to(fixed):
                return text
    return None
