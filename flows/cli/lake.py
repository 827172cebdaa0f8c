"""The commands for lakes in production: protect, backfill, key new|id, pool withdraw."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from flows.cli.config import stop_at
from flows.cli.lake_order import EngineName, Order, prepare
from flows.cli.options import EXIT_FAILED_AUDIT, PARAMS, AsJson, Params, Quiet
from pass_core.channel.draws import key_id
from pass_core.errors import AuditFailed
from tasks.config import load_config
from tasks.production.draw_key import find_key, new_key
from tasks.production.plan import Plan
from tasks.production.receipts import Receipts
from tasks.production.versions import TargetFormat, default_state, open_target
from tasks.production.withdrawal import withdraw
from tasks.running.layout import layout_at
from tasks.running.progress import configure_logging, reporter, silent

out = Console(soft_wrap=True, highlight=False)
key_app = typer.Typer(no_args_is_help=True, help="Make a draw key, or tell the id of one.")
pool_app = typer.Typer(no_args_is_help=True, help="Change who is a donor.")

Source = Annotated[str, typer.Argument(help="The lake to protect: a path, or s3://, gs://, abfs://.")]
Target = Annotated[str, typer.Argument(help="Where the protected lake is published; readers open TARGET/current.")]
Dataset = Annotated[str, typer.Option("--dataset", help="Section of params.yaml (reader: lake) that names the columns.")]
Method = Annotated[str, typer.Option("--method", help="Method whose trained model protects.")]
Root = Annotated[Path, typer.Option("--root", help="Where model, pool and audit lie.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="Replace a parameter: protect.keep_versions=1.")]
State = Annotated[Path | None, typer.Option("--state", help="Private folder: staging, receipts, ledger. Default: beside TARGET.")]
KeyFile = Annotated[Path | None, typer.Option("--key-file", help="Draw key. Default: PASS_DRAW_KEY or PASS_DRAW_KEY_FILE.")]
NewColumns = Annotated[bool, typer.Option("--new-columns", help="Let in columns that the source had not; they stay inside.")]
Redraw = Annotated[str | None, typer.Option("--redraw", help="Why records may be drawn more often than protect.draws_at_most.")]
Engine = Annotated[EngineName, typer.Option("--engine", help="Processes of this machine, or a Ray cluster.")]
Address = Annotated[str | None, typer.Option("--address", help="Ray cluster's head, host:port. Default: one for this run.")]
Format = Annotated[TargetFormat | None, typer.Option("--target-format", help="parquet or delta. Default: what TARGET is.")]
OnlyPlan = Annotated[bool, typer.Option("--plan", help="Show what would be done and why; do nothing.")]
METHOD, DATA = "pass_substitution", Path("data")


def register(app: typer.Typer) -> None:
    """Adds these commands to the command line."""
    app.command()(protect)
    app.command()(backfill)
    app.add_typer(key_app, name="key")
    app.add_typer(pool_app, name="pool")


def protect(
    source: Source,
    target: Target,
    dataset: Dataset,
    method: Method = METHOD,
    root: Root = DATA,
    params: Params = PARAMS,
    settings: Settings = None,
    state: State = None,
    key_file: KeyFile = None,
    workers: Annotated[int | None, typer.Option("--workers", help="Processes. Default: one per core.")] = None,
    new_columns: NewColumns = False,
    drop_missing: Annotated[bool, typer.Option("--drop-missing", help="Take out partitions that the source lost.")] = False,
    redraw: Redraw = None,
    engine: Engine = "local",
    address: Address = None,
    target_format: Format = None,
    plan: OnlyPlan = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Protect what has changed in a lake, audit it, and publish it as a new version."""
    arguments: dict[str, object] = {"new_columns": new_columns, "drop_missing": drop_missing, "redraw": redraw}
    arguments |= {"workers": workers, "engine": engine, "address": address, "target_format": target_format}
    _run(source, target, dataset, method, root, params, settings, state, key_file, arguments, plan, as_json, quiet)


def backfill(
    source: Source,
    target: Target,
    dataset: Dataset,
    first: Annotated[str | None, typer.Option("--from", help="First partition value, such as 2026-01-01.")] = None,
    last: Annotated[str | None, typer.Option("--to", help="Last partition value.")] = None,
    max_concurrent: Annotated[int | None, typer.Option("--max-concurrent", help="Partitions at once.")] = None,
    method: Method = METHOD,
    root: Root = DATA,
    params: Params = PARAMS,
    settings: Settings = None,
    state: State = None,
    key_file: KeyFile = None,
    redraw: Redraw = None,
    engine: Engine = "local",
    address: Address = None,
    target_format: Format = None,
    plan: OnlyPlan = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Protect a range of partitions: the plan is written first, what succeeds is published, run again for what failed."""
    arguments: dict[str, object] = {"first": first, "last": last, "redraw": redraw, "backfill": True}
    arguments |= {"workers": max_concurrent, "engine": engine, "address": address, "target_format": target_format}
    _run(source, target, dataset, method, root, params, settings, state, key_file, arguments, plan, as_json, quiet)


def _run(
    source: str,
    target: str,
    dataset: str,
    method: str,
    root: Path,
    params: Path,
    settings: list[str] | None,
    state: Path | None,
    key_file: Path | None,
    more: dict[str, object],
    only_plan: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    from tasks.preflight import check_protect

    names = {"source": source, "target": target, "dataset": dataset, "method": method}
    stop_at(check_protect(params, settings or [], **names, models=root, key_file=key_file))
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "WARNING")
    configure_logging(quiet)
    places = {"state": str(state) if state else None, "key_file": str(key_file) if key_file else None}
    order = Order(source, target, dataset, method, str(root), str(params), tuple(settings or ()), **places, **more)  # type: ignore[arg-type]
    if only_plan:
        _show_plan(prepare(order, silent).plan(), as_json)
        return
    from flows.protect import run_protect

    with reporter(quiet) as progress:
        try:
            counts = run_protect(progress, order)
        except AuditFailed as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(EXIT_FAILED_AUDIT) from None
    if as_json:
        out.print_json(json.dumps(counts))
    else:
        where = f"; published in {target}" if counts["partitions"] else ": nothing to do"
        out.print(f"{counts['partitions']} partition(s), {counts['rows']} rows, {counts['unchanged']} unchanged{where}")


def _show_plan(plan: Plan, as_json: bool) -> None:
    if as_json:
        work = {planned.partition.name: planned.reason for planned in plan.work}
        out.print_json(json.dumps({"work": work, "unchanged": len(plan.unchanged), "missing": list(plan.missing)}))
        return
    for planned in plan.work:
        out.print(f"{planned.partition.name}: {planned.reason}")
    for name in plan.missing:
        out.print(f"{name}: missing from the source")
    out.print(f"{len(plan.work)} to do, {len(plan.unchanged)} unchanged, {len(plan.missing)} missing")


@key_app.command("new")
def make_key(path: Annotated[Path, typer.Argument(help="File to write; only its owner can read it.")]) -> None:
    """Write a fresh 256-bit draw key and tell its id."""
    out.print(
        f"{path}: key {new_key(path)}. Keep a copy where you keep secrets: without it nobody can protect these records alike."
    )


@key_app.command("id")
def tell_key(key_file: KeyFile = None) -> None:
    """Tell the id of the draw key in use."""
    out.print(key_id(find_key(key_file, os.environ)))


@pool_app.command("withdraw")
def withdraw_donors(
    ids: Annotated[list[str], typer.Argument(help="Ids of the donors' records (or of persons, with --person).")],
    dataset: Dataset,
    to: Annotated[Path, typer.Option("--to", help="Root of the new pool and models.")],
    root: Root = DATA,
    params: Params = PARAMS,
    person: Annotated[bool, typer.Option("--person", help="The ids are persons': all their records leave.")] = False,
    targets: Annotated[list[str] | None, typer.Option("--target", help="Published lake to look through; repeatable.")] = None,
    state: State = None,
) -> None:
    """Make a pool and models without donors who leave, and list published partitions that show them."""
    before, after = layout_at(root, raw_data_from_environment=False), layout_at(to, raw_data_from_environment=False)
    section = load_config(params).with_names((dataset,), ()).dataset[dataset]
    gone = withdraw(before, after, dataset, section, ids, "person" if person else "record")
    out.print(f"{len(gone.donors)} donor(s) left; the new pool and {len(gone.models)} model(s) are below {to}.")
    out.print(
        "Next: audit them (pass-pipeline audit --root), then protect with this --root: only partitions below are drawn again."
    )
    for target in targets or []:
        place = state or default_state(target)
        manifest = open_target(target, place).current()
        for name in Receipts(place / "receipts").showing(manifest, gone.pool, gone.donors) if manifest else []:
            out.print(f"{target}: {name}")
