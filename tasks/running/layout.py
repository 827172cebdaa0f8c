"""Where everything lies below a root: the only place where paths of the pipeline are spelled in Python."""

import os
from dataclasses import dataclass
from pathlib import Path

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
    """Paths below `root`; `raw_root` is where raw data sets lie when it is not below `root`."""

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
        """When, where and with what a step ran: changes from run to run, never versioned."""
        return self.root / "provenance" / step / f"{key}.json"

    def data_docs(self, step: str, key: RunKey) -> Path:
        """Great Expectations' pages (they hold times): never versioned."""
        return self.root / "docs" / step / str(key)

    def published(self, key: RunKey) -> Path:
        """What people read: report with provenance joined in, audit.json, provenance.json."""
        return self.root / "published" / str(key)

    @property
    def cache(self) -> Path:
        """What steps find again, such as features already computed; may be deleted at any time."""
        return self.root / ".cache"

    @property
    def staging(self) -> Path:
        """Where steps write before anything gets its final name; same file system as the outputs."""
        return self.root / ".staging"


def layout_at(root: Path, *, raw_data_from_environment: bool) -> Layout:
    """The layout below `root`; raw data that are neither generated nor DVC's lie where PASS_RAW_DATA says, when it is set."""
    elsewhere = os.environ.get("PASS_RAW_DATA")
    return Layout(root, Path(elsewhere) if elsewhere and raw_data_from_environment else None)
