"""Partitions that could not be protected: recorded in the private state folder until a run succeeds on them."""

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pass_core.errors import PassError, TransientError
from tasks.storage.files import read_json, write_json

if TYPE_CHECKING:  # `lake status` reads the record without torch
    from tasks.production.interfaces import Failure
    from tasks.production.plan import Plan

FILE = "quarantine.json"
NAMED_AT_MOST = 5  # in a message


def note_quarantine(state: Path, plan: "Plan", failures: "Sequence[Failure]" = (), version: int = 0) -> None:
    """Records partitions that failed, with the day and the live version of their first failure; forgets those that are well."""
    before = read_quarantine(state)
    handled = {planned.name for planned in plan.work} | set(plan.unchanged) | set(plan.missing)
    now = {name: entry for name, entry in before.items() if name not in handled}
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    for failure in failures:
        first = before.get(failure.partition, {"since": today, "version": str(version)})
        now[failure.partition] = {"message": failure.message, "since": first["since"], "version": first["version"]}
    if now or before:
        write_json(state / FILE, now)


def read_quarantine(state: Path) -> Mapping[str, Mapping[str, str]]:
    """Partition -> message, day and live version of its first failure."""
    path = state / FILE
    return dict(read_json(path)) if path.exists() else {}


def raise_failures(failures: "Sequence[Failure]", consequence: str, kind: type[PassError]) -> None:
    """Reports partitions that failed, if any: as a temporary failure if all are, else as an error of this kind."""
    if failures:
        named = "; ".join(f"{failure.partition}: {failure.message}" for failure in failures[:NAMED_AT_MOST])
        more = f"; and {len(failures) - NAMED_AT_MOST} more (`lake status`)" if len(failures) > NAMED_AT_MOST else ""
        raised = TransientError if all(failure.transient for failure in failures) else kind
        raise raised(f"{len(failures)} partition(s) failed and are quarantined, {consequence}: {named}{more}")
