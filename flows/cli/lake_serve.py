"""The command `serve`: protection every night and an audit every week, on this machine."""

import dataclasses
from typing import Annotated

import typer
from rich.console import Console

from flows.cli.lake import DATA, METHOD, Address, Engine, Format, KeyFile, Method, Root, Settings, State
from flows.cli.lake_order import Order, prepare
from flows.cli.options import PARAMS, Params
from pass_core.errors import ConfigError
from tasks.config import load_config, parse_overrides
from tasks.running.progress import configure_logging, silent

out = Console(soft_wrap=True, highlight=False)


def serve(
    source: Annotated[str | None, typer.Argument(help="The lake to protect. Default: params.yaml's schedule.source.")] = None,
    target: Annotated[str | None, typer.Argument(help="Where it is published. Default: schedule.target.")] = None,
    dataset: Annotated[str | None, typer.Option("--dataset", help="Section of params.yaml. Default: schedule.dataset.")] = None,
    protect_cron: Annotated[str | None, typer.Option("--protect", help="When to protect, as cron writes it.")] = None,
    audit_cron: Annotated[str | None, typer.Option("--audit", help="When to audit, as cron writes it.")] = None,
    timezone: Annotated[str | None, typer.Option("--timezone", help="Time zone of both, such as Europe/Berlin.")] = None,
    method: Method = METHOD,
    root: Root = DATA,
    params: Params = PARAMS,
    settings: Settings = None,
    state: State = None,
    key_file: KeyFile = None,
    workers: Annotated[int | None, typer.Option("--workers", help="Processes. Default: one per core.")] = None,
    engine: Engine = "local",
    address: Address = None,
    target_format: Format = None,
    port: Annotated[int, typer.Option("--port", help="Port of Prefect's pages, where PREFECT_API_URL names no server.")] = 4200,
) -> None:
    """Protect a lake every night and audit every week, until Ctrl-C; brings its own Prefect server."""
    configure_logging()
    places = {"source": source, "target": target, "dataset": dataset}
    given = places | {"protect": protect_cron, "audit": audit_cron, "timezone": timezone}
    schedule = load_config(params, parse_overrides(settings or [])).schedule
    schedule = dataclasses.replace(schedule, **{name: value for name, value in given.items() if value is not None})
    if not (schedule.source and schedule.target and schedule.dataset):
        raise ConfigError("serve: expected SOURCE, TARGET and --dataset, or the same in params.yaml's section `schedule`")
    order = Order(
        schedule.source,
        schedule.target,
        schedule.dataset,
        method,
        str(root),
        str(params),
        tuple(settings or ()),
        str(state) if state else None,
        str(key_file) if key_file else None,
        workers=workers,
        engine=engine,
        address=address,
        target_format=target_format,
    )
    plan = prepare(order, silent).plan()  # what is wrong is told now, and not at night
    out.print(f"{len(plan.work)} partition(s) to do, {len(plan.unchanged)} unchanged.")
    out.print(f"protect: {schedule.protect}, audit: {schedule.audit}, time zone {schedule.timezone}. Ctrl-C stops.")
    from flows.serving import run_schedule

    run_schedule(order, schedule, port, out.print)
