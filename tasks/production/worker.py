"""A worker: protects one partition at a time and stages its files with a receipt. Memory holds a few numbers per record."""

import faulthandler
import functools
import math
import os
import traceback
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from pass_core.channel.draws import WordArray, keyed_words
from pass_core.channel.substitution import BLOCK_ROWS, Channel, carried_attributes, channel_of_records, exclusion_among
from pass_core.data import FloatArray, IntArray
from pass_core.devices import resolve_device
from pass_core.errors import DataError, MethodError, PassError, SchemaMismatch, TransientError
from tasks.extractors.engines.base import engine_libraries
from tasks.extractors.loading import checked_features, load_extractor_of
from tasks.payloads.quarantine import Quarantine
from tasks.production.crash_points import crash_point
from tasks.production.draw_counts import PairArray, ledger_pairs
from tasks.production.interfaces import Failure, Job, SourcePartition
from tasks.production.manifest import OutputFile, Receipt
from tasks.production.pinned import read_pinned
from tasks.production.source import LakeSource
from tasks.production.source_files import notes_digest
from tasks.production.staging import CARRIED, DATA, INPUTS, staged_folder, write_receipt
from tasks.release.draw import KeyedRelease, donor_units, drawn_from, payload_words
from tasks.release.rows import ReleasedRows, write_rows
from tasks.running.numerics import fingerprint, fixed_numerics
from tasks.storage.files import file_digest, is_full, json_digest, storage_errors, write_json
from tasks.storage.parquet import class_indices, labels_of

THREADS = 1  # per worker: another number adds up in another order; more workers give the speed instead
FILE_ROWS = 2**20
PAYLOAD_WORD = "\0payload"  # column of the payloads' digests, beside the lake's own


def numerics_of(job: Job) -> dict[str, str | int]:
    """The arithmetic that a job's draws depend on, on this machine."""
    return fingerprint(resolve_device(job.device), THREADS) | engine_libraries(job.extractor.get(job.lake.extractor))


class Worker:
    """A model, a pool and a source in one process."""

    def __init__(self, job: Job) -> None:
        """Loads everything, and checks that model and pool are those of the run's start."""
        device = resolve_device(job.device)
        self.job = job
        self.protector = read_pinned(job, device)
        if self.protector.fitted.channel is None:
            expected = "expected a method that releases donors' records"
            raise MethodError(f"{expected}, found {job.run.method}, which makes new ones; choose another (docs/methods.md)")
        self.channel: Channel = self.protector.fitted.channel
        self._carried = carried_attributes(self.channel)
        self.source = LakeSource(job.lake, job.key, job.columns, tuple(a.name for a in self._carried), job.left_out)
        payload, known = self.source.payload, self.protector.info.payload
        if (payload.kind, payload.shape) != (known.kind, known.shape):
            expected, found = (f"{one.kind} payloads of shape {one.shape}" for one in (known, payload))
            raise SchemaMismatch(f"{job.lake.source}: payload: expected {expected} as in the pool, found {found}; check both")
        self._keyed = KeyedRelease(run=job.run, model=job.pins.model, forbid=job.forbid, key=job.key)
        schema, pool = self.source.released_schema(job.release, job.plain_lists), self.protector.pool
        columns, paths = job.lake.payload, job.lake.payload_is_path
        self.release = ReleasedRows(self._keyed, pool, payload, schema, columns=columns, paths=paths)
        self._extractor = load_extractor_of(job.pool, job.lake, job.extractor, job.device, job.run.dataset)
        self._attributes = job.lake.attributes(self.protector.info.classes) if self.source.labels else ()
        self._units = None if job.forbid == "none" else donor_units(pool, job.forbid)
        self._numerics = json_digest(numerics_of(job))

    def attempt(self, partition: SourcePartition) -> Receipt | Failure:
        """The receipt of a staged partition, or why there is none: no partition stops the others."""
        try:
            return self.protect(partition)
        except PassError as error:
            return Failure(partition.name, str(error), isinstance(error, TransientError), is_full(error), type(error).__name__)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is this partition's; its text may hold a value)
            *_, frame = traceback.extract_tb(error.__traceback__)
            found = f"stopped by {type(error).__name__} ({Path(frame.filename).name}, line {frame.lineno}); report this line"
            return Failure(partition.name, found, isinstance(error, OSError), kind=type(error).__name__)

    def attempt_in_time(self, partition: SourcePartition) -> Receipt | Failure:
        """The same in a worker process, which ends, as if it had been killed, when the partition takes longer than it may."""
        with Path(os.devnull).open("w") as nowhere:  # for the stack of the process
            # A thread of the interpreter itself: it needs no lock that a hanging library may hold.
            faulthandler.dump_traceback_later(60 * self.job.minutes, exit=True, file=nowhere)
            try:
                return self.attempt(partition)
            finally:
                faulthandler.cancel_dump_traceback_later()

    def protect(self, partition: SourcePartition) -> Receipt:
        """Stages a partition, whole or not at all; its receipt."""
        job, name = self.job, partition.name
        quarantine = Quarantine(job.lake.corrupt_files_allowed, f"dataset.{job.run.dataset}.corrupt_files_allowed")
        with storage_errors(job.staging), fixed_numerics(THREADS), staged_folder(job.staging, name) as folder:
            crash_point("partition started", name)
            donors, draws, passed, sample = self._draw(partition, quarantine)
            counts = np.bincount(donors, minlength=self.channel.pool_size)
            paths = self._write(folder / DATA, donors, passed, name)
            np.save(folder / "draws.npy", draws)
            np.save(folder / "donors.npy", counts)
            np.savez(folder / "sample.npz", **sample)  # type: ignore[arg-type]
            crash_point("partition written")
            receipt = Receipt(
                partition=name,
                input_digest=notes_digest(*self.source.notes),
                pins=job.pins,
                numerics=self._numerics,
                rows_in=len(donors) + len(quarantine.entries),
                rows=len(donors),
                quarantined=len(quarantine.entries),
                files=tuple(OutputFile(f.relative_to(folder / DATA).as_posix(), f.stat().st_size, file_digest(f)) for f in paths),
                donors=int((counts > 0).sum()),
                sampled=len(sample.get("donors", ())),
            )
            write_json(folder / INPUTS, dict(zip(("table", "recordings"), self.source.notes, strict=True)))
            write_receipt(folder, receipt, partition.digest)  # last: a folder with a receipt is whole
        crash_point("partition staged")
        return receipt

    def _draw(
        self, partition: SourcePartition, quarantine: Quarantine
    ) -> tuple[IntArray, PairArray, pa.Table | None, dict[str, np.ndarray]]:
        """Streams the records once: donors and passed columns in the released order, the ledger's pairs, the gate's sample."""
        job, lake, name = self.job, self.job.lake, partition.name
        parts: list[tuple[IntArray, WordArray, WordArray, WordArray, pa.Table]] = []
        sample: dict[str, np.ndarray] = {}
        for records, features in self._blocks(partition, quarantine):
            ids: list[str] = records.column(lake.record_id).to_pylist()
            exclusion = None
            if self._units is not None:
                exclusion = exclusion_among(ids if job.forbid == "self" else self._persons(records), self._units)
            carried = labels_of(records, self._carried)
            channel = channel_of_records(self.channel, carried, exclusion)
            donors = self._keyed.donors(channel, features, ids)
            words = self._keyed.order_words(name, ids)
            hashes = keyed_words(job.ledger_key, "ledger", (job.run.dataset,), ids)
            persons = keyed_words(job.ledger_key, "person", (), self._persons(records)) if lake.person else hashes
            units = np.full(len(ids), -1, dtype=np.int64) if exclusion is None else exclusion.record_units
            payloads = drawn_from(records.column(PAYLOAD_WORD).to_numpy(), [units, *carried.values()])
            labels = [class_indices(records, attribute.name, attribute.classes) for attribute in self._attributes]
            columns: dict[str, np.ndarray] = {"words": words, "features": features, "donors": donors, "persons": persons}
            columns |= {"units": units, "labels": np.array(labels, dtype=np.int64).reshape(len(labels), len(ids)).T}
            columns["records"] = hashes
            columns |= {CARRIED + attribute: classes for attribute, classes in carried.items()}
            sample = _first_of(partition.sampled, sample, columns)
            parts.append((donors, words, hashes, payloads, records.select(self.source.passed_columns)))
        if not parts:  # an empty day, or all records were erased
            return np.zeros(0, dtype=np.int64), np.zeros((0, 2), dtype=np.uint64), None, {}
        donors, words, hashes, payloads = (np.concatenate([part[k] for part in parts]) for k in range(4))
        if repeated := len(hashes) - len(np.unique(hashes)):
            raise DataError(f"{name}: expected every record id once, found {repeated} repeated; remove them from the lake")
        order = self._keyed.version_order(words, payloads, job.pins.draw)
        passed = pa.concat_tables([part[4] for part in parts]).take(pa.array(order)) if self.source.passed_columns else None
        return donors[order], ledger_pairs(job.ledger_key, job.run.dataset, hashes, payloads), passed, sample

    def _blocks(self, partition: SourcePartition, quarantine: Quarantine) -> Iterator[tuple[pa.Table, FloatArray]]:
        """Records without payloads, and their features, whole blocks at a time, so that only the last block is padded."""
        waiting: list[tuple[pa.Table, FloatArray]] = []
        for records in self.source.batches(partition, quarantine):
            if not len(records.payloads):
                continue
            features = checked_features(self._extractor, records.payloads, THREADS, partition.name)
            digests = pa.array(payload_words(records.payloads))
            waiting.append((records.columns.append_column(PAYLOAD_WORD, digests), features))
            rows = sum(len(part) for _, part in waiting)
            if rows >= BLOCK_ROWS:
                (joined, features), whole = _joined(waiting), rows - rows % BLOCK_ROWS
                yield joined[:whole], features[:whole]
                waiting = [(joined[whole:], features[whole:])] if whole < rows else []
        if waiting:
            yield _joined(waiting)

    def _persons(self, records: pa.Table) -> list[str]:
        if not self.job.lake.person:
            raise DataError("pool.forbid: same_person expects the lake's column `person`, found none; declare it in params.yaml")
        return list(records.column(self.job.lake.person).to_pylist())

    def _write(self, folder: Path, donors: IntArray, passed: pa.Table | None, partition: str) -> list[Path]:
        """Writes the released rows of a partition and the files that they point to."""
        (folder / partition).mkdir(parents=True, exist_ok=True)
        rows, release = range(len(donors)), self.release
        parts = [f"{partition}/{k}" for k in range(max(1, math.ceil(len(rows) / FILE_ROWS)))]  # without rows: the columns alone
        paths = [folder / partition / name for name in self._keyed.file_names(parts)]

        def released(group: range) -> pa.Table:
            beside = None if passed is None else passed.slice(group.start, len(group))
            return release.rows(donors[group.start : group.stop], beside, partition)

        written = functools.partial(crash_point, "partition half written")
        for number, path in enumerate(paths):
            own = rows[number * FILE_ROWS : (number + 1) * FILE_ROWS]
            write_rows(path, release.schema, own, released, at_once=release.rows_at_once, written=written)
        return paths + release.write_payloads(folder, np.unique(donors), partition)


def _joined(parts: list[tuple[pa.Table, FloatArray]]) -> tuple[pa.Table, FloatArray]:
    return pa.concat_tables([table for table, _ in parts]), np.concatenate([features for _, features in parts])


def _first_of(wanted: int, sample: dict[str, np.ndarray], columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Keeps the records that come first in the order of the words: a random sample that is the same in every run."""
    first = np.argsort(columns["words"], kind="stable")[:wanted]  # before anything is copied
    columns = {name: values[first] for name, values in columns.items()}
    joined = {name: np.concatenate([sample[name], new]) if sample else new for name, new in columns.items()}
    chosen = np.argsort(joined["words"], kind="stable")[:wanted]
    return {name: values[chosen] for name, values in joined.items()}
