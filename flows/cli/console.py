"""The one console of the command line: lines and JSON on standard output, problems on standard error."""

import json
import sys

import typer
from rich.console import Console

from pass_core.errors import EXIT_ERROR

out = Console(width=None if sys.stdout.isatty() else 140)  # tables keep their columns in a pipe or a log


def show(text: object = "") -> None:
    """Prints one line as it is: nothing is highlighted, and a long path is not broken."""
    out.print(text, soft_wrap=True, highlight=False, markup=False)


def show_json(value: object) -> None:
    """Prints a value for other programs."""
    out.print_json(json.dumps(value))


def stop_at(problems: list[str]) -> None:
    """Prints one line per problem and ends the command, unless there is none."""
    for problem in problems:
        typer.echo(f"error: {problem}", err=True)
    if problems:
        raise typer.Exit(EXIT_ERROR)
