"""The seams of lake protection: Source, Engine, Gate and Target, and the small values that pass between them.

Nothing here holds a value of a record: partitions are named by allowed columns only, records by number.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from pass_core.channel.pool import Forbidden
from pass_core.data import Attribute, FloatArray, IntArray
from pass_core.devices import Device
from tasks.lakes.records import LakeRecords
from tasks.payloads.payload import Payload
from tasks.payloads.quarantine import Quarantine
from tasks.production.manifest import Manifest, Pins, Receipt
from tasks.sections.lake import LakeConfig


@dataclass(frozen=True, slots=True)
class SourcePartition:
    """What is protected and published as one: all files of the source with the same allowed partition values."""

    name: str  # `day=2026-11-01`; `.` where no partition column may leave
    digest: str  # of the files' names, sizes and times: changes whenever the input may have changed
    files: tuple[str, ...]


class Source(Protocol):
    """A lake to protect."""

    schema: Mapping[str, str]  # column -> type, as found
    payload: Payload

    def partitions(self) -> dict[str, SourcePartition]:
        """All partitions by name, cheaply: no data are read."""

    def count_rows(self, partition: SourcePartition) -> int:
        """The number of records, from footers where there are any."""

    def batches(self, partition: SourcePartition, quarantine: Quarantine) -> Iterator[LakeRecords]:
        """The records of a partition, a batch at a time.

        Raises:
            DataError: a file is damaged, or has other columns than the pinned schema.
        """


@dataclass(frozen=True, slots=True)
class PinnedColumns:
    """The columns that every file of the source must have, and those it may have beside."""

    schema: Mapping[str, str]  # column -> type
    added: Mapping[str, str] = field(default_factory=dict)
    anything_new: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """All that a worker needs to know; the same for every partition of a run."""

    pins: Pins
    dataset: str
    method: str
    lake: LakeConfig  # its `source` is where the lake lies
    extractor: Mapping[str, Any]
    release: tuple[str, ...]
    forbid: Forbidden
    device: Device
    model: Path
    pool: Path
    staging: Path  # private, on the target's file system
    columns: PinnedColumns
    plain_lists: bool  # vectors leave as lists of any length
    key: bytes = field(repr=False)
    ledger_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Work:
    """A partition to protect, and how many of its records are put aside for the audit gate."""

    partition: SourcePartition
    sampled: int


@dataclass(frozen=True, slots=True)
class Failure:
    """A partition that could not be protected, and why; trying again may help when it is transient."""

    partition: str
    message: str
    transient: bool
    full: bool = False  # the disk is full


class Engine(Protocol):
    """Runs workers. Whatever the number and place of workers, a partition's staged bytes are the same.

    A worker is `tasks.production.worker.Worker(job)`, one per process; `worker.protect(work)` leaves the partition staged, whole
    or not at all, and gives its receipt.
    """

    def protect(self, job: Job, work: Sequence[Work]) -> Iterator[Receipt | Failure]:
        """Protects partitions and yields each as it is done, in any order; a failed one does not stop the others."""

    def close(self) -> None:
        """Ends the workers."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Records that are about to be published, chosen by key, as the audit gate sees them."""

    features: FloatArray
    donors: IntArray
    persons: IntArray  # numbers, equal for records of one person
    units: IntArray  # what `pool.forbid` goes by: the number of the donors a record may not meet, -1 for none
    labels: Mapping[str, IntArray]  # attribute -> class index; empty without labels
    attributes: tuple[Attribute, ...]  # with the classes that the pool knows
    of: int  # records of which these are the sample


@dataclass(frozen=True, slots=True)
class GateResult:
    """What the audit gate says; `details` are plain figures with their intervals."""

    verdict: Literal["pass", "fail"]
    basis: Literal["labelled", "unlabelled"]
    records: int
    of: int
    reasons: tuple[str, ...]
    details: Mapping[str, Any] = field(default_factory=dict)


class Gate(Protocol):
    """The audit before publishing: without its pass nothing is published."""

    def judge(self, sample: Sample, job: Job) -> GateResult:
        """Looks at what is about to be published."""


class Held(Protocol):
    """The right to write, while it lasts."""

    token: int  # fencing: larger than any writer's before

    def check(self) -> None:
        """Raises a StorageError when the right was lost to another writer."""


class Target(Protocol):
    """Where a protected lake is published."""

    carries: bool  # a version holds unchanged partitions, too; False: they stay where an earlier version put them
    plain_lists: bool  # the format knows lists of any length only

    def current(self) -> Manifest | None:
        """The manifest that readers see; None before the first version."""

    def lock(self) -> AbstractContextManager[Held]:
        """Makes this the only writer; a second one is refused with a StorageError that names the owner."""

    def free_bytes(self) -> int | None:
        """Room for what is published; None where nobody can tell."""

    def holds(self, manifest: Manifest, partition: str) -> bool:
        """Whether the files of a published partition are there."""

    def place(self, version: int, token: int) -> str:
        """The folder below the target that a new version's files will lie in."""

    def publish(self, manifest: Manifest, staged: Mapping[str, Path], held: Held) -> None:
        """Publishes a version: its files first, what readers go by last; all of it or nothing.

        Args:
            manifest: every partition of the version with its files.
            staged: partition -> folder with the files that are new.
        """

    def retire(self, keep: int) -> list[int]:
        """Deletes all but the last `keep` versions, with the files that only they used; the numbers of those deleted."""
