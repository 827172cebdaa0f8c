"""Options that several commands share. `--help` and shell completion import this, so heavy libraries stay inside functions."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flows import EngineName

if TYPE_CHECKING:
    from tasks.config import Config

PARAMS, DATASET, METHOD = Path("params.yaml"), "synthetic_motion", "pass_substitution"
StepName = Literal["generate", "ingest", "validate", "extract", "sample_pool", "train", "substitute", "audit", "report"]


def _complete(names: Callable[[Path], Iterable[str]]) -> Callable[[typer.Context, str], list[str]]:
    """Shell completion from names that a parameter file and this installation offer."""

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        return sorted(name for name in names(Path(context.params.get("params") or PARAMS)) if name.startswith(incomplete))

    return complete


def _datasets(params: Path) -> set[str]:
    import yaml

    import tasks.datasets
    from pass_core import discovery

    try:
        sections = yaml.safe_load(params.read_text())["dataset"]
    except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError):
        sections = ()  # no file, or none that can be read: completion stays silent
    return {*discovery.available(tasks.datasets), *map(str, sections)}


def _methods(_params: Path) -> tuple[str, ...]:
    import pass_core.methods
    from pass_core import discovery

    return discovery.available(pass_core.methods)


complete_dataset, complete_method = _complete(_datasets), _complete(_methods)
Dataset = Annotated[str, typer.Option("--dataset", help="Data set: a name from params.yaml.", autocompletion=complete_dataset)]
Method = Annotated[str, typer.Option("--method", help="Method: a name from params.yaml.", autocompletion=complete_method)]
Params = Annotated[Path, typer.Option("--params", help="Parameter file; its folder is the project root.")]
Root = Annotated[Path | None, typer.Option("--root", help="Scratch folder of an in-process run.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="Override a parameter: train.epochs=5.")]
EngineOption = Annotated[
    EngineName | None,
    typer.Option("--engine", help="Run outdated stages (dvc) or all steps below --root. Default: dvc, unless --root or --set."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print results only, no progress.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def engine_name(engine: EngineName | None, root: Path | None, settings: list[str] | None) -> EngineName:
    """The chosen engine, or the one that the other options need."""
    return engine or ("in-process" if root or settings else "dvc")


def read_config(params: Path, settings: list[str] | None) -> "Config":
    """The parameter file with `--set` applied."""
    from tasks.config import load_config, parse_overrides

    return load_config(params, parse_overrides(settings or []))


def run_steps(
    *names: str,
    dataset: str,
    method: str,
    engine: EngineName | None,
    root: Path | None,
    params: Path,
    settings: list[str] | None,
    quiet: bool,
) -> Path:
    """Runs steps one after the other and returns the root of their artefacts."""
    from flows.cli.config import stop_at
    from tasks.preflight import check_run

    name = engine_name(engine, root, settings)
    stop_at(check_run(params, settings or (), datasets=[dataset], methods=[method], engine=name, root=root, steps=names))
    from flows.engines import make_engine
    from tasks.registry import find_step
    from tasks.running.progress import configure_logging, reporter

    configure_logging(quiet)
    config = read_config(params, settings).with_names((dataset,), (method,))
    chosen = make_engine(name, config, root, params.resolve().parent, overridden=bool(settings))
    with reporter(quiet) as progress:
        for step in map(find_step, names):
            chosen.run(step, step.key(dataset, method), progress)
    return chosen.root
