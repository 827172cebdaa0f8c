"""The one console of the command line: lines, lists and JSON on standard output."""

import json
import sys

from rich.console import Console

out = Console(width=None if sys.stdout.isatty() else 140)  # tables keep their columns in a pipe or a log


def show(text: object = "") -> None:
    """Prints one line as it is: nothing is highlighted, and a long path is not broken."""
    out.print(text, soft_wrap=True, highlight=False, markup=False)


def show_json(value: object) -> None:
    """Prints a value for other programs."""
    out.print_json(json.dumps(value))
