"""The commands about audits: audit, report, compare. Exit code 3: a check failed that `--fail-on` names, by default any."""

import dataclasses
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from flows.cli.options import (
    EXIT_FAILED_AUDIT,
    PARAMS,
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
from flows.cli.summary import audit_rows
from flows.engines import EngineName
from pass_core.auditing.thresholds import Thresholds
from pass_core.errors import ConfigError, DataError
from tasks.audits.pair import audit_pair
from tasks.audits.unlabelled import CHECKS, unlabelled_document
from tasks.config import Config, load_config, parse_overrides
from tasks.lakes.pair import PairColumns
from tasks.registry import is_generated
from tasks.reports.publish import publish_report, write_audit
from tasks.running.layout import layout_at
from tasks.running.numerics import fixed_numerics
from tasks.running.progress import configure_logging, reporter
from tasks.running.step_io import RunKey
from tasks.sections.dataset import Roles
from tasks.storage.files import read_json
from tasks.storage.parquet import PAYLOAD

DATASET, METHOD = "synthetic_motion", "pass_substitution"
NEVER = "never"

audit_app = typer.Typer()

Names = list[str] | None
PAIR = {"rich_help_panel": "Somebody else's release"}
Out = Annotated[Path | None, typer.Option("--out", help="Folder for audit.json and report.html. Default: NAME-audit.")]


@audit_app.command()
def audit(
    dataset: Annotated[str | None, typer.Option("--dataset", help=f"Data set of this pipeline. Default: {DATASET}.")] = None,
    method: Annotated[str | None, typer.Option("--method", help=f"Its method. Default: {METHOD}.")] = None,
    engine: EngineOption = None,
    root: Root = None,
    params: Params = PARAMS,
    settings: Settings = None,
    fail_on: Annotated[
        str | None, typer.Option("--fail-on", help="Exit code 3 for these checks only: NAME,NAME or never. Default: any.")
    ] = None,
    out_folder: Out = None,
    quiet: Quiet = False,
    original: Annotated[Path | None, typer.Option(help="Table of originals: Parquet, CSV or Delta.", **PAIR)] = None,
    protected: Annotated[
        list[Path] | None, typer.Option(help="Table of what was released for them; several are several draws.", **PAIR)
    ] = None,
    private: Annotated[Names, typer.Option(help="Column(s) of the originals to be hidden; a,b or repeated.", **PAIR)] = None,
    useful: Annotated[Names, typer.Option(help="Column(s) to be kept.", **PAIR)] = None,
    general: Annotated[Names, typer.Option(help="Column(s) to be looked at, not judged.", **PAIR)] = None,
    payload: Annotated[
        Names, typer.Option(help="List column, or number columns such as f_*, of both tables. Default: payload.", **PAIR)
    ] = None,
    shape: Annotated[str | None, typer.Option(help="Shape of a payload, such as 2,128. Default: its length.", **PAIR)] = None,
    key: Annotated[str | None, typer.Option(help="Column to join both tables by. Default: row by row.", **PAIR)] = None,
    person: Annotated[str | None, typer.Option(help="Column of whom a record is about.", **PAIR)] = None,
    block: Annotated[str | None, typer.Option(help="Column of records that depend on each other.", **PAIR)] = None,
    split: Annotated[str | None, typer.Option(help="Column that holds train or test. Default: split here.", **PAIR)] = None,
    unlabelled: Annotated[
        Path | None,
        typer.Option(help="Table or features without labels: judged by the labelled audit of --dataset, --method, and by drift."),
    ] = None,
) -> None:
    """Audit what this pipeline released, somebody else's pair (--original, --protected) or data without labels (--unlabelled)."""
    judged, started = judged_checks(fail_on), time.monotonic()
    of_pair = {
        "--original": original, "--protected": protected, "--private": private, "--useful": useful, "--general": general,
        "--payload": payload, "--shape": shape, "--key": key, "--person": person, "--block": block, "--split": split,
    }  # fmt: skip
    of_pipeline = {"--dataset": dataset, "--method": method, "--root": root, "--engine": engine}
    configure_logging(quiet)
    if unlabelled is not None:
        _refuse(of_pair | {"--engine": engine}, "--unlabelled")
        of_run = RunKey(dataset or DATASET, method or METHOD)
        document, name = _unlabelled(unlabelled, of_run, root, params, settings), unlabelled.stem
    elif original is not None or protected:
        _refuse(of_pipeline, "--original and --protected")
        if original is None or not protected or not private or not useful:
            raise ConfigError("audit: a pair needs --original, --protected, --private and --useful")
        columns = PairColumns(
            roles=Roles(private=_names(private), useful=_names(useful), general=_names(general)),
            payload=_names(payload) or (PAYLOAD,),
            shape=_shape(shape),
            key=key,
            person=person,
            block=block,
            split=split,
        )
        document, name = _pair(original, protected, columns, params, settings, quiet), protected[0].stem
    else:
        _refuse(of_pair | {"--out": out_folder}, "what this pipeline released")
        _audit_release(RunKey(dataset or DATASET, method or METHOD), engine, root, params, settings, judged, quiet)
        return
    report_path = write_audit(out_folder or Path(f"{name}-audit"), document, time.monotonic() - started)
    _finish(report_path, f"{document['dataset']}/{document['method']}", judged)


@audit_app.command()
def report(
    dataset: Dataset = DATASET,
    method: Method = METHOD,
    root: Annotated[Path, typer.Option("--root", help="Where the run's artefacts lie.")] = Path("data"),
) -> None:
    """Write the report of an audit with provenance joined in, and say where it is."""
    out.print(
        publish_report(layout_at(root, raw_data_from_environment=not is_generated(dataset)), RunKey(dataset, method)),
        soft_wrap=True,
    )


@audit_app.command()
def compare(
    audits: Annotated[list[Path], typer.Argument(help="audit.json files, or folders that hold one.")],
    page: Annotated[Path, typer.Option("--out", help="The page to write.")] = Path("compare.html"),
) -> None:
    """Put several audits side by side in one page."""
    from tasks.reports.compare import write_comparison

    found = [path / "audit.json" if path.is_dir() else path for path in audits]
    missing = [str(path) for path in found if not path.is_file()]
    if missing:
        raise DataError(f"compare: expected audit.json, or a folder that holds one; not found: {', '.join(missing)}")
    write_comparison(found, page)
    out.print(page, soft_wrap=True)


def judged_checks(fail_on: str | None) -> frozenset[str] | None:
    """The checks that a verdict is to go by; None: all."""
    if fail_on is None:
        return None
    allowed = [field.name for field in dataclasses.fields(Thresholds) if field.name != "significance"] + list(CHECKS)
    names = [name.strip() for name in fail_on.split(",") if name.strip()]
    unknown = [name for name in names if name not in allowed]
    if names == [NEVER]:
        return frozenset()
    if unknown or not names:
        raise ConfigError(
            f"--fail-on: unknown check {', '.join(map(repr, unknown)) or 'name'}: expected never, or some of {', '.join(allowed)}"
        )
    return frozenset(names)


def show_audit(folder: Path, title: str) -> None:
    """Verdict, a row per attribute, and why it failed."""
    document = read_json(folder / "audit.json")
    mnag = document["mnag"]
    table = Table(
        title=f"{title}: {document['verdict'].upper()}, mNAG {mnag['value']:.1%} ({mnag['low']:.1%} to {mnag['high']:.1%})",
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    rows = audit_rows(folder / "audit.json")
    for name in rows[0] if rows else ():
        table.add_column(name, justify="left" if name in ("attribute", "role", "verdict") else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row.values())
    out.print()
    if document["basis"] == "unlabelled":
        out.print("Private attributes were not attacked on these records, which carry no labels. The labelled audit relied on:")
    out.print(table)
    for reason in document["reasons"]:
        out.print(f"  {reason}", soft_wrap=True, highlight=False)
    if any(row["exact"] for row in document["attributes"]):
        out.print("exact: NAG of the best possible attacker, rule learnt on train … plug-in on test (biased upwards)")


def _audit_release(
    key: RunKey,
    engine: EngineName | None,
    root: Path | None,
    params: Path,
    settings: list[str] | None,
    judged: frozenset[str] | None,
    quiet: bool,
) -> None:
    chosen, steps = engine_name(engine, root, settings), ["audit", "report"]
    found = run_steps(steps, key.dataset, str(key.method), chosen, root, params, settings, quiet)
    _finish(publish_report(layout_at(found, raw_data_from_environment=not is_generated(key.dataset)), key), str(key), judged)


def _pair(
    original: Path, protected: list[Path], columns: PairColumns, params: Path, settings: list[str] | None, quiet: bool
) -> dict[str, Any]:
    config = _config(params, settings)
    with reporter(quiet) as progress, fixed_numerics(config.compute.threads):
        return audit_pair(original, protected, columns, config.audit, config.seed, progress)


def _unlabelled(path: Path, key: RunKey, root: Path | None, params: Path, settings: list[str] | None) -> dict[str, Any]:
    config = _config(params, settings).with_names((key.dataset,), (str(key.method),))
    layout = layout_at(root or params.resolve().parent / "data", raw_data_from_environment=not is_generated(key.dataset))
    with fixed_numerics(config.compute.threads):
        return unlabelled_document(path, key, config, layout)


def _config(params: Path, settings: list[str] | None) -> Config:
    return load_config(params, parse_overrides(settings or []))


def _finish(report_path: Path, title: str, judged: frozenset[str] | None) -> None:
    """Shows the audit beside a report, and ends with the exit code that its checks ask for."""
    show_audit(report_path.parent, title)
    out.print(f"Report: {report_path}", soft_wrap=True)
    failed = {check["name"] for check in read_json(report_path.parent / "audit.json")["checks"] if not check["passed"]}
    if failed if judged is None else failed & judged:
        raise typer.Exit(EXIT_FAILED_AUDIT)


def _refuse(options: dict[str, Any], mode: str) -> None:
    given = [name for name, value in options.items() if value]
    if given:
        raise ConfigError(f"audit of {mode}: takes no {', '.join(given)}; see pass-pipeline audit --help")


def _names(given: list[str] | None) -> tuple[str, ...]:
    return tuple(name.strip() for text in given or () for name in text.split(",") if name.strip())


def _shape(given: str | None) -> tuple[int, ...]:
    parts = given.split(",") if given else []
    if not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise ConfigError(f"--shape: expected whole numbers such as 2,128, found {given!r}")
    return tuple(map(int, parts))
