"""The commands that run the pipeline: run, step."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli import options
from flows.cli.audit import show_audit
from flows.cli.console import show
from pass_core.errors import EXIT_FAILED_AUDIT

if TYPE_CHECKING:
    from flows.pipeline import Outcome
    from tasks.config import Config

NEXT = """
Next: open the report in a browser
      make up       runs and models in Prefect and MLflow
      make repro    the versioned results, through DVC
      .venv/bin/pass-pipeline run --set train.epochs=40 --root data/runs/longer"""
Datasets = Annotated[
    list[str] | None,
    typer.Option("--dataset", help="Data set; repeatable. Default: params.yaml's.", autocompletion=options.complete_dataset),
]
Methods = Annotated[
    list[str] | None,
    typer.Option("--method", help="Method; repeatable. Default: params.yaml's.", autocompletion=options.complete_method),
]


@options.taking(options.RUN)
def run(dataset: Datasets = None, method: Methods = None, *, params: Path, quiet: bool, **given: Any) -> None:
    """Run the whole pipeline and print its audits."""
    started = time.monotonic()
    settings = options.overrides(given)
    config, engine = options.check_before_run(params, dataset, method, settings=settings, **given)
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "WARNING")
    from flows.engines import DvcEngine
    from flows.pipeline import pipeline
    from flows.prefect_setup import run_shown
    from tasks.running.progress import configure_logging, reporter

    configure_logging(quiet)
    where = {"engine": "dvc"} if isinstance(engine, DvcEngine) else {"engine": "in-process", "root": str(engine.root)}
    names = {"datasets": dataset, "methods": method, "settings": settings}
    with reporter(quiet) as progress:
        outcomes: list[Outcome] = run_shown(pipeline, progress, **names, **where, params=str(params))
    for outcome in outcomes:
        show_audit(outcome.report_path.parent, str(outcome.key), advise=True)
        if outcome.verdict == "fail":
            # DVC's own folder cannot be searched in: what is there comes from params.yaml.
            _show_causes(outcome, Path("data/runs") / outcome.key.dataset if isinstance(engine, DvcEngine) else engine.root)
        _show_places(outcome, config, params)
    if not quiet:
        show(NEXT)
        show(f"\nDone in {time.monotonic() - started:.0f} s.")
    if any(outcome.verdict != "pass" for outcome in outcomes):
        raise typer.Exit(EXIT_FAILED_AUDIT)


def _show_causes(outcome: "Outcome", root: Path) -> None:
    """Why a release failed, and the command that looks for a setting that does not."""
    from pass_core.storage.audits import read_audit
    from tasks.tuning.candidates import FIRST
    from tasks.tuning.causes import likely_causes

    causes = likely_causes(read_audit(outcome.report_path.parent / "audit.json"))
    if causes and outcome.key.method in FIRST:
        show(f"\nLikely cause: {causes[0].words()}")
        show(f"Or search:    pass-pipeline tune --dataset {outcome.key.dataset} --root {root}")


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


@options.taking(options.ONE_RELEASE, options.RUN)
def step(name: Annotated[options.StepName, typer.Argument(help="The step.", show_default=False)], **given: Any) -> None:
    """Run one step of the pipeline."""
    options.run_steps(name, **given)
