"""Backfill: a range of partitions, planned on paper first; run again, it does only what is not done."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tasks.production.interfaces import Failure
from tasks.production.manifest import Manifest
from tasks.production.plan import Plan
from tasks.storage.files import write_json

Status = Literal["planned", "done", "failed"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A partition of a backfill."""

    reason: str
    status: Status
    message: str = ""


def between(first: str | None, last: str | None) -> Callable[[str], bool]:
    """Whether the first value of a partition's name lies in a range, ends included: dates and numbers of one width."""

    def inside(name: str) -> bool:
        value = name.split("/", maxsplit=1)[0].rpartition("=")[2]
        return (first is None or value >= first) and (last is None or value <= last)

    return inside


def write_plan(path: Path, plan: Plan, manifest: Manifest | None = None, failures: Mapping[str, Failure] | None = None) -> None:
    """Writes the plan with where each partition stands; before the work, and after it."""
    entries = {}
    for planned in plan.work:
        name, failed = planned.partition.name, (failures or {}).get(planned.partition.name)
        receipt = manifest.partitions.get(name) if manifest else None
        done = receipt is not None and receipt.input_digest == planned.partition.digest and not failed
        status: Status = "failed" if failed else "done" if done else "planned"
        entries[name] = Entry(planned.reason, status, failed.message if failed else "")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_json(path, {name: dataclasses.asdict(entry) for name, entry in entries.items()})
