"""What needs work, and why: decided from the manifest and the source's listing, without reading data."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.production.interfaces import Failure, SourcePartition
from tasks.production.manifest import Manifest, Pins, Receipt
from tasks.storage.files import write_json

REDRAWING = {"dataset", "model", "pool", "key", "recipe"}  # changes that draw records again
REPAIRS = ("output missing", "output damaged")  # reasons for publishing the same rows again


@dataclass(frozen=True, slots=True)
class Plan:
    """All partitions of a run."""

    work: tuple[SourcePartition, ...]
    unchanged: tuple[str, ...]
    missing: tuple[str, ...]  # published, but no longer in the source

    def reasons(self) -> dict[str, int]:
        return Counter(planned.reason for planned in self.work)


def make_plan(
    partitions: Mapping[str, SourcePartition],
    manifest: Manifest | None,
    pins: Pins,
    holds: Callable[[Manifest, str], bool],
    still_good: Callable[[Receipt], bool],
    *,
    changed: Collection[str],
    damaged: Collection[str],
    erased: Collection[str],
) -> Plan:
    """Compares the source with what is published; `still_good` partitions stay although the pins have changed.

    `changed` are partitions whose source files have other bytes than were read, `damaged` those whose published files have
    other bytes than were published, `erased` those that may still show erased records.
    """
    published = manifest.partitions if manifest else {}
    work, unchanged = [], []
    for name, partition in partitions.items():
        receipt = published.get(name)
        changes = receipt.pins.changes(pins) if receipt else ()
        if manifest is None or receipt is None:
            reason = "new"
        elif changes and not still_good(receipt):
            reason = f"{' and '.join(changes)} changed"
        elif name in erased:
            reason = "records erased"
        elif name in changed:
            reason = "input changed"
        elif not holds(manifest, name):
            reason = REPAIRS[0]
        elif name in damaged:
            reason = REPAIRS[1]
        else:
            unchanged.append(name)
            continue
        draws = receipt.draws + 1 if receipt and REDRAWING & set(changes) else 0
        work.append(dataclasses.replace(partition, reason=reason, redraws=draws))
    return Plan(tuple(work), tuple(unchanged), tuple(name for name in published if name not in partitions))


def audited_rows(rows: Mapping[str, int], wanted: int) -> dict[str, int]:
    """How many records of each partition the gate audits: in proportion, `wanted` together, or all if there are fewer."""
    total = max(1, sum(rows.values()))
    return {name: min(count, -(-wanted * count // total)) for name, count in rows.items()}


def write_plan(
    path: Path, plan: Plan, manifest: Manifest | None, failures: Sequence[Failure], waiting: Collection[str] = ()
) -> None:
    """Writes a backfill's plan with the status of each partition: planned, done, failed or waiting.

    `manifest` is what it published, without those that are `waiting` for more changes.
    """
    messages, entries = {failure.partition: failure.message for failure in failures}, {}
    for planned in plan.work:
        name = planned.name
        done = "waiting" if name in waiting else "done" if manifest and name in manifest.partitions else "planned"
        status = "failed" if name in messages else done
        entries[name] = {"reason": planned.reason, "status": status, "message": messages.get(name, "")}
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_json(path, entries)
