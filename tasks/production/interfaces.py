"""The seams of lake protection, Executor and Gate, and the values that pass between the parts of a run."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from pass_core.auditing.findings import Verdict
from pass_core.channel.pool import Forbidden
from pass_core.data import Attribute, FloatArray, IntArray
from pass_core.devices import Device
from tasks.production.erased import LeftOut
from tasks.production.manifest import Pins, Receipt
from tasks.running.step_io import RunKey
from tasks.sections.lake import LakeConfig

Basis = Literal["labelled", "unlabelled", "champion"]  # the last: labelled, and too few to judge by themselves


@dataclass(frozen=True, slots=True)
class SourcePartition:
    """All files of the source with the same published partition values; protected and published as a whole."""

    name: str  # `day=2026-11-01`; `.` where no partition column is published
    digest: str  # of the names and states of the table's files: changes whenever one of them may have been written
    files: tuple[str, ...]
    reason: str = ""  # why it needs work
    redraws: int = 0  # draws of its records after this run, according to the manifest; 0 where none is drawn again
    sampled: int = 0  # records to keep for the audit gate


@dataclass(frozen=True, slots=True)
class PinnedColumns:
    """The columns that every file of the source must have, and those it may have in addition."""

    schema: Mapping[str, str]  # column -> type
    added: Mapping[str, str] = field(default_factory=dict)
    anything_new: bool = False
    used: frozenset[str] = frozenset()  # those whose types matter, and that no file may lack
    ignore_unused: bool = False  # new ones that nothing uses are no difference

    def accepted(self, found: Mapping[str, str]) -> dict[str, str]:
        """The columns beyond the first ones that are known from now on, also those that only some files have."""
        new = {name: kind for name, kind in found.items() if name not in self.schema} if self.anything_new else {}
        return {**self.added, **new}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """All that a worker needs; the same for every partition of a run."""

    pins: Pins
    run: RunKey
    lake: LakeConfig  # its `source` is the lake to protect
    extractor: Mapping[str, Any]
    release: tuple[str, ...]  # a donor's attributes that are published
    forbid: Forbidden
    device: Device
    model: Path
    pool: Path
    staging: Path  # private, on the target's file system
    columns: PinnedColumns
    plain_lists: bool  # vectors are published as lists of any length
    minutes: float  # after which a worker gives up a partition, and ends
    key: bytes = field(repr=False)
    ledger_key: bytes = field(repr=False, default=b"")  # known once the lock is held
    left_out: LeftOut = field(repr=False, default=LeftOut())  # erased records; known once the lock is held


@dataclass(frozen=True, slots=True)
class Failure:
    """A partition that could not be protected, and why; a retry may help when it is transient."""

    partition: str
    message: str
    transient: bool
    full: bool = False  # the disk is full
    kind: str = "DataError"  # of the error


class Executor(Protocol):
    """Runs `tasks.production.worker.Worker(job)`, one per process; a partition's bytes depend on neither number nor place."""

    def protect(self, job: Job, work: Sequence[SourcePartition]) -> Iterator[Receipt | Failure]:
        """Protects partitions and yields each as it finishes, in any order; a failed one does not stop the others."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Records that are about to be published, chosen by key, as the audit gate sees them."""

    features: FloatArray
    donors: IntArray
    persons: IntArray  # numbers, equal for records of one person
    units: IntArray  # for `pool.forbid`: the number of the donors that a record must not be replaced by, -1 for none
    labels: Mapping[str, IntArray]  # attribute -> class index; empty without labels
    carried: Mapping[str, IntArray]  # the same of attributes whose class selects donors
    attributes: tuple[Attribute, ...]  # with the pool's classes
    of: int  # records of which these are the sample
    recent: int = 0  # the last of these: published and audited before, with the same model, pool and key

    def alone(self) -> "Sample":
        """The records that are about to be published, without recent ones."""
        new = slice(len(self.donors) - self.recent)
        cut = {name: getattr(self, name)[new] for name in ("features", "donors", "persons", "units")}
        cut |= {name: {key: values[new] for key, values in getattr(self, name).items()} for name in ("labels", "carried")}
        return dataclasses.replace(self, recent=0, **cut)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """The verdict of the audit gate, for the manifest."""

    verdict: Verdict
    basis: Basis
    records: int
    of: int
    reasons: tuple[str, ...]
    limits: Mapping[str, float] = field(default_factory=dict)  # of params.yaml
    digests: Mapping[str, str] = field(default_factory=dict)  # of what was judged with: model, pool, the champion's audit
    details: Mapping[str, Any] = field(default_factory=dict)  # figures with their intervals


class Gate(Protocol):
    """The audit before publishing: nothing is published unless it passes."""

    def judge(self, sample: Sample, job: Job) -> GateResult:
        """Audits a sample of what is about to be published."""
