"""When, where and with which versions something ran: what changes from run to run and stays out of versioned files."""

import datetime
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

LIBRARIES = (
    "pass-pipeline", "torch", "numpy", "pyarrow", "polars", "scikit-learn", "prefect", "dvc", "mlflow", "great_expectations",
)  # fmt: skip


def describe(engine: str, seconds: float | None = None) -> dict[str, Any]:
    """Provenance of what ran just now."""
    return {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "engine": engine,
        "seconds": None if seconds is None else round(seconds, 2),
        "git_commit": git_commit(),
        "host": platform.node(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in LIBRARIES},
    }


def git_commit() -> str | None:
    """The commit of the working tree, marked when it has changes; None outside a repository."""
    try:
        head = _git("rev-parse", "HEAD")
        return f"{head} with changes" if _git("status", "--porcelain", "--untracked-files=no") else head
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*arguments: str) -> str:
    here = Path(__file__).parent
    return subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, check=True).stdout.strip()
