"""The commands `lake ...`: lakes in production. `--help` imports this, so heavy libraries stay inside functions."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli.erase import erase
from flows.cli.lake_run import (
    DECISIONS,
    LOCKING,
    PLACES,
    PRINTED,
    RANGE,
    RUNNING,
    WAITING,
    Dataset,
    KeyFile,
    Models,
    Source,
    State,
    Target,
    make_plan,
    protect_options,
    run_and_report,
)  # fmt: skip
from flows.cli.ledger import ledger_app
from flows.cli.models import Labelled, models_app, retrain
from flows.cli.options import PARAMS, AsJson, Params, overrides, read_config, taking
from flows.cli.status import status, version_text
from pass_core.errors import ConfigError

lake_app = typer.Typer(no_args_is_help=True, help="Protect whole lakes: plan, publish, schedule, inspect, roll back.")
key_app = typer.Typer(no_args_is_help=True, help="Make a draw key, or print its id.")
donors_app = typer.Typer(no_args_is_help=True, help="Remove donors from the pool.")
lake_app.add_typer(key_app, name="key")
lake_app.add_typer(donors_app, name="donors")
lake_app.add_typer(ledger_app, name="ledger")
lake_app.add_typer(models_app, name="models")


@lake_app.command()
@taking(RANGE, PLACES, RUNNING, DECISIONS)
def plan(source: Source, target: Target, dataset: Dataset, as_json: AsJson = False, **given: Any) -> None:
    """Print which partitions would be protected, and why."""
    found = make_plan(protect_options(source, target, dataset, given))
    if as_json:
        work = {planned.name: planned.reason for planned in found.work}
        typer.echo(json.dumps({"work": work, "unchanged": len(found.unchanged), "missing": list(found.missing)}))
        return
    for planned in found.work:
        typer.echo(f"{planned.name}: {planned.reason}")
    for name in found.missing:
        typer.echo(f"{name}: missing from the source")
    typer.echo(f"{len(found.work)} to do, {len(found.unchanged)} unchanged, {len(found.missing)} missing")


@lake_app.command()
@taking(PLACES, RUNNING, DECISIONS, WAITING, LOCKING, PRINTED)
def protect(source: Source, target: Target, dataset: Dataset, *, as_json: bool, quiet: bool, **given: Any) -> None:
    """Protect and audit what has changed, and publish a new version."""
    run_and_report(protect_options(source, target, dataset, given), as_json, quiet)


@lake_app.command()
@taking(
    RANGE, PLACES, RUNNING, {name: DECISIONS[name] for name in ("new_columns", "rehash", "redraw")}, WAITING, LOCKING, PRINTED
)
def backfill(source: Source, target: Target, dataset: Dataset, *, as_json: bool, quiet: bool, **given: Any) -> None:
    """Protect a range of partitions, with a plan on paper."""
    run_and_report(protect_options(source, target, dataset, given | {"backfill": True}), as_json, quiet)


@lake_app.command()
@taking(PLACES, RUNNING)
def serve(
    source: Annotated[str | None, typer.Argument(help="Lake to protect. Default: schedule.source.")] = None,
    target: Annotated[str | None, typer.Argument(help="Protected lake. Default: schedule.target.")] = None,
    dataset: Annotated[str | None, typer.Option("--dataset", help="Default: schedule.dataset.", metavar="NAME")] = None,
    *,
    protect_cron: Annotated[str | None, typer.Option("--protect", help="Cron expression.", metavar="CRON")] = None,
    audit_cron: Annotated[str | None, typer.Option("--audit", help="Cron expression.", metavar="CRON")] = None,
    retrain_cron: Annotated[
        str | None, typer.Option("--retrain", help="Cron expression. Default: never.", metavar="CRON")
    ] = None,
    labelled: Labelled = None,
    timezone: Annotated[str | None, typer.Option("--timezone", help="Such as Europe/Berlin.", metavar="ZONE")] = None,
    port: Annotated[int, typer.Option("--port", help="Port of Prefect's UI.", metavar="N")] = 4200,
    **given: Any,
) -> None:
    """Protect a lake every night and audit every week, until Ctrl-C."""
    from tasks.running.progress import configure_logging

    configure_logging()
    override = {"source": source, "target": target, "dataset": dataset}
    override |= {"protect": protect_cron, "audit": audit_cron, "timezone": timezone}
    given |= {"settings": overrides(given), "settings_file": None}
    schedule = read_config(given["params"], given["settings"]).schedule
    schedule = dataclasses.replace(schedule, **{name: value for name, value in override.items() if value is not None})
    if not (schedule.source and schedule.target and schedule.dataset):
        raise ConfigError("serve: expected SOURCE, TARGET and --dataset, or the same in params.yaml's section `schedule`")
    options = protect_options(schedule.source, schedule.target, schedule.dataset, given)
    found = make_plan(options)  # reports what is wrong now, and not at night
    typer.echo(f"{len(found.work)} partition(s) to do, {len(found.unchanged)} unchanged.")
    times = f"protect: {schedule.protect}, audit: {schedule.audit}, retrain: {retrain_cron or 'never'}"
    typer.echo(f"{times}, time zone {schedule.timezone}. Ctrl-C stops.")
    from flows.schedule import Retraining, run_schedule

    run_schedule(options, schedule, port, typer.echo, Retraining(retrain_cron, labelled) if retrain_cron else None)


@lake_app.command()
def versions(target: Target, state: State = None, as_json: AsJson = False) -> None:
    """List the versions that a rollback can restore, the newest first."""
    from tasks.production.history import list_versions, open_target

    found = list_versions(open_target(target, state))
    typer.echo(json.dumps(found) if as_json else "\n".join(map(version_text, found)))


@lake_app.command()
def verify(
    target: Target,
    *,
    repair: Annotated[bool, typer.Option("--repair", help="Restore copies; redo the rest at the next run.")] = False,
    state: State = None,
    as_json: AsJson = False,
) -> None:
    """Compare every file of the live version with its recorded digest."""
    from pass_core.errors import ChecksumMismatch
    from tasks.production.history import open_target
    from tasks.production.published import verify as verified

    manifest, damage = verified(open_target(target, state), repair=repair)
    of, left = len(manifest.partitions), [one for one in damage if not one.restored]
    partitions = len([one for one in left if one.number])
    if as_json:
        found = [dataclasses.asdict(one) for one in damage]
        typer.echo(json.dumps({"version": manifest.version, "partitions": of, "damaged": found}))
    else:
        for one in damage:
            done = "; restored" if one.restored else ""
            typer.echo(f"{one.name(of)}: {one.differing} file(s) differ, {one.missing} missing{done}")
        typer.echo(f"{target}: version {manifest.version}, {of} partition(s), {partitions} damaged")
    if left:
        where = f"{partitions} of {of} partition(s)" if partitions else left[0].name(of)
        advice = "run `lake protect`, which protects exactly them again" if repair else "run it again with --repair"
        raise ChecksumMismatch(f"{target}: expected the bytes that were published, found others or none in {where}; {advice}")


@lake_app.command()
def rollback(
    target: Target,
    to: Annotated[int | None, typer.Option("--to", help="Version. Default: the one before.", metavar="VERSION")] = None,
    state: State = None,
) -> None:
    """Publish an earlier version again, as a new version."""
    from tasks.production.history import list_versions, open_target, roll_back

    opened = open_target(target, state)
    made = roll_back(opened, to)
    typer.echo(f"{target}: version {made.version} is live and repeats version {made.restores}.")
    if len({tuple(one["pools"]) for one in list_versions(opened)[:2]}) > 1:  # of the new live version and the one before
        typer.echo("It was made with another pool: if donors were withdrawn since, run `lake protect` to remove them again.")


@lake_app.command()
def adopt(
    target: Target,
    reason: Annotated[str, typer.Option("--reason", help="Why the old folder is given up.", metavar="TEXT", show_default=False)],
    state: State = None,
) -> None:
    """Bind a target to a new state folder when its own is lost."""
    from tasks.production.history import adopt as bind_to_new
    from tasks.production.history import open_target

    opened = open_target(target, state)
    made = bind_to_new(opened, reason)
    typer.echo(f"{target}: version {made.version} is live, repeats version {made.restores}, and is bound to {opened.state}.")
    typer.echo("Other state folders can no longer publish there. Draws that only the old one has counted are not counted here.")
    typer.echo("Records that were erased with the old one come back, unless you copy its folder `erasures` or erase them again.")


lake_app.command()(status)
lake_app.command()(erase)
lake_app.command()(retrain)


@lake_app.command()
def locate(
    source: Source,
    numbers: Annotated[list[str], typer.Argument(help="Numbers of files, from messages.", show_default=False)],
    dataset: Dataset,
    *,
    params: Params = PARAMS,
    key_file: KeyFile = None,
) -> None:
    """Print the paths of files that messages call by number."""
    from tasks.production.draw_key import find_key
    from tasks.production.source import find_files
    from tasks.sections.lake import LakeConfig

    section = read_config(params, None).with_names((dataset,), ()).dataset[dataset]
    if not isinstance(section, LakeConfig):
        raise ConfigError(f"dataset.{dataset}: expected a section with reader: lake; name the section of the lake")
    for path in find_files(section, source, find_key(key_file, os.environ), numbers):
        typer.echo(path)


@key_app.command("new")
def make_key(path: Annotated[Path, typer.Argument(help="File to write; only its owner can read it.")]) -> None:
    """Write a new 256-bit draw key and print its id."""
    from tasks.production.draw_key import new_key

    typer.echo(f"{path}: key {new_key(path)}. Keep a copy with your secrets: without it the same donors cannot be drawn again.")


@key_app.command("id")
def print_key_id(key_file: KeyFile = None) -> None:
    """Print the draw key's id."""
    from pass_core.channel.draws import key_id
    from tasks.production.draw_key import find_key

    typer.echo(key_id(find_key(key_file, os.environ)))


@donors_app.command("withdraw")
def withdraw_donors(
    ids: Annotated[list[str], typer.Argument(help="Ids of donors' records (or persons).", show_default=False)],
    dataset: Dataset,
    to: Annotated[Path, typer.Option("--to", help="Folder of the new pool and models.", metavar="DIR", show_default=False)],
    *,
    models: Models = Path("data"),
    params: Params = PARAMS,
    person: Annotated[bool, typer.Option("--person", help="Read IDS as persons: withdraw all their records.")] = False,
    targets: Annotated[list[str] | None, typer.Option("--target", help="Protected lake to search; repeatable.")] = None,
    state: State = None,
) -> None:
    """Remove donors and list the partitions that show them."""
    from tasks.production.history import open_target
    from tasks.production.manifest import Receipts
    from tasks.production.withdrawal import withdraw
    from tasks.production.withdrawn import NotedWithdrawal, note_withdrawal
    from tasks.running.layout import Layout
    from tasks.running.step_io import RunKey
    from tasks.storage.files import digest

    section = read_config(params, None).with_names((dataset,), ()).dataset[dataset]
    gone = withdraw(Layout(models), Layout(to), dataset, section, ids, by="person" if person else "record")
    typer.echo(f"{len(gone.donors)} donor(s) withdrawn; the new pool and {len(gone.models)} model(s) are in {to}.")
    typer.echo(f"Next: audit them, then run `lake protect --models {to}`: it draws only the partitions below again.")
    noted = NotedWithdrawal(
        pool=gone.pool,
        after=digest(Layout(to).artefact("pool", RunKey(dataset))),
        donors=gone.donors,
        models=str(to.resolve()),
    )
    for target in targets or []:
        opened = open_target(target, state)
        note_withdrawal(opened.state, noted)
        manifest = opened.current()
        for name in Receipts(opened.state / "receipts").showing(manifest, gone.pool, gone.donors) if manifest else []:
            typer.echo(f"{target}: {name}")
