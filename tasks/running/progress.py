"""Progress of a step: a bar with ETA on a terminal, a line now and then elsewhere, nothing when quiet."""

import contextlib
import logging
import sys
import time
from collections.abc import Iterator

from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tasks.running.step_io import Reporter

logger = logging.getLogger(__name__)

# One console for bars and log lines: with two they would overwrite each other.
_console = Console(stderr=True)

SECONDS_BETWEEN_LINES = 10.0


def silent(work: str, done: int, total: int, note: str = "") -> None:
    """Shows nothing."""


class LogLines:
    """A log line every few seconds for long work."""

    def __init__(self) -> None:
        self._times: dict[str, tuple[float, float]] = {}  # work -> when it started, when it was last shown

    def __call__(self, work: str, done: int, total: int, note: str = "") -> None:
        now = time.monotonic()
        started, shown = self._times.setdefault(work, (now, now))
        if now - shown >= SECONDS_BETWEEN_LINES:
            self._times[work] = started, now
            eta = f", {(now - started) / done * (total - done):.0f} s left" if 0 < done < total else ""
            logger.info("%s: %d of %d%s%s", work, done, total, eta, f" ({note})" if note else "")


class Bars:
    """Live bars; finished ones disappear."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._bars: dict[str, TaskID] = {}

    def __call__(self, work: str, done: int, total: int, note: str = "") -> None:
        if work not in self._bars:
            self._bars[work] = self._progress.add_task(work, total=total, note=note)
        self._progress.update(self._bars[work], completed=done, total=total, note=note)
        if done >= total:
            self._progress.remove_task(self._bars.pop(work))


@contextlib.contextmanager
def reporter(quiet: bool = False) -> Iterator[Reporter]:
    """The reporter that suits standard error: bars on a terminal, log lines elsewhere."""
    if quiet:
        yield silent
    elif sys.stderr.isatty():
        counts = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        left = TextColumn("ETA"), TimeRemainingColumn(), TextColumn("{task.fields[note]}")
        with Progress(TextColumn("{task.description}"), *counts, *left, console=_console, transient=True) as progress:
            yield Bars(progress)
    else:
        yield LogLines()


def configure_logging(quiet: bool = False) -> None:
    """One line per finished step on standard error; called by command lines only."""
    handler: logging.Handler = logging.StreamHandler()
    if sys.stderr.isatty():
        handler = RichHandler(console=_console, show_time=False, show_level=False, show_path=False, highlighter=None)
    handler.setFormatter(logging.Formatter("%(message)s"))
    for name in ("tasks", "flows"):
        ours = logging.getLogger(name)
        ours.handlers, ours.propagate = [handler], False
        ours.setLevel(logging.WARNING if quiet else logging.INFO)
