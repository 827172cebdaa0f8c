"""pass-pipeline: the command line. Exit codes are those of pass_core.errors: 0 done, 2 error, 3 failed audit, 4
published without some partitions, 75 try again."""

import signal
import sys
from difflib import get_close_matches
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from flows.cli.audit import audit_app, compare, report
from flows.cli.bench import bench
from flows.cli.catalogue import attacks, datasets_app, extractors, methods
from flows.cli.config import config_app
from flows.cli.doctor import doctor
from flows.cli.init import init
from flows.cli.lake import lake_app
from flows.cli.run import run, step
from flows.cli.site import console_app
from flows.cli.stack import down, up
from flows.cli.tune import tune
from pass_core.errors import EXIT_INTERRUPTED, PassError

# Commands of earlier versions, and words that people try first.
RENAMED = {
    "protect": "lake protect", "backfill": "lake backfill", "serve": "lake serve", "key": "lake key", "pool": "lake donors",
    "plan": "lake plan", "status": "lake status", "versions": "lake versions", "rollback": "lake rollback",
    "withdraw": "lake donors withdraw", "train": "step train", "list": "datasets", "demo": "run", "mlflow": "up", "prefect": "up",
    "ui": "up", "start": "up", "stop": "down",
}  # fmt: skip
ORDER = (
    "init",
    "run",
    "tune",
    "step",
    "audit",
    "compare",
    "report",
    "lake",
    "console",
    "up",
    "down",
    "config",
    "datasets",
    "extractors",
    "methods",
    "attacks",
)


class Commands(TyperGroup):
    """The commands in the order in which people need them; a wrong name is answered by a suggestion."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All names: those of ORDER, then the others."""
        return sorted(super().list_commands(ctx), key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that `args` names."""
        known = {name: name for name in self.commands}
        for match in get_close_matches(args[0], RENAMED | known)[:1] if args and args[0] not in known else []:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {(RENAMED | known)[match]!r}?")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=Commands,
    help="Protect private attributes of whole data sets by real donors' records, and audit the result.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for command in (init, run, tune, step, compare, report, extractors, methods, attacks, bench, up, down, doctor):
    app.command()(command)
for name, group in {
    "audit": audit_app,
    "config": config_app,
    "console": console_app,
    "datasets": datasets_app,
    "lake": lake_app,
}.items():
    app.add_typer(group, name=name)


def main() -> None:
    """The entry point: every error becomes one line and an exit code."""
    # SIGTERM ends by an exception, so that servers and stages are ended, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        code = app(prog_name="pass-pipeline", standalone_mode=False)
    except PassError as error:
        _end(str(error), error.exit_code)
    except typer.TyperException as error:  # a wrong command, option or value
        _end(_usage(error), error.exit_code)
    if code == EXIT_INTERRUPTED:
        typer.echo("stopped; run the same command again to resume", err=True)
    sys.exit(code)


def _usage(error: typer.TyperException) -> str:
    """What is wrong with the arguments, a suggestion, and where the help is."""
    context, wrong = getattr(error, "ctx", None), getattr(error, "option_name", None)
    message = error.format_message()
    if context is None or not message:
        return message
    command = context.command
    matches = list(getattr(error, "possibilities", None) or ())
    if wrong and isinstance(command, TyperGroup):
        matches += [f"{name} {wrong}" for name, inner in command.commands.items() if any(wrong in p.opts for p in inner.params)]
    if matches:
        message = f"{error.message}. Did you mean {' or '.join(map(repr, matches))}?"
    return f"{message.rstrip('.')}{'' if message.endswith('?') else '.'} See {context.command_path} --help"


def _end(message: str, code: int) -> NoReturn:
    if message:  # none where the help was printed instead
        typer.echo(f"error: {message}", err=True)
    sys.exit(code)
