"""What the commands share: their options, the console, and running steps."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from flows.engines import EngineName, make_engine
from tasks.config import load_config, parse_overrides
from tasks.registry import find_step
from tasks.running.progress import configure_logging, reporter

out = Console(width=None if sys.stdout.isatty() else 140)  # tables keep their columns in a pipe or a log

EXIT_FAILED_AUDIT = 3
PARAMS = Path("params.yaml")
Dataset = Annotated[str, typer.Option("--dataset", help="Data set, a name from params.yaml.")]
Method = Annotated[str, typer.Option("--method", help="Method, a name from params.yaml.")]
Params = Annotated[Path, typer.Option("--params", help="Parameter file; its folder is the project's.")]
Root = Annotated[Path | None, typer.Option("--root", help="Scratch folder of an in-process run.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="Replace a parameter: train.epochs=5 (in-process).")]
EngineOption = Annotated[
    EngineName | None,
    typer.Option(
        "--engine",
        help="dvc (what has changed) or in-process (all, under --root). Default: dvc, unless --root or --set.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress, results only.")]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]


def engine_name(engine: EngineName | None, root: Path | None, settings: list[str] | None) -> EngineName:
    """The engine asked for, or the one that the other options need."""
    return engine or ("in-process" if root or settings else "dvc")


def run_steps(
    names: list[str],
    dataset: str,
    method: str,
    engine: EngineName,
    root: Path | None,
    params: Path,
    settings: list[str] | None,
    quiet: bool,
) -> Path:
    """Runs steps one after the other and returns the root of their artefacts."""
    configure_logging(quiet)
    config = load_config(params, parse_overrides(settings or [])).with_names((dataset,), (method,))
    chosen = make_engine(engine, config, root, params.resolve().parent, overridden=bool(settings))
    with reporter(quiet) as progress:
        for name in names:
            found = find_step(name)
            chosen.run(found, found.key(dataset, method), progress)
    return chosen.root
