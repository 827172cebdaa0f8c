"""The commands `up` and `down`: the servers of this machine."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import PARAMS, Params
from flows.cli.site import Models
from flows.cli.status import StaleAfter, States, Targets, read_if_there, read_targets
from pass_core.errors import ConfigError

if TYPE_CHECKING:
    from tasks.config import Config

Folder = Annotated[Path, typer.Option("--folder", help="Folder of log, state and console.", metavar="DIR")]
FOLDER = Path("data/stack")


def up(
    targets: Targets = None,
    *,
    state: States = None,
    models: Models = None,
    stale_after: StaleAfter = None,
    params: Params = PARAMS,
    folder: Folder = FOLDER,
    detach: Annotated[bool, typer.Option("--detach", help="Return once all run; `down` ends them.")] = False,
    pool: Annotated[str, typer.Option("--pool", help="Work pool of the worker; made if missing.", metavar="NAME")] = "pass",
    prefect_port: Annotated[int, typer.Option(help="Port of Prefect.", metavar="N")] = 4200,
    mlflow_port: Annotated[int, typer.Option(help="Port of MLflow.", metavar="N")] = 5000,
    console_port: Annotated[int, typer.Option(help="Port of the console.", metavar="N")] = 8000,
    worker_port: Annotated[int, typer.Option(help="Port of the worker's health check.", metavar="N")] = 8080,
) -> None:
    """Start Prefect, a worker, MLflow and the console on this machine."""
    from flows.stack import SITE, Ports, Stack, claimed, wait_until_ready

    config = read_if_there(params)
    build = list[str]()
    if targets or (config and config.schedule.target):
        read_targets(targets, state, stale_after, params)  # reports now what is wrong
        given = {"--state": state, "--models": models, "--stale-after": [stale_after] * bool(stale_after)}
        build = ["console", "build", *(targets or []), "--params", str(params), "--out", str(folder.resolve() / SITE)]
        build += [word for name, values in given.items() for value in values or () for word in (name, str(value))]
    ports = Ports(prefect=prefect_port, mlflow=mlflow_port, console=console_port, worker=worker_port)
    stack = Stack(folder=folder.resolve(), ports=ports, pool=pool, store=_store(config, params), build=build)
    with claimed(stack.folder) as log:
        ports.check()
        (stack.folder / SITE).mkdir(exist_ok=True)
        if not detach:
            stack.run(log, typer.echo)
        sys.stdout.flush()
        if process := os.fork():
            wait_until_ready(stack.folder, process)
            typer.echo("\n".join([*stack.lines(), f"To end them: pass-pipeline down --folder {folder}"]))
            return
        os.setsid()  # Ctrl-C and a closed terminal no longer reach it
        with Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
        stack.run(log, typer.echo)


def _store(config: "Config | None", params: Path) -> str:
    """MLflow's store, whose folder exists."""
    from tasks.running.tracking import tracking_uri
    from tasks.sections.running import TrackingConfig

    store = tracking_uri(config.tracking if config else TrackingConfig(), params.resolve().parent)
    if store.startswith("http"):
        raise ConfigError("MLFLOW_TRACKING_URI: expected a database for the MLflow server, found another server; unset it")
    if store.startswith("sqlite:///"):
        Path(store.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    return store


def down(folder: Folder = FOLDER) -> None:
    """End what `up` started."""
    from flows.stack import end_stack

    typer.echo(f"{folder}: {'all servers have ended' if end_stack(folder.resolve()) else 'nothing was running'}.")
