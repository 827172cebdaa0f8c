"""pass-pipeline: the command line. Exit codes: 0 done, 2 or 75 an error told in one line, 3 an audit's verdict is fail."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import pass_core.methods
import tasks.datasets
import tasks.extractors
from flows.bench_cli import bench
from flows.engines import EngineName, make_engine
from flows.summary import audit_rows
from pass_core import discovery
from pass_core.errors import PassError, TransientError
from tasks.__main__ import EXIT_ERROR, EXIT_TRANSIENT
from tasks.config import load_config, parse_overrides
from tasks.layout import layout_at
from tasks.progress import configure_logging, reporter
from tasks.publishing import publish_report
from tasks.registry import find_step, is_generated
from tasks.step_io import Key
from tasks.storage import read_json
from tasks.tracking import tracking_uri

EXIT_FAILED_AUDIT, EXIT_INTERRUPTED = 3, 130

app = typer.Typer(
    help="Protect private attributes of whole data sets by real donors' records, and audit the result.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
datasets_app = typer.Typer(invoke_without_command=True, help="List data sets, or put raw data under DVC.")
app.add_typer(datasets_app, name="datasets")
app.command()(bench)
out = Console(width=None if sys.stdout.isatty() else 140)  # tables keep their columns in a pipe or a log

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
PARAMS = Path("params.yaml")
NEXT = """
Next: open the report in a browser
      make ui       runs and models in Prefect and MLflow
      make repro    the versioned results, through DVC
      .venv/bin/pass-pipeline run --set train.epochs=40 --root data/runs/longer"""


def _engine_name(engine: EngineName | None, root: Path | None, settings: list[str] | None) -> EngineName:
    return engine or ("in-process" if root or settings else "dvc")


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
            engine=_engine_name(engine, root, settings),
            datasets=dataset,
            methods=method,
            root=str(root) if root else None,
            params=str(params),
            settings=settings,
        )
    for outcome in outcomes:
        _show_audit(outcome.report_path.parent, outcome.key)
        _show_places(params, settings, outcome.mlflow_run, outcome.report_path, outcome.key)
    if not quiet:
        out.print(NEXT, highlight=False)
        out.print(f"\nDone in {time.monotonic() - started:.0f} s.")
    _exit_on_failed([outcome.verdict for outcome in outcomes])


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
    _run_steps([name], dataset, method, _engine_name(engine, root, settings), root, params, settings, quiet)


@app.command()
def audit(
    dataset: Dataset = "synthetic_motion",
    method: Method = "pass_substitution",
    engine: EngineOption = None,
    root: Root = None,
    params: Params = PARAMS,
    settings: Settings = None,
    quiet: Quiet = False,
) -> None:
    """Audit what was released again and write its report; exit code 3 when the verdict is fail."""
    reports_root = _run_steps(
        ["audit", "report"], dataset, method, _engine_name(engine, root, settings), root, params, settings, quiet
    )
    key = Key(dataset, method)
    folder = publish_report(layout_at(reports_root, generated=is_generated(dataset)), key).parent
    _show_audit(folder, key)
    out.print(f"Report: {folder / 'report.html'}", soft_wrap=True)
    _exit_on_failed([read_json(folder / "audit.json")["verdict"]])


@app.command()
def report(
    dataset: Dataset = "synthetic_motion",
    method: Method = "pass_substitution",
    root: Annotated[Path, typer.Option("--root", help="Where the run's artefacts lie.")] = Path("data"),
) -> None:
    """Write the report of an audit with provenance joined in, and say where it is."""
    out.print(publish_report(layout_at(root, generated=is_generated(dataset)), Key(dataset, method)), soft_wrap=True)


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
    config = load_config(params)
    host = "127.0.0.1"
    store = tracking_uri(config.tracking, params.resolve().parent)
    commands = {
        f"Prefect http://{host}:{prefect_port}": ["prefect", "server", "start", "--host", host, "--port", str(prefect_port)],
        f"MLflow  http://{host}:{mlflow_port}": [
            "mlflow", "server", "--host", host, "--port", str(mlflow_port), "--backend-store-uri", store,
        ],
    }  # fmt: skip
    environment = os.environ | {
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_INTERRUPTED))  # so that a plain kill stops the servers too
    running: list[subprocess.Popen[bytes]] = []
    log = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process; a pipe that nobody reads would fill and block)
    try:
        for address, command in commands.items():
            running.append(
                subprocess.Popen(
                    [sys.executable, "-m", *command],
                    env=environment,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    start_new_session=True,  # each server with its children is one group, which ends as one
                )
            )
            out.print(address)
        out.print(f"To send runs there: PREFECT_API_URL=http://{host}:{prefect_port}/api pass-pipeline run\nCtrl-C stops both.")
        while all(process.poll() is None for process in running):
            time.sleep(0.5)
        log.seek(0)
        lines = log.read().decode(errors="replace").strip().splitlines()
        raise PassError(f"a user interface stopped: {lines[-1] if lines else 'no message'}; is its port in use?")
    finally:
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in running:
            process.wait()


@app.command()
def doctor(params: Params = PARAMS, as_json: AsJson = False) -> None:
    """Check the installation: versions, device, torchvision and torchaudio, stores; exit code 2 if something is wrong."""
    from flows.doctor import examine

    findings = examine(params)
    if as_json:
        out.print_json(json.dumps([dataclasses.asdict(finding) for finding in findings]))
    else:
        for finding in findings:
            out.print(f"{'[green]well [/]' if finding.well else '[red]wrong[/]'} {finding.check}: ", end="")
            out.print(finding.found, markup=False, highlight=False, soft_wrap=True)
    if not all(finding.well for finding in findings):
        raise typer.Exit(EXIT_ERROR)


def _run_steps(
    names: list[str],
    dataset: str,
    method: str,
    engine: EngineName,
    root: Path | None,
    params: Path,
    settings: list[str] | None,
    quiet: bool,
) -> Path:
    configure_logging(quiet)
    config = load_config(params, parse_overrides(settings or [])).with_names((dataset,), (method,))
    chosen = make_engine(engine, config, root, params.resolve().parent, overridden=bool(settings))
    with reporter(quiet) as progress:
        for name in names:
            found = find_step(name)
            chosen.run(found, found.key(dataset, method), progress)
    return chosen.root


def _show_audit(folder: Path, key: Key) -> None:
    document = read_json(folder / "audit.json")
    table = Table(
        title=f"{key}: {document['verdict'].upper()}, mNAG {document['mnag']:.1%}",
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    rows = audit_rows(folder / "audit.json")
    for name in rows[0]:
        table.add_column(name, justify="left" if name in ("attribute", "role", "verdict") else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row.values())
    out.print()
    out.print(table)
    for reason in document["reasons"]:
        out.print(f"  {reason}", soft_wrap=True, highlight=False)
    if any(row["nag_exact"] for row in document["attributes"]):
        out.print("exact: NAG of the best possible attacker, rule learnt on train … plug-in on test (biased upwards)")


def _show_places(params: Path, settings: list[str] | None, mlflow_run: str | None, report_path: Path, key: Key) -> None:
    folder = report_path.parent
    root = folder.parents[2]
    config = load_config(params, parse_overrides(settings or []))
    store = tracking_uri(config.tracking, params.resolve().parent)
    protected = layout_at(root, generated=True).artefact("protected", key)
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


def _exit_on_failed(verdicts: list[str]) -> None:
    if "fail" in verdicts:
        raise typer.Exit(EXIT_FAILED_AUDIT)


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


if __name__ == "__main__":
    main()
