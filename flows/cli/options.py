"""Options that several commands share. `--help` and shell completion import this, so heavy libraries stay inside functions."""

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from flows import EngineName
from flows.cli.console import stop_at

if TYPE_CHECKING:
    from flows.engines import Engine
    from tasks.config import Config

PARAMS, DATASET, METHOD = Path("params.yaml"), "synthetic_motion", "pass_substitution"
StepName = Literal["generate", "ingest", "validate", "extract", "sample_pool", "train", "substitute", "audit", "report"]


def complete_dataset(context: typer.Context, incomplete: str) -> list[str]:
    """Names of data sets for the shell: those of this installation and the sections of params.yaml."""
    import yaml

    import tasks.datasets
    from pass_core import discovery

    try:
        sections = yaml.safe_load(Path(context.params.get("params") or PARAMS).read_text())["dataset"]
    except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError):
        sections = ()  # no file, or none that can be read: completion stays silent
    return sorted(name for name in {*discovery.available(tasks.datasets), *map(str, sections)} if name.startswith(incomplete))


def complete_method(incomplete: str) -> list[str]:
    """Names of methods for the shell."""
    import pass_core.methods
    from pass_core import discovery

    return [name for name in discovery.available(pass_core.methods) if name.startswith(incomplete)]


Dataset = Annotated[str, typer.Option("--dataset", help="Data set: a name from params.yaml.", autocompletion=complete_dataset)]
Method = Annotated[str, typer.Option("--method", help="Method: a name from params.yaml.", autocompletion=complete_method)]
Params = Annotated[Path, typer.Option("--params", help="Parameter file; its folder is the project root.")]
Root = Annotated[Path | None, typer.Option("--root", help="Scratch folder of an in-process run.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="Override a parameter: train.epochs=5.")]
SettingsFile = Annotated[Path | None, typer.Option("--settings", help="YAML file of overrides; --set takes precedence.")]
EngineOption = Annotated[
    EngineName | None,
    typer.Option("--engine", help="Run outdated stages (dvc) or all steps below --root. Default: dvc, unless --root or --set."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print results only, no progress.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


Options = dict[str, tuple[Any, Any]]  # name -> option, default
RUN: Options = {"engine": (EngineOption, None), "root": (Root, None), "params": (Params, PARAMS)}
RUN |= {"settings_file": (SettingsFile, None), "settings": (Settings, None), "quiet": (Quiet, False)}
ONE_RELEASE: Options = {"dataset": (Dataset, DATASET), "method": (Method, METHOD)}


def taking(*groups: Options) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command the options of these groups, as keywords that it names or takes as `**given`."""

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        options = {name: option for group in groups for name, option in group.items()}
        own = [one for name, one in inspect.signature(command).parameters.items() if name not in {*options, "given"}]
        shared = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=option)
            for name, (option, default) in options.items()
        ]
        vars(command)["__signature__"] = inspect.Signature([*own, *shared])
        return command

    return decorated


def read_config(params: Path, settings: list[str] | None) -> "Config":
    """The parameter file with `--set` applied."""
    from tasks.config import load_config, parse_overrides

    return load_config(params, parse_overrides(settings or []))


def check_before_run(
    params: Path,
    datasets: list[str] | None,
    methods: list[str] | None,
    *,
    engine: EngineName | None,
    root: Path | None,
    settings: list[str],
    steps: Sequence[str] = get_args(StepName),
) -> "tuple[Config, Engine]":
    """The parameters and the engine of a run, once nothing is wrong that can be found before Prefect is imported.

    Raises:
        Exit: there are problems; each is printed as one line.
    """
    from tasks.preflight import check_run

    name = engine or ("in-process" if root or settings else "dvc")
    stop_at(check_run(params, settings, datasets=datasets or (), methods=methods or (), engine=name, root=root, steps=steps))
    from flows.engines import make_engine

    config = read_config(params, settings)
    config = config.with_names(tuple(datasets or config.datasets), tuple(methods or config.methods))
    return config, make_engine(name, config, root, params.resolve().parent, overridden=bool(settings))


def overrides(given: dict[str, Any]) -> list[str]:
    """Those of `--settings` and then those of `--set`, taken out of a command's options."""
    from tasks.settings_file import with_file

    return with_file(given.pop("settings_file"), given.pop("settings"))


def run_steps(*names: str, dataset: str, method: str, params: Path, quiet: bool, **given: Any) -> Path:
    """Runs steps one after the other and returns the root of their artefacts."""
    settings = overrides(given)
    _, engine = check_before_run(params, [dataset], [method], steps=names, settings=settings, **given)
    from tasks.registry import find_step
    from tasks.running.progress import configure_logging, reporter

    configure_logging(quiet)
    with reporter(quiet) as progress:
        for step in map(find_step, names):
            engine.run(step, step.key(dataset, method), progress)
    return engine.root
