"""A worker: one partition in, its released files staged whole, and a receipt. Memory holds a few numbers per record."""

import dataclasses
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pass_core.channel.draws import WordArray, keyed_words
from pass_core.channel.substitution import BLOCK_ROWS, Channel, ExcludingChannel, Exclusion
from pass_core.data import FloatArray, IntArray
from pass_core.devices import resolve_device
from pass_core.errors import ChecksumMismatch, DataError, MethodError, ValidationFailed
from tasks.payloads.quarantine import Quarantine
from tasks.production.crash_points import crash_point
from tasks.production.interfaces import Job, Originals, Work
from tasks.production.manifest import OutputFile, Receipt
from tasks.production.released_rows import Release
from tasks.production.source import LakeSource
from tasks.production.staging import DATA, save_receipt, staged_folder
from tasks.release.protector import donor_units, draw_donors, draw_scope, exclusion_among, order_scope, read_protector
from tasks.running.numerics import fingerprint, fixed_numerics
from tasks.running.step_io import RunKey
from tasks.steps.extract import checked_features, load_extractor
from tasks.storage.files import file_digest, json_digest, storage_errors, sync_file
from tasks.storage.parquet import TableInfo, open_writer

THREADS = 1  # per worker, always: another number adds up in another order, and workers are many instead
FILE_ROWS = 2**20


@dataclass(slots=True)
class _Drawn:
    """What is kept of a partition's records while they stream by."""

    donors: list[IntArray] = field(default_factory=list)
    words: list[WordArray] = field(default_factory=list)  # place in the shuffled order
    hashes: list[WordArray] = field(default_factory=list)
    passed: list[pa.RecordBatch] = field(default_factory=list)
    sample: dict[str, np.ndarray] = field(default_factory=dict)

    def keep_sample(self, wanted: int, words: WordArray, columns: dict[str, np.ndarray]) -> None:
        """Keeps the records that come first in the shuffled order: as good as drawn by lot, and the same in every run."""
        first = np.argsort(words, kind="stable")[:wanted]  # most of a batch is sorted out before anything is copied
        columns = {name: values[first] for name, values in {"words": words, **columns}.items()}
        joined = {name: np.concatenate([self.sample[name], new]) if self.sample else new for name, new in columns.items()}
        chosen = np.argsort(joined["words"], kind="stable")[:wanted]
        self.sample = {name: values[chosen] for name, values in joined.items()}


class Worker:
    """A model, a pool and a source in one process."""

    def __init__(self, job: Job) -> None:
        """Loads everything, and checks that it is what the run was begun with.

        Raises:
            ChecksumMismatch: model or pool were swapped since.
            MethodError: the method makes new records; what it releases is not a donor's.
        """
        device = resolve_device(job.device)
        self.job = job
        self.source = LakeSource(job.lake, job.columns)
        attributes = job.lake.attributes(TableInfo.load(job.pool).classes)
        self.protector = read_protector(job.model, job.pool, attributes, device)
        if (self.protector.model_digest, self.protector.pool_digest) != (job.pins.model, job.pins.pool):
            raise ChecksumMismatch(f"{job.model}: model or pool have changed since the run was begun; run again")
        if self.protector.fitted.channel is None:
            raise MethodError(f"{job.method} makes new records; a lake is protected with donors' (docs/methods.md)")
        self.channel: Channel = self.protector.fitted.channel
        self.release = Release(job, self.source, self.protector)
        _, _, self._extractor = load_extractor(job.lake, job.extractor, self.source.payload, job.device, job.dataset)
        self._attributes = attributes if self.source.labels else ()
        self._classes = {a.name: {name: k for k, name in enumerate(a.classes)} for a in attributes}
        self._units = None if job.forbid == "none" else donor_units(self.protector.pool, job.forbid)
        self._numerics = json_digest(fingerprint(device, THREADS))
        self._key = RunKey(job.dataset, job.method)

    def protect(self, work: Work) -> Receipt:
        """Leaves a partition staged; its receipt.

        Raises:
            DataError: the partition is damaged, has other columns, changed while it was read, or holds a record twice.
        """
        job, name = self.job, work.partition.name
        quarantine = Quarantine(job.lake.corrupt_files_allowed, f"dataset.{job.dataset}.corrupt_files_allowed")
        with storage_errors(job.staging), fixed_numerics(THREADS), staged_folder(job.staging, name) as folder:
            crash_point("partition started")
            drawn = self._draw(work, quarantine)
            order = np.argsort(_joined(drawn.words, np.uint64), kind="stable")
            donors = _joined(drawn.donors, np.int64)[order]
            counts = np.bincount(donors, minlength=self.channel.pool_size)
            paths = self._write(folder / DATA, donors, self._passed(drawn, order), name)
            self._save(folder, drawn, counts)
            crash_point("partition written")
            receipt = Receipt(
                partition=name,
                input_digest=work.partition.digest,
                pins=job.pins,
                numerics=self._numerics,
                rows_in=len(donors) + len(quarantine.entries),
                rows=len(donors),
                quarantined=len(quarantine.entries),
                files=tuple(_output(path, folder / DATA) for path in paths),
                donors=int((counts > 0).sum()),
                sampled=len(drawn.sample["donors"]),
            )
            save_receipt(folder, receipt)
        crash_point("partition staged")
        return receipt

    def _draw(self, work: Work, quarantine: Quarantine) -> _Drawn:
        """Streams the records once: donors, places in the order, keyed hashes, and the gate's sample."""
        drawn, job = _Drawn(), self.job
        scopes = (
            draw_scope(self._key, job.pins.model, job.forbid),
            order_scope(self._key, job.pins.model, work.partition.name, job.forbid),
        )
        for originals, features in self._blocks(work, quarantine):
            ids = originals.record_ids
            exclusion = self._exclusion(originals)
            channel = self.channel if exclusion is None else ExcludingChannel(self.channel, exclusion)
            donors = draw_donors(channel, features, ids, job.key, scopes[0], _nobody)
            words = keyed_words(job.key, "order", scopes[1], ids)
            hashes = keyed_words(job.ledger_key, "ledger", (job.dataset,), ids)
            persons = hashes if originals.persons is None else keyed_words(job.ledger_key, "person", (), originals.persons)
            units = np.full(len(ids), -1, dtype=np.int64) if exclusion is None else exclusion.record_units
            columns: dict[str, np.ndarray] = {"features": features, "donors": donors, "persons": persons, "units": units}
            drawn.keep_sample(work.sampled, words, columns | {"labels": self._labels(originals)})
            drawn.donors.append(donors)
            drawn.words.append(words)
            drawn.hashes.append(hashes)
            if originals.passed:
                drawn.passed.append(pa.RecordBatch.from_pydict(dict(originals.passed)))
        if len(np.unique(_joined(drawn.hashes, np.uint64))) < sum(map(len, drawn.hashes)):
            raise DataError(f"{work.partition.name}: record ids are not unique: expected every record once; check the lake")
        if not drawn.donors:
            raise DataError(f"{work.partition.name}: holds no record that can be used; restore it or take it away")
        return drawn

    def _blocks(self, work: Work, quarantine: Quarantine) -> Iterator[tuple[Originals, FloatArray]]:
        """Records with their features, whole blocks at a time, so that no block but the last is padded."""
        waiting: list[tuple[Originals, FloatArray]] = []
        for originals in self.source.batches(work.partition, quarantine):
            if not len(originals):
                continue
            features = checked_features(self._extractor, originals.payloads, THREADS, work.partition.name, _nobody)
            waiting.append((dataclasses.replace(originals, payloads=[]), features))
            rows = sum(len(part) for part, _ in waiting)
            if rows >= BLOCK_ROWS:
                joined, features = _concatenated(waiting)
                whole = rows - rows % BLOCK_ROWS
                yield _part(joined, slice(0, whole)), features[:whole]
                waiting = [(_part(joined, slice(whole, rows)), features[whole:])] if whole < rows else []
        if waiting:
            yield _concatenated(waiting)

    def _exclusion(self, originals: Originals) -> Exclusion | None:
        """Who may not meet whom among these records and the donors."""
        if self._units is None:
            return None
        names = originals.record_ids if self.job.forbid == "self" else originals.persons
        if names is None:
            raise DataError("pool.forbid: same_person needs the column `person` of the lake; name it in params.yaml")
        return exclusion_among(names, self._units)

    def _labels(self, originals: Originals) -> IntArray:
        """(n, attributes) class indices; no columns where the lake carries no labels."""
        codes: IntArray = np.full((len(originals), len(self._attributes)), -1, dtype=np.int64)
        for k, attribute in enumerate(self._attributes):
            known = self._classes[attribute.name]
            codes[:, k] = [known.get(value, -1) for value in originals.labels[attribute.name]]
            unknown = int((codes[:, k] < 0).sum())
            if unknown:
                raise DataError(f"column {attribute.name!r}: {unknown} record(s) carry a class that the pool does not know")
        return codes

    def _passed(self, drawn: _Drawn, order: IntArray) -> pa.Table | None:
        return pa.Table.from_batches(drawn.passed).take(pa.array(order)) if drawn.passed else None

    def _write(self, folder: Path, donors: IntArray, passed: pa.Table | None, partition: str) -> list[Path]:
        """Writes the released rows, reads them back, and compares them with the donors' own payloads."""
        within = folder / partition
        within.mkdir(parents=True, exist_ok=True)
        numbers = [f"{partition}/{k}" for k in range(math.ceil(len(donors) / FILE_ROWS))]
        names = keyed_words(self.job.key, "file name", (self.job.dataset, self.job.pins.model), numbers)
        paths = [within / f"part-{name:016x}.parquet" for name in names.tolist()]
        for number, path in enumerate(paths):
            rows = range(number * FILE_ROWS, min(len(donors), (number + 1) * FILE_ROWS))
            self._write_file(path, donors, passed, partition, rows)
        paths += self.release.write_files(folder, np.unique(donors), partition)
        for path in paths:
            sync_file(path)
            os.utime(path, (0, 0))
        return paths

    def _write_file(self, path: Path, donors: IntArray, passed: pa.Table | None, partition: str, rows: range) -> None:
        groups = [rows[start : start + self.release.rows_at_once] for start in range(0, len(rows), self.release.rows_at_once)]

        def released(group: range) -> pa.Table:
            beside = None if passed is None else passed.slice(group.start, len(group))
            return self.release.rows(donors[group.start : group.stop], beside, partition)

        with open_writer(path, self.release.schema) as writer:
            for group in groups:
                writer.write_table(released(group), row_group_size=len(group))
                crash_point("partition half written")
        file = pq.ParquetFile(path, page_checksum_verification=True)
        if file.schema_arrow != self.release.schema or file.metadata.num_rows != len(rows):
            raise ValidationFailed(f"{path.name}: columns or rows differ from what was to be written; check the disk, run again")
        for number, group in enumerate(groups):
            if not file.read_row_group(number, use_threads=False).equals(released(group)):
                raise ValidationFailed(f"{path.name}: a released row is not its donor's; check the disk, run again")

    def _save(self, folder: Path, drawn: _Drawn, counts: IntArray) -> None:
        np.save(folder / "hashes.npy", np.sort(_joined(drawn.hashes, np.uint64)))
        np.save(folder / "donors.npy", counts)
        np.savez(folder / "sample.npz", **drawn.sample)  # type: ignore[arg-type]


def _nobody(_: int) -> None:
    """Nobody is told: a partition is the smallest thing that is reported."""


def _joined(parts: list[np.ndarray], kind: type) -> np.ndarray:
    return np.concatenate(parts) if parts else np.empty(0, dtype=kind)


def _concatenated(parts: list[tuple[Originals, FloatArray]]) -> tuple[Originals, FloatArray]:
    if len(parts) == 1:
        return parts[0]
    records = [part for part, _ in parts]
    first = records[0]
    joined = Originals(
        [name for part in records for name in part.record_ids],
        [],
        None if first.persons is None else [name for part in records for name in part.persons or ()],
        {name: [value for part in records for value in part.labels[name]] for name in first.labels},
        {name: pa.concat_arrays([part.passed[name] for part in records]) for name in first.passed},
    )
    return joined, np.concatenate([features for _, features in parts])


def _part(originals: Originals, rows: slice) -> Originals:
    return Originals(
        originals.record_ids[rows],
        [],
        None if originals.persons is None else originals.persons[rows],
        {name: values[rows] for name, values in originals.labels.items()},
        {name: values[rows.start : rows.stop] for name, values in originals.passed.items()},
    )


def _output(path: Path, root: Path) -> OutputFile:
    return OutputFile(path.relative_to(root).as_posix(), path.stat().st_size, file_digest(path))
