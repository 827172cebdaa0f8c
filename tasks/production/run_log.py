"""The log of a target's runs, in its private state folder: when each started and how it ended, also those that published nothing.

Two lines per run, so that a run that was killed shows. Writing it never stops a run.
"""

import contextlib
import datetime
import json
import logging
import os
import platform
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tasks.production.troubles import Trouble
from tasks.production.writer_lock import read_lease

FILE = "runs.jsonl"
RunOutcome = Literal["published", "unchanged", "waiting", "failed"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run of a target."""

    run: str
    started: str  # UTC
    writer: str  # host:process
    source: str
    command: str  # repeats it
    ended: str | None = None
    outcome: RunOutcome | None = None  # None while it runs, or when it was killed; a failed backfill may have published, too
    trouble: Trouble | None = None
    version: int | None = None  # that it published
    partitions: int = 0  # that it protected
    rows: int = 0
    published_rows: int = 0  # of the whole version
    seconds: float = 0.0
    rows_per_s: float = 0.0
    bytes: int = 0  # of the files of the partitions that it protected
    draws: int = 0  # that the ledger did not hold before
    retries: int = 0  # of partitions
    refused: Mapping[str, int] = field(default_factory=dict)  # partitions that failed, by the kind of error
    audit: Mapping[str, Any] = field(default_factory=dict)  # the gate's result, also of a run that it stopped

    def is_running(self, state: Path) -> bool:
        """Whether its process is alive, here or on another machine that holds the lease."""
        host, _, process = self.writer.rpartition(":")
        if host == platform.node():
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(process), 0)
                return True
            return False
        return read_lease(state) == self.writer


class RunLog:
    """Notes one run; nothing is written before the target has a state folder."""

    def __init__(self, state: Path | None, source: str, command: str) -> None:
        self._state, self.run = state, uuid.uuid4().hex
        self._pending: list[dict[str, Any]] = []
        self._note({"started": now(), "writer": f"{platform.node()}:{os.getpid()}", "source": source, "command": command})

    def end(self, **found: Any) -> dict[str, Any]:
        """Notes how the run ended; the entry."""
        entry = {"ended": now(), **found}
        self._note(entry)
        logger.info("run: %s", json.dumps({name: value for name, value in entry.items() if name not in ("audit", "trouble")}))
        return entry

    def _note(self, entry: dict[str, Any]) -> None:
        self._pending.append({"run": self.run, **entry})
        if self._state is None or not self._state.is_dir():
            return
        try:
            with (self._state / FILE).open("a") as file:
                # Lines of their own, also after one that a crash cut off.
                file.write("".join(f"\n{json.dumps(one)}\n" for one in self._pending))
                file.flush()
                os.fsync(file.fileno())
            self._pending.clear()
        except OSError as error:
            logger.warning("%s: the run could not be noted (%s)", FILE, type(error).__name__)


def read_runs(state: Path) -> list[RunRecord]:
    """All runs that were noted, the oldest first; damaged lines are skipped."""
    entries: dict[str, dict[str, Any]] = {}
    path = state / FILE
    for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            entry = json.loads(line)
            entries.setdefault(entry["run"], {}).update(entry)
    found = []
    for entry in entries.values():
        with contextlib.suppress(TypeError):
            trouble = Trouble(**entry["trouble"]) if entry.get("trouble") else None
            found.append(RunRecord(**entry | {"trouble": trouble}))
    return found


def now() -> str:
    """The time as it is noted."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
