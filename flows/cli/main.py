"""pass-pipeline: the command line. Exit codes: 0 done, 2 or 75 an error told in one line, 3 an audit's verdict is fail."""

import dataclasses
import json
import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

import pass_core.methods
import tasks.datasets
import tasks.extractors
from flows.cli.audit import audit_app, show_audit
from flows.cli.bench import bench
from flows.cli.lake import lake_app
from flows.cli.options import (
    EXIT_FAILED_AUDIT,
    PARAMS,
    AsJson,
    Dataset,
    EngineOption,
    Method,
    Params,
    Quiet,
    Root,
    Settings,
    engine_name,
    out,
    run_steps,
)
from flows.servers import EXIT_INTERRUPTED, HOST, prefect_server, servers
from pass_core import discovery
from pass_core.errors import PassError, TransientError
from tasks.__main__ import EXIT_ERROR, EXIT_TRANSIENT
from tasks.config import load_config, parse_overrides
from tasks.registry import is_generated
from tasks.running.layout import layout_at
from tasks.running.progress import configure_logging, reporter
from tasks.running.step_io import RunKey
from tasks.running.tracking import tracking_uri

app = typer.Typer(
    help="Protect private attributes of whole data sets by real donors' records, and audit the result.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
datasets_app = typer.Typer(invoke_without_command=True, help="List data sets, or put raw data under DVC.")
app.add_typer(datasets_app, name="datasets")
app.add_typer(audit_app)
app.add_typer(lake_app, name="lake")
app.command()(bench)
NEXT = """
Next: open the report in a browser
      make ui       runs and models in Prefect and MLflow
      make repro    the versioned results, through DVC
      .venv/bin/pass-pipeline run --set train.epochs=40 --root data/runs/longer"""


@app.command()
def run(
    dataset: Annotated[
        list[str] | None, typer.Option("--dataset", help="Data set; may be repeated. Default: params.yaml's.")
    ] = None,
    method: Annotated[list[str] | None, typer.Option("--method", help="Method; may be repeated. Default: params.yaml's.")] = None,
    engine: EngineOption = None,
    root: Root = None,
    params: Params = PARAMS,
    settings: Settings = None,
    quiet: Quiet = False,
) -> None:
    """Run the whole pipeline as a Prefect flow and show its audits."""
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "WARNING")
    configure_logging(quiet)
    from flows.pipeline import run_pipeline

    started = time.monotonic()
    with reporter(quiet) as progress:
        outcomes = run_pipeline(
            progress,
            engine=engine_name(engine, root, settings),
            datasets=dataset,
            methods=method,
            root=str(root) if root else None,
            params=str(params),
            settings=settings,
        )
    for outcome in outcomes:
        show_audit(outcome.report_path.parent, str(outcome.key))
        _show_places(params, settings, outcome.mlflow_run, outcome.report_path, outcome.key)
    if not quiet:
        out.print(NEXT, highlight=False)
        out.print(f"\nDone in {time.monotonic() - started:.0f} s.")
    if any(outcome.verdict == "fail" for outcome in outcomes):
        raise typer.Exit(EXIT_FAILED_AUDIT)


@app.command()
def step(
    name: Annotated[
        str,
        typer.Argument(help="generate, ingest, validate, extract, sample_pool, train, substitute, audit or report."),
    ],
    dataset: Dataset = "synthetic_motion",
    method: Method = "pass_substitution",
    engine: EngineOption = None,
    root: Root = None,
    params: Params = PARAMS,
    settings: Settings = None,
    quiet: Quiet = False,
) -> None:
    """Run one step."""
    run_steps([name], dataset, method, engine_name(engine, root, settings), root, params, settings, quiet)


@datasets_app.callback()
def datasets(context: typer.Context, as_json: AsJson = False) -> None:
    """List the data sets that can be named in params.yaml; `add` puts raw data under DVC."""
    if context.invoked_subcommand is not None:
        return
    entries = []
    for name in discovery.available(tasks.datasets):
        dataset = discovery.load(tasks.datasets, name).DATASET
        entries.append(
            {
                "name": name,
                "summary": dataset.summary,
                "attributes": list(dataset.attribute_names) if dataset.attribute_names else None,
                "generated": is_generated(name),
            }
        )
    _list(entries, as_json)


@datasets_app.command("add")
def add_dataset(
    name: Annotated[str, typer.Argument(help="Data set, a section of params.yaml.")],
    source: Annotated[str, typer.Argument(help="Folder with the published files, or a URL (s3://, gs://, azure://, ssh://).")],
    push: Annotated[bool, typer.Option("--push", help="Let `dvc push` copy the raw data to the remote, too.")] = False,
    params: Params = PARAMS,
) -> None:
    """Put raw data under DVC, in data/raw/NAME: versioned, and never pushed unless asked."""
    configure_logging()
    from flows.raw_data import add_raw_data

    pointer = add_raw_data(params.resolve().parent, load_config(params), name, source, push)
    out.print(f"{pointer}: under DVC, {'pushed with the rest' if push else 'never pushed'}.", soft_wrap=True, highlight=False)
    out.print(f"Next: git add {pointer}; name {name} under `datasets` in params.yaml; dvc repro", soft_wrap=True, highlight=False)


@app.command()
def extractors(as_json: AsJson = False) -> None:
    """List the feature extractors that a data set can name."""
    entries = []
    for name in discovery.available(tasks.extractors):
        extractor = discovery.load(tasks.extractors, name).EXTRACTOR
        settings = [field.name for field in dataclasses.fields(extractor.config_type)]
        entries.append({"name": name, "summary": extractor.summary, "payloads": list(extractor.payloads), "settings": settings})
    _list(entries, as_json)


@app.command()
def methods(as_json: AsJson = False) -> None:
    """List the protection methods that can be named in params.yaml."""
    entries = []
    for name in discovery.available(pass_core.methods):
        method = discovery.load(pass_core.methods, name).METHOD
        settings = [field.name for field in dataclasses.fields(method.config_type)]
        entries.append({"name": name, "summary": method.summary, "settings": settings})
    _list(entries, as_json)


@app.command()
def ui(
    params: Params = PARAMS,
    prefect_port: Annotated[int, typer.Option(help="Port of Prefect's UI.")] = 4200,
    mlflow_port: Annotated[int, typer.Option(help="Port of MLflow's UI.")] = 5000,
) -> None:
    """Start the Prefect and MLflow user interfaces on this machine only, until Ctrl-C."""
    store = tracking_uri(load_config(params).tracking, params.resolve().parent)
    with servers() as started:
        started.start(prefect_server(prefect_port))
        started.start(["mlflow", "server", "--host", HOST, "--port", str(mlflow_port), "--backend-store-uri", store])
        out.print(f"Prefect http://{HOST}:{prefect_port}")
        out.print(f"MLflow  http://{HOST}:{mlflow_port}")
        out.print(f"To send runs there: PREFECT_API_URL=http://{HOST}:{prefect_port}/api pass-pipeline run\nCtrl-C stops both.")
        while True:
            started.check()
            time.sleep(0.5)


@app.command()
def doctor(params: Params = PARAMS, as_json: AsJson = False) -> None:
    """Check the installation: versions, device, torchvision and torchaudio, stores; exit code 2 if something is wrong."""
    from flows.cli.doctor import examine

    findings = examine(params)
    if as_json:
        out.print_json(json.dumps([dataclasses.asdict(finding) for finding in findings]))
    else:
        for finding in findings:
            out.print(f"{'[green]well [/]' if finding.well else '[red]wrong[/]'} {finding.check}: ", end="")
            out.print(finding.found, markup=False, highlight=False, soft_wrap=True)
    if not all(finding.well for finding in findings):
        raise typer.Exit(EXIT_ERROR)


def _show_places(params: Path, settings: list[str] | None, mlflow_run: str | None, report_path: Path, key: RunKey) -> None:
    folder = report_path.parent
    root = folder.parents[2]
    config = load_config(params, parse_overrides(settings or []))
    store = tracking_uri(config.tracking, params.resolve().parent)
    protected = layout_at(root, raw_data_from_environment=False).artefact("protected", key)
    places = {
        "report": report_path,
        "audit.json": folder / "audit.json",
        "protected data": protected,
        "MLflow run": f"{mlflow_run} in {store}" if mlflow_run else "off (tracking.enabled)",
    }
    out.print()
    for name, place in places.items():
        out.print(f"{name + ':':16}{place}", soft_wrap=True, highlight=False)


def _list(entries: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        out.print_json(json.dumps(entries))
        return
    for entry in entries:
        out.print(f"[bold]{entry['name']}[/]  {entry['summary']}", soft_wrap=True, highlight=False)


def main() -> None:
    """The command's entry point: a PassError becomes one line and an exit code."""
    try:
        app()
    except PassError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(EXIT_TRANSIENT if isinstance(error, TransientError) else EXIT_ERROR)
    except KeyboardInterrupt:
        print("stopped; run the same command again to go on", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
