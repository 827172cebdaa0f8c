"""A worker: protects one partition at a time and stages its files with a receipt. Memory holds a few numbers per record."""

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from pass_core.channel.draws import WordArray, keyed_words
from pass_core.channel.substitution import BLOCK_ROWS, Channel, ExcludingChannel, exclusion_among
from pass_core.data import FloatArray, IntArray
from pass_core.devices import resolve_device
from pass_core.errors import ChecksumMismatch, DataError, MethodError, PassError, SchemaMismatch, TransientError
from tasks.extractors.base import checked_features, load_extractor
from tasks.payloads.quarantine import Quarantine
from tasks.production.crash_points import crash_point
from tasks.production.interfaces import Failure, Job, Work
from tasks.production.manifest import OutputFile, Receipt, to_json
from tasks.production.source import LakeSource
from tasks.production.staging import DATA, RECEIPT, staged_folder
from tasks.release.draw import KeyedRelease, donor_units
from tasks.release.protector import read_protector
from tasks.release.rows import ReleasedRows, write_rows
from tasks.running.numerics import fingerprint, fixed_numerics
from tasks.running.step_io import RunKey
from tasks.storage.files import file_digest, is_full, json_digest, storage_errors, write_json
from tasks.storage.parquet import TableInfo, class_indices

THREADS = 1  # per worker: another number adds up in another order; more workers give the speed instead
FILE_ROWS = 2**20


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A partition's draws in the released order, which is that of keyed words; the hashes are sorted."""

    donors: IntArray
    hashes: WordArray
    passed: pa.Table | None
    sample: dict[str, np.ndarray]


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
            expected, found = (f"{one.kind} payloads of shape {one.shape}" for one in (known, payload))
            raise SchemaMismatch(f"{job.lake.source}: payload: expected {expected} as in the pool, found {found}; check both")
        self._keyed = KeyedRelease(run=RunKey(job.dataset, job.method), model=job.pins.model, forbid=job.forbid, key=job.key)
        schema, pool = self.source.released_schema(job.release, job.plain_lists), self.protector.pool
        columns, paths = job.lake.payload, job.lake.payload_is_path
        self.release = ReleasedRows(self._keyed, pool, payload, schema, columns=columns, paths=paths)
        _, _, self._extractor = load_extractor(job.lake, job.extractor, payload, job.device, job.dataset)
        self._attributes = attributes if self.source.labels else ()
        self._units = None if job.forbid == "none" else donor_units(pool, job.forbid)
        self._numerics = json_digest(fingerprint(device, THREADS))

    def attempt(self, work: Work) -> Receipt | Failure:
        """The receipt of a staged partition, or why there is none; only unexpected errors are raised."""
        try:
            return self.protect(work)
        except PassError as error:
            return Failure(work.partition.name, str(error), isinstance(error, TransientError), is_full(error))

    def protect(self, work: Work) -> Receipt:
        """Stages a partition, whole or not at all; its receipt."""
        job, name = self.job, work.partition.name
        quarantine = Quarantine(job.lake.corrupt_files_allowed, f"dataset.{job.dataset}.corrupt_files_allowed")
        with storage_errors(job.staging), fixed_numerics(THREADS), staged_folder(job.staging, name) as folder:
            crash_point("partition started")
            drawn = self._draw(work, quarantine)
            counts = np.bincount(drawn.donors, minlength=self.channel.pool_size)
            paths = self._write(folder / DATA, drawn, name)
            np.save(folder / "hashes.npy", drawn.hashes)
            np.save(folder / "donors.npy", counts)
            np.savez(folder / "sample.npz", **drawn.sample)  # type: ignore[arg-type]
            crash_point("partition written")
            receipt = Receipt(
                partition=name,
                input_digest=work.partition.digest,
                pins=job.pins,
                numerics=self._numerics,
                rows_in=len(drawn.donors) + len(quarantine.entries),
                rows=len(drawn.donors),
                quarantined=len(quarantine.entries),
                files=tuple(OutputFile(f.relative_to(folder / DATA).as_posix(), f.stat().st_size, file_digest(f)) for f in paths),
                donors=int((counts > 0).sum()),
                sampled=len(drawn.sample["donors"]),
            )
            write_json(folder / RECEIPT, to_json(receipt))  # last: a folder with a receipt is whole
        crash_point("partition staged")
        return receipt

    def _draw(self, work: Work, quarantine: Quarantine) -> _Drawn:
        """Streams the records once."""
        job, lake, name = self.job, self.job.lake, work.partition.name
        parts: list[tuple[IntArray, WordArray, WordArray, pa.Table]] = []
        sample: dict[str, np.ndarray] = {}
        for records, features in self._blocks(work, quarantine):
            ids: list[str] = records.column(lake.record_id).to_pylist()
            exclusion, channel = None, self.channel
            if self._units is not None:
                exclusion = exclusion_among(ids if job.forbid == "self" else self._persons(records), self._units)
                channel = ExcludingChannel(channel, exclusion)
            donors = self._keyed.donors(channel, features, ids)
            words = self._keyed.order_words(name, ids)
            hashes = keyed_words(job.ledger_key, "ledger", (job.dataset,), ids)
            persons = keyed_words(job.ledger_key, "person", (), self._persons(records)) if lake.person else hashes
            units = np.full(len(ids), -1, dtype=np.int64) if exclusion is None else exclusion.record_units
            labels = [class_indices(records, attribute.name, attribute.classes) for attribute in self._attributes]
            columns: dict[str, np.ndarray] = {"words": words, "features": features, "donors": donors, "persons": persons}
            columns |= {"units": units, "labels": np.array(labels, dtype=np.int64).reshape(len(labels), len(ids)).T}
            sample = _first_of(work.sampled, sample, columns)
            parts.append((donors, words, hashes, records.select(self.source.passed_columns)))
        if not parts:
            raise DataError(f"{name}: has no usable record; restore or remove the partition")
        donors, words, hashes = (np.concatenate([part[k] for part in parts]) for k in range(3))
        unique, order = np.unique(hashes), np.argsort(words, kind="stable")
        if len(unique) < len(hashes):
            raise DataError(f"{name}: record ids are not unique: expected every record once; check the lake")
        passed = pa.concat_tables([part[3] for part in parts]).take(pa.array(order)) if self.source.passed_columns else None
        return _Drawn(donors[order], unique, passed, sample)

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
                (joined, features), whole = _joined(waiting), rows - rows % BLOCK_ROWS
                yield joined[:whole], features[:whole]
                waiting = [(joined[whole:], features[whole:])] if whole < rows else []
        if waiting:
            yield _joined(waiting)

    def _persons(self, records: pa.Table) -> list[str]:
        if not self.job.lake.person:
            raise DataError("pool.forbid: same_person needs the column `person` of the lake; declare it in params.yaml")
        return list(records.column(self.job.lake.person).to_pylist())

    def _write(self, folder: Path, drawn: _Drawn, partition: str) -> list[Path]:
        """Writes the released rows of a partition and the files that they point to."""
        (folder / partition).mkdir(parents=True, exist_ok=True)
        rows, release = range(len(drawn.donors)), self.release
        parts = [f"{partition}/{k}" for k in range(math.ceil(len(rows) / FILE_ROWS))]
        paths = [folder / partition / name for name in self._keyed.file_names(parts)]

        def released(group: range) -> pa.Table:
            beside = None if drawn.passed is None else drawn.passed.slice(group.start, len(group))
            return release.rows(drawn.donors[group.start : group.stop], beside, partition)

        written = functools.partial(crash_point, "partition half written")
        for number, path in enumerate(paths):
            own = rows[number * FILE_ROWS : (number + 1) * FILE_ROWS]
            write_rows(path, release.schema, own, released, at_once=release.rows_at_once, written=written)
        return paths + release.write_payloads(folder, np.unique(drawn.donors), partition)


def _joined(parts: list[tuple[pa.Table, FloatArray]]) -> tuple[pa.Table, FloatArray]:
    return pa.concat_tables([table for table, _ in parts]), np.concatenate([features for _, features in parts])


def _first_of(wanted: int, sample: dict[str, np.ndarray], columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Keeps the records that come first in the released order: a random sample that is the same in every run."""
    first = np.argsort(columns["words"], kind="stable")[:wanted]  # before anything is copied
    columns = {name: values[first] for name, values in columns.items()}
    joined = {name: np.concatenate([sample[name], new]) if sample else new for name, new in columns.items()}
    chosen = np.argsort(joined["words"], kind="stable")[:wanted]
    return {name: values[chosen] for name, values in joined.items()}
