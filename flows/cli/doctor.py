"""Checks of the installation, each with what to do about a failure."""

import importlib.metadata
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from flows.engines import DvcEngine
from pass_core.devices import resolve_device
from pass_core.errors import PassError
from tasks.config import load_config
from tasks.payloads.torch_repair import repair
from tasks.running.provenance import LIBRARIES, git_commit


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: what was looked at, whether it is well, what was found."""

    check: str
    well: bool
    found: str


def examine(params: Path) -> list[Finding]:
    """Every check, whatever the others say."""
    project = params.resolve().parent
    checks: dict[str, Callable[[], str]] = {
        "python": lambda: sys.version.split()[0],
        "packages": _packages,
        "torch device": lambda: f"{resolve_device('auto')}, {torch.get_num_threads()} threads, torch {torch.__version__}",
        "torchvision and torchaudio": lambda: ", ".join(f"{name} {state}" for name, state in repair().items()),
        "params.yaml": lambda: f"{len(load_config(params).datasets)} data set(s), {len(load_config(params).methods)} method(s)",
        "data root is writable": lambda: _writable(DvcEngine(project).root),
        "MLflow store is writable": lambda: _mlflow_store(params, project),
        "temporary folder is writable": lambda: _writable(Path(tempfile.gettempdir())),
        "git and DVC": lambda: _versioned(project),
    }
    findings = []
    for name, check in checks.items():
        try:
            findings.append(Finding(name, True, check()))
        except (PassError, OSError, importlib.metadata.PackageNotFoundError) as error:
            findings.append(Finding(name, False, str(error)))
    return findings


def _packages() -> str:
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES)


def _writable(folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder):
        return str(folder)


def _mlflow_store(params: Path, project: Path) -> str:
    if "MLFLOW_TRACKING_URI" in os.environ:
        return "set by MLFLOW_TRACKING_URI (not probed)"
    return _writable(project / load_config(params).tracking.store)


def _versioned(project: Path) -> str:
    if not (project / ".dvc").is_dir():
        raise OSError(f"{project} has no .dvc folder: use a git clone, or --engine in-process")
    return f"commit {(git_commit() or 'none: use a git clone, or --engine in-process')[:12]}"
