"""Options of the lake's commands that protect, and how these run: checked first, then as a Prefect flow."""

import contextlib
import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from flows.cli.console import stop_at
from flows.cli.options import PARAMS, AsJson, Options, Params, Quiet, overrides

if TYPE_CHECKING:
    from tasks.production.options import ProtectOptions
    from tasks.production.plan import Plan
    from tasks.production.run import Hooks

Source = Annotated[str, typer.Argument(help="Lake to protect: a path or URL (s3://).", show_default=False)]
Target = Annotated[str, typer.Argument(help="Protected lake, read at TARGET/current.", show_default=False)]
Dataset = Annotated[str, typer.Option("--dataset", help="Section of params.yaml.", metavar="NAME", show_default=False)]
Method = Annotated[str, typer.Option("--method", help="Method of the model.", metavar="NAME")]
Models = Annotated[Path, typer.Option("--models", help="Model, pool and audit.", metavar="DIR")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="Override a parameter.", metavar="NAME=VALUE")]
SettingsFile = Annotated[Path | None, typer.Option("--settings", help="YAML file of overrides.", metavar="FILE")]
State = Annotated[Path | None, typer.Option("--state", help="Private folder; default: by TARGET.", metavar="DIR")]
KeyFile = Annotated[Path | None, typer.Option("--key-file", help="Draw key. Default: PASS_DRAW_KEY_FILE.", metavar="FILE")]
KeyBlock = Annotated[str | None, typer.Option("--key-block", help="Prefect Secret block of the draw key.", metavar="NAME")]
Workers = Annotated[int | None, typer.Option("--workers", help="Worker processes. Default: cores.", metavar="N")]
Minutes = Annotated[float, typer.Option("--time-limit", help="Minutes per partition.", metavar="N", show_default=False)]
Executor = Annotated[Literal["local", "ray"], typer.Option("--executor", help="Where workers run: local or ray.", metavar="NAME")]
Address = Annotated[str | None, typer.Option("--address", help="Ray cluster. Default: a new one.", metavar="HOST:PORT")]
Format = Annotated[Literal["parquet", "delta"] | None, typer.Option("--target-format", help="parquet or delta.", metavar="NAME")]
Metrics = Annotated[Path | None, typer.Option("--metrics", help="Folder of OpenMetrics text.", metavar="DIR")]
First = Annotated[str | None, typer.Option("--from", help="First partition value.", metavar="VALUE")]
Last = Annotated[str | None, typer.Option("--to", help="Last partition value.", metavar="VALUE")]
NewColumns = Annotated[bool, typer.Option("--new-columns", help="Accept new columns (never published).")]
DropMissing = Annotated[bool, typer.Option("--drop-missing", help="Drop partitions the source deleted.")]
Rehash = Annotated[bool, typer.Option("--rehash", help="Read all source files to find changes.")]
Redraw = Annotated[str | None, typer.Option("--redraw", help="Reason to exceed draws_at_most.", metavar="TEXT")]
PublishFew = Annotated[str | None, typer.Option("--publish-few", help="Reason to ignore min_change.", metavar="TEXT")]
BreakLock = Annotated[str | None, typer.Option("--break-lock", help="Reason to end another machine's lease.", metavar="TEXT")]
# Fields of ProtectOptions that several commands take.
PLACES: Options = {
    "method": (Method, "pass_substitution"), "models": (Models, Path("data")), "params": (Params, PARAMS),
    "settings_file": (SettingsFile, None), "settings": (Settings, None), "state": (State, None),
    "key_file": (KeyFile, None), "key_block": (KeyBlock, None),
}  # fmt: skip
RUNNING: Options = {
    "workers": (Workers, None), "partition_minutes": (Minutes, 1440.0), "metrics": (Metrics, None),
    "executor": (Executor, "local"), "address": (Address, None), "target_format": (Format, None),
}  # fmt: skip
RANGE: Options = {"first": (First, None), "last": (Last, None)}
PRINTED: Options = {"as_json": (AsJson, False), "quiet": (Quiet, False)}
DECISIONS: Options = {
    "new_columns": (NewColumns, False), "drop_missing": (DropMissing, False), "rehash": (Rehash, False), "redraw": (Redraw, None),
}  # fmt: skip
LOCKING: Options = {"break_lock": (BreakLock, None)}
WAITING: Options = {"publish_few": (PublishFew, None)}
BACKFILL: Options = {name: DECISIONS[name] for name in ("new_columns", "rehash", "redraw")} | WAITING


def protect_options(source: str, target: str, dataset: str, given: dict[str, Any]) -> "ProtectOptions":
    """What a command was given, as the run takes it."""
    from tasks.production.options import ProtectOptions

    return ProtectOptions(source=source, target=target, dataset=dataset, **plain(given))


def plain(given: dict[str, Any]) -> dict[str, Any]:
    """A command's options as plain values, with all overrides in `settings`."""
    settings = tuple(overrides(given))
    return {name: str(value) if isinstance(value, Path) else value for name, value in given.items()} | {"settings": settings}


@contextlib.contextmanager
def hooks_of(options: "ProtectOptions") -> Iterator["Hooks"]:
    """What reads the draw key from its Secret block, if the options name one."""
    from tasks.production.run import Hooks

    if not options.key_block:
        yield Hooks()
        return
    from flows.prefect_setup import prefect_server
    from flows.protect import secret_of

    with prefect_server():
        yield Hooks(secret=partial(secret_of, options.key_block))


def make_plan(options: "ProtectOptions") -> "Plan":
    """What a run would do, also where the draw key is in a Secret block."""
    from tasks.production.run import plan_of

    with hooks_of(options) as hooks:
        return plan_of(options, hooks)


def check(options: "ProtectOptions") -> None:
    """Stops with all problems that can be found before the run; they are noted as the run's."""
    from tasks.preflight import check_protect

    if problems := check_protect(options):
        from tasks.production.observed import report_rejected

        report_rejected(options, problems)
        stop_at(problems)


def run_flow(options: "ProtectOptions", quiet: bool) -> dict[str, int]:
    """Protects as a Prefect flow; counts of partitions and rows."""
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "WARNING")
    from flows.prefect_setup import run_shown
    from flows.protect import protect as flow
    from tasks.running.progress import configure_logging, reporter

    configure_logging(quiet)
    with reporter(quiet) as progress:
        counts: dict[str, int] = run_shown(flow, progress, options=options)
    return counts


def run_and_report(options: "ProtectOptions", as_json: bool, quiet: bool) -> None:
    """Protects, and prints what was done."""
    check(options)
    counts = run_flow(options, quiet)
    waiting = counts.get("waiting", 0)
    where = f"; published in {options.target}" if counts["partitions"] else "" if waiting else ": nothing to do"
    if waiting:
        advice = "they wait for more, or for --publish-few 'reason'"
        where += f"; {waiting} row(s) would change in others, fewer than protect.min_change: {advice}"
    text = f"{counts['partitions']} partition(s), {counts['rows']} rows, {counts['unchanged']} unchanged{where}"
    typer.echo(json.dumps(counts) if as_json else text)
