"""A worker: protects one partition at a time and stages its files with a receipt. Memory holds a few numbers per record."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from pass_core.channel.draws import WordArray, keyed_words
from pass_core.channel.substitution import BLOCK_ROWS, Channel, ExcludingChannel, Exclusion, exclusion_among
from pass_core.data import FloatArray, IntArray
from pass_core.devices import resolve_device
from pass_core.errors import ChecksumMismatch, DataError, MethodError, SchemaMismatch
from tasks.extractors.base import checked_features, load_extractor
from tasks.payloads.quarantine import Quarantine
from tasks.production.crash_points import crash_point
from tasks.production.interfaces import Job, Work
from tasks.production.manifest import OutputFile, Receipt
from tasks.production.source import LakeSource
from tasks.production.staging import DATA, save_receipt, staged_folder
from tasks.release.draw import KeyedRelease, donor_units
from tasks.release.protector import read_protector
from tasks.release.rows import ReleasedRows, write_rows
from tasks.running.numerics import fingerprint, fixed_numerics
from tasks.running.step_io import RunKey
from tasks.storage.files import file_digest, json_digest, storage_errors
from tasks.storage.parquet import TableInfo, class_indices

THREADS = 1  # per worker: another number adds up in another order; more workers give the speed instead
FILE_ROWS = 2**20


@dataclass(slots=True)
class _Drawn:
    """What is kept of a partition's records while they are streamed."""

    donors: list[IntArray] = field(default_factory=list)
    words: list[WordArray] = field(default_factory=list)  # the released order is theirs
    hashes: list[WordArray] = field(default_factory=list)
    passed: list[pa.Table] = field(default_factory=list)
    sample: dict[str, np.ndarray] = field(default_factory=dict)

    def keep_sample(self, wanted: int, words: WordArray, columns: dict[str, np.ndarray]) -> None:
        """Keeps the records that come first in the released order: a random sample that is the same in every run."""
        first = np.argsort(words, kind="stable")[:wanted]  # before anything is copied
        columns = {name: values[first] for name, values in {"words": words, **columns}.items()}
        joined = {name: np.concatenate([self.sample[name], new]) if self.sample else new for name, new in columns.items()}
        chosen = np.argsort(joined["words"], kind="stable")[:wanted]
        self.sample = {name: values[chosen] for name, values in joined.items()}


class Worker:
    """A model, a pool and a source in one process."""

    def __init__(self, job: Job) -> None:
        """Loads everything, and checks that model and pool are those of the run's start."""
        device = resolve_device(job.device)
        self.job = job
        self.source = LakeSource(job.lake, job.columns)
        attributes = job.lake.attributes(TableInfo.load(job.pool).classes)
        self.protector = read_protector(job.model, job.pool, attributes, device)
        if (self.protector.model_digest, self.protector.pool_digest) != (job.pins.model, job.pins.pool):
            raise ChecksumMismatch(f"{job.model}: model or pool have changed since the run started; run again")
        if self.protector.fitted.channel is None:
            raise MethodError(f"{job.method} makes new records; use a method that releases donors' records (docs/methods.md)")
        self.channel: Channel = self.protector.fitted.channel
        payload, known = self.source.payload, self.protector.info.payload
        if (payload.kind, payload.shape) != (known.kind, known.shape):
            raise SchemaMismatch(
                f"{job.lake.source}: payload: expected {known.kind} payloads of shape {known.shape} as in the pool, found "
                f"{payload.kind} payloads of shape {payload.shape}; check both"
            )
        self._keyed = KeyedRelease(run=RunKey(job.dataset, job.method), model=job.pins.model, forbid=job.forbid, key=job.key)
        self.release = ReleasedRows(
            self._keyed,
            self.protector.pool,
            payload,
            self.source.released_schema(job.release, job.plain_lists),
            columns=job.lake.payload,
            paths=job.lake.payload_is_path,
        )
        _, _, self._extractor = load_extractor(job.lake, job.extractor, payload, job.device, job.dataset)
        self._attributes = attributes if self.source.labels else ()
        self._units = None if job.forbid == "none" else donor_units(self.protector.pool, job.forbid)
        self._numerics = json_digest(fingerprint(device, THREADS))

    def protect(self, work: Work) -> Receipt:
        """Stages a partition, whole or not at all; its receipt."""
        job, name = self.job, work.partition.name
        quarantine = Quarantine(job.lake.corrupt_files_allowed, f"dataset.{job.dataset}.corrupt_files_allowed")
        with storage_errors(job.staging), fixed_numerics(THREADS), staged_folder(job.staging, name) as folder:
            crash_point("partition started")
            drawn = self._draw(work, quarantine)
            order = np.argsort(np.concatenate(drawn.words), kind="stable")
            donors = np.concatenate(drawn.donors)[order]
            counts = np.bincount(donors, minlength=self.channel.pool_size)
            passed = pa.concat_tables(drawn.passed).take(pa.array(order)) if self.source.passed_columns else None
            paths = self._write(folder / DATA, donors, passed, name)
            np.save(folder / "hashes.npy", np.sort(np.concatenate(drawn.hashes)))
            np.save(folder / "donors.npy", counts)
            np.savez(folder / "sample.npz", **drawn.sample)  # type: ignore[arg-type]
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
        """Streams the records once: donors, words for the order, keyed hashes, and the gate's sample."""
        drawn, job, lake = _Drawn(), self.job, self.job.lake
        for records, features in self._blocks(work, quarantine):
            ids: list[str] = records.column(lake.record_id).to_pylist()
            exclusion = self._exclusion(records, ids)
            channel = self.channel if exclusion is None else ExcludingChannel(self.channel, exclusion)
            donors = self._keyed.donors(channel, features, ids)
            words = self._keyed.order_words(work.partition.name, ids)
            hashes = keyed_words(job.ledger_key, "ledger", (job.dataset,), ids)
            persons = keyed_words(job.ledger_key, "person", (), self._persons(records)) if lake.person else hashes
            units = np.full(len(ids), -1, dtype=np.int64) if exclusion is None else exclusion.record_units
            columns: dict[str, np.ndarray] = {"features": features, "donors": donors, "persons": persons, "units": units}
            drawn.keep_sample(work.sampled, words, columns | {"labels": self._labels(records)})
            drawn.donors.append(donors)
            drawn.words.append(words)
            drawn.hashes.append(hashes)
            drawn.passed.append(records.select(self.source.passed_columns))
        if not drawn.donors:
            raise DataError(f"{work.partition.name}: has no usable record; restore or remove the partition")
        if len(np.unique(np.concatenate(drawn.hashes))) < sum(map(len, drawn.hashes)):
            raise DataError(f"{work.partition.name}: record ids are not unique: expected every record once; check the lake")
        return drawn

    def _blocks(self, work: Work, quarantine: Quarantine) -> Iterator[tuple[pa.Table, FloatArray]]:
        """Records without payloads, and their features, whole blocks at a time, so that only the last block is padded."""
        waiting: list[tuple[pa.Table, FloatArray]] = []
        for records in self.source.batches(work.partition, quarantine):
            if not len(records):
                continue
            features = checked_features(self._extractor, records.payloads, THREADS, work.partition.name)
            waiting.append((records.columns, features))
            rows = sum(len(part) for _, part in waiting)
            if rows >= BLOCK_ROWS:
                joined, features = _joined(waiting)
                whole = rows - rows % BLOCK_ROWS
                yield joined[:whole], features[:whole]
                waiting = [(joined[whole:], features[whole:])] if whole < rows else []
        if waiting:
            yield _joined(waiting)

    def _exclusion(self, records: pa.Table, ids: list[str]) -> Exclusion | None:
        """The donors that the rule excludes for these records."""
        if self._units is None:
            return None
        return exclusion_among(ids if self.job.forbid == "self" else self._persons(records), self._units)

    def _persons(self, records: pa.Table) -> list[str]:
        if not self.job.lake.person:
            raise DataError("pool.forbid: same_person needs the column `person` of the lake; declare it in params.yaml")
        persons: list[str] = records.column(self.job.lake.person).to_pylist()
        return persons

    def _labels(self, records: pa.Table) -> IntArray:
        """(n, attributes) class indices; no columns where the lake carries no labels."""
        codes = [class_indices(records, attribute.name, attribute.classes) for attribute in self._attributes]
        return np.stack(codes, axis=1) if codes else np.empty((len(records), 0), dtype=np.int64)

    def _write(self, folder: Path, donors: IntArray, passed: pa.Table | None, partition: str) -> list[Path]:
        """Writes the released rows of a partition and the files that they point to."""
        within = folder / partition
        within.mkdir(parents=True, exist_ok=True)
        parts = [f"{partition}/{k}" for k in range(math.ceil(len(donors) / FILE_ROWS))]
        paths = [within / name for name in self._keyed.file_names(parts)]

        def released(group: range) -> pa.Table:
            beside = None if passed is None else passed.slice(group.start, len(group))
            return self.release.rows(donors[group.start : group.stop], beside, partition)

        for number, path in enumerate(paths):
            write_rows(
                path,
                self.release.schema,
                range(number * FILE_ROWS, min(len(donors), (number + 1) * FILE_ROWS)),
                released,
                at_once=self.release.rows_at_once,
                written=lambda: crash_point("partition half written"),
            )
        return paths + self.release.write_payloads(folder, np.unique(donors), partition)


def _joined(parts: list[tuple[pa.Table, FloatArray]]) -> tuple[pa.Table, FloatArray]:
    return pa.concat_tables([table for table, _ in parts]), np.concatenate([features for _, features in parts])


def _output(path: Path, root: Path) -> OutputFile:
    return OutputFile(path.relative_to(root).as_posix(), path.stat().st_size, file_digest(path))
