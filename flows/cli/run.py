"""The commands that run the pipeline: run, step, ui."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows import EngineName
from flows.cli.audit import show_audit
from flows.cli.config import stop_at
from flows.cli.console import show
from flows.cli.options import (
    DATASET,
    METHOD,
    PARAMS,
    Dataset,
    EngineOption,
    Method,
    Params,
    Quiet,
    Root,
    Settings,
    StepName,
    complete_dataset,
    complete_method,
    engine_name,
    read_config,
    run_steps,
)
from pass_core.errors import EXIT_FAILED_AUDIT

if TYPE_CHECKING:
    from flows.pipeline import Outcome
    from tasks.config import Config

NEXT = """
Next: open the report in a browser
      make ui       runs and models in Prefect and MLflow
      make repro    the versioned results, through DVC
      .venv/bin/pass-pipeline run --set train.epochs=40 --root data/runs/longer"""


def run(
    *,
    dataset: Annotated[
        list[str] | None,
        typer.Option("--dataset", help="Data set; repeatable. Default: params.yaml's.", autocompletion=complete_dataset),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option("--method", help="Method; repeatable. Default: params.yaml's.", autocompletion=complete_method),
    ] = None,
    engine: EngineOption = None,
    root: Root = None,
    params: Params = PARAMS,
    settings: Settings = None,
    quiet: Quiet = False,
) -> None:
    """Run the whole pipeline and print its audits."""
    started, chosen = time.monotonic(), engine_name(engine, root, settings)
    config = check_before_run(dataset, method, chosen, root=root, params=params, settings=settings)
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "WARNING")
    from flows.pipeline import run_pipeline
    from tasks.running.progress import configure_logging, reporter

    configure_logging(quiet)
    with reporter(quiet) as progress:
        outcomes = run_pipeline(
            progress,
            engine=chosen,
            datasets=dataset,
            methods=method,
            root=str(root) if root else None,
            params=str(params),
            settings=settings,
        )
    for outcome in outcomes:
        show_audit(outcome.report_path.parent, str(outcome.key), advise=True)
        _show_places(outcome, config, params)
    if not quiet:
        show(NEXT)
        show(f"\nDone in {time.monotonic() - started:.0f} s.")
    if any(outcome.verdict == "fail" for outcome in outcomes):
        raise typer.Exit(EXIT_FAILED_AUDIT)


def check_before_run(
    datasets: list[str] | None,
    methods: list[str] | None,
    engine: EngineName,
    *,
    root: Path | None,
    params: Path,
    settings: list[str] | None,
) -> "Config":
    """Reports all problems that can be found before Prefect is imported and its server started; the parameters of the run.

    Raises:
        Exit: a parameter, a name, a file or the root cannot be used; each problem is printed as one line.
    """
    from tasks.preflight import check_run

    stop_at(check_run(params, settings or (), datasets=datasets or (), methods=methods or (), engine=engine, root=root))
    from flows.engines import make_engine

    config = read_config(params, settings)
    config = config.with_names(tuple(datasets or config.datasets), tuple(methods or config.methods))
    make_engine(engine, config, root, params.resolve().parent, overridden=bool(settings))
    return config


def _show_places(outcome: "Outcome", config: "Config", params: Path) -> None:
    """Where the results are."""
    from tasks.running.layout import layout_at
    from tasks.running.tracking import tracking_uri

    folder, mlflow_run = outcome.report_path.parent, outcome.mlflow_run
    store = tracking_uri(config.tracking, params.resolve().parent)
    places = {
        "report": outcome.report_path,
        "audit.json": folder / "audit.json",
        "protected data": layout_at(folder.parents[2], raw_data_from_environment=False).artefact("protected", outcome.key),
        "MLflow run": f"{mlflow_run} in {store}" if mlflow_run else "off (tracking.enabled)",
    }
    show()
    for name, place in places.items():
        show(f"{name + ':':16}{place}")


def step(
    name: Annotated[StepName, typer.Argument(help="The step.", show_default=False)],
    *,
    dataset: Dataset = DATASET,
    method: Method = METHOD,
    engine: EngineOption = None,
    root: Root = None,
    params: Params = PARAMS,
    settings: Settings = None,
    quiet: Quiet = False,
) -> None:
    """Run one step of the pipeline."""
    run_steps(name, dataset=dataset, method=method, engine=engine, root=root, params=params, settings=settings, quiet=quiet)


def ui(
    params: Params = PARAMS,
    prefect_port: Annotated[int, typer.Option(help="Port of Prefect's UI.")] = 4200,
    mlflow_port: Annotated[int, typer.Option(help="Port of MLflow's UI.")] = 5000,
) -> None:
    """Start the pages of Prefect and MLflow on this machine."""
    from flows.servers import HOST, prefect_server, servers
    from tasks.running.tracking import tracking_uri

    store = tracking_uri(read_config(params, None).tracking, params.resolve().parent)
    with servers() as started:
        started.start(prefect_server(prefect_port))
        started.start(["mlflow", "server", "--host", HOST, "--port", str(mlflow_port), "--backend-store-uri", store])
        show(f"Prefect http://{HOST}:{prefect_port}\nMLflow  http://{HOST}:{mlflow_port}")
        show(f"To send runs there: PREFECT_API_URL=http://{HOST}:{prefect_port}/api pass-pipeline run\nCtrl-C stops both.")
        while True:
            started.check()
            time.sleep(0.5)
