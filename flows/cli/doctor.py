"""pass-pipeline doctor: checks of the installation, each with what to do about a failure."""

import importlib.metadata
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from flows.cli.console import out, show, show_json
from flows.cli.options import PARAMS, AsJson, Params, read_config
from pass_core.errors import EXIT_ERROR, PassError
from tasks.running.cores import usable_cores


def doctor(params: Params = PARAMS, as_json: AsJson = False) -> None:
    """Check the installation; end with code 2 if something failed."""
    findings = examine(params)
    if as_json:
        show_json(findings)
    else:
        for finding in findings:
            out.print("[green]ok    [/]" if finding["ok"] else "[red]failed[/]", end=" ")
            show(f"{finding['check']}: {finding['found']}")
    if not all(finding["ok"] for finding in findings):
        raise typer.Exit(EXIT_ERROR)


def examine(params: Path) -> list[dict[str, Any]]:
    """Runs every check, also after one that failed: its name, whether it is ok, what was found."""
    import torch

    from flows.engines import DvcEngine
    from pass_core.devices import resolve_device
    from tasks.extractors.engines.processor import describe as describe_extraction
    from tasks.payloads.torch_repair import repair
    from tasks.running.provenance import LIBRARIES, git_commit

    project = params.resolve().parent
    checks: dict[str, Callable[[], str]] = {
        "python": lambda: sys.version.split()[0],
        "packages": lambda: ", ".join(f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES),
        "torch device": lambda: f"{resolve_device('auto')}, {torch.get_num_threads()} threads, torch {torch.__version__}",
        "threads": _threads,
        "torchvision and torchaudio": lambda: ", ".join(f"{name} {state}" for name, state in repair().items()),
        "extraction": describe_extraction,
        "params.yaml": lambda: _parameters(params),
        "data root is writable": lambda: _writable(DvcEngine(project).root),
        "MLflow store is writable": lambda: _mlflow_store(params, project),
        "temporary folder is writable": lambda: _writable(Path(tempfile.gettempdir())),
        "git and DVC": lambda: _versioned(project, git_commit()),
    }
    findings: list[dict[str, Any]] = []
    for name, check in checks.items():
        try:
            findings.append({"check": name, "ok": True, "found": check()})
        except (PassError, OSError, importlib.metadata.PackageNotFoundError) as error:
            findings.append({"check": name, "ok": False, "found": str(error)})
    return findings


def _threads() -> str:
    waiting = os.environ["OMP_WAIT_POLICY"].lower()
    return f"{usable_cores()} of {os.cpu_count()} cores may be used; threads that wait are {waiting} (OMP_WAIT_POLICY)"


def _parameters(params: Path) -> str:
    config = read_config(params, None)
    return f"{len(config.datasets)} data set(s), {len(config.methods)} method(s)"


def _writable(folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder):
        return str(folder)


def _mlflow_store(params: Path, project: Path) -> str:
    if "MLFLOW_TRACKING_URI" in os.environ:
        return "set by MLFLOW_TRACKING_URI (not probed)"
    return _writable(project / read_config(params, None).tracking.store)


def _versioned(project: Path, commit: str | None) -> str:
    if not (project / ".dvc").is_dir():
        raise OSError(f"{project} has no .dvc folder: use a git clone, or --engine in-process")
    return f"commit {commit[:12]}" if commit else "commit none: use a git clone, or --engine in-process"
