"""What needs work, and why: decided from the manifest and the source's listing, without reading data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pass_core.errors import DataError
from tasks.production.interfaces import Failure, SourcePartition
from tasks.production.manifest import Manifest, Pins, Receipt
from tasks.storage.files import write_json

REDRAWING = {"dataset", "model", "pool", "key", "recipe"}  # changes that draw records again


@dataclass(frozen=True, slots=True)
class Planned:
    """A partition to protect."""

    partition: SourcePartition
    reason: str
    redraws: int  # draws of its records after this run, according to the manifest


@dataclass(frozen=True, slots=True)
class Plan:
    """All partitions of a run."""

    work: tuple[Planned, ...]
    unchanged: tuple[str, ...]
    missing: tuple[str, ...]  # published, but no longer in the source

    def reasons(self) -> dict[str, int]:
        """Reason -> number of partitions."""
        found: dict[str, int] = {}
        for planned in self.work:
            found[planned.reason] = found.get(planned.reason, 0) + 1
        return found


def make_plan(
    partitions: Mapping[str, SourcePartition],
    manifest: Manifest | None,
    pins: Pins,
    holds: Callable[[str], bool],
    still_good: Callable[[Receipt], bool],
) -> Plan:
    """Compares the source with what is published.

    Args:
        holds: whether a published partition's files exist.
        still_good: whether a partition made with other pins may stay: donors were withdrawn, and it shows none of them.
    """
    published = manifest.partitions if manifest else {}
    work, unchanged = [], []
    for name, partition in partitions.items():
        receipt = published.get(name)
        reason = _reason(partition, receipt, pins, holds, still_good)
        if reason is None:
            unchanged.append(name)
        else:
            again = receipt is not None and bool(REDRAWING & set(receipt.pins.changes(pins)))
            work.append(Planned(partition, reason, (receipt.draws if receipt else 1) + again))
    missing = tuple(name for name in published if name not in partitions)
    return Plan(tuple(work), tuple(unchanged), missing)


def _reason(
    partition: SourcePartition,
    receipt: Receipt | None,
    pins: Pins,
    holds: Callable[[str], bool],
    still_good: Callable[[Receipt], bool],
) -> str | None:
    if receipt is None:
        return "new"
    changes = receipt.pins.changes(pins)
    if changes and not still_good(receipt):
        return f"{' and '.join(changes)} changed"
    if receipt.input_digest != partition.digest:
        return "input changed"
    return None if holds(partition.name) else "output missing"


def refuse_missing(plan: Plan, allowed: bool) -> None:
    """Rejects a source that lost partitions: an accident, unless the user decides otherwise.

    Raises:
        DataError: published partitions are no longer in the source.
    """
    if plan.missing and not allowed:
        raise DataError(
            f"{len(plan.missing)} published partition(s), such as {plan.missing[0]}, are missing from the source: restore them, "
            f"or give --drop-missing to remove them from the target"
        )


def audited_rows(rows: Mapping[str, int], wanted: int) -> dict[str, int]:
    """How many records of each partition the gate audits: in proportion, `wanted` together, or all if there are fewer."""
    total = max(1, sum(rows.values()))
    return {name: min(count, -(-wanted * count // total)) for name, count in rows.items()}


def write_plan(path: Path, plan: Plan, manifest: Manifest | None, failures: Sequence[Failure]) -> None:
    """Writes a backfill's plan with the status of each partition: planned, done or failed."""
    messages, entries = {failure.partition: failure.message for failure in failures}, {}
    for planned in plan.work:
        name = planned.partition.name
        receipt = manifest.partitions.get(name) if manifest else None
        done = receipt is not None and receipt.input_digest == planned.partition.digest
        status = "failed" if name in messages else "done" if done else "planned"
        entries[name] = {"reason": planned.reason, "status": status, "message": messages.get(name, "")}
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_json(path, entries)
