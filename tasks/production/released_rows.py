"""What leaves: donors' payloads in the source's own columns and types, donors' classes, and the original's allowed columns."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from pass_core.channel.draws import keyed_words
from pass_core.data import IntArray
from pass_core.errors import SchemaMismatch
from tasks.payloads.payload import payload_bytes
from tasks.production.interfaces import Job
from tasks.production.source import LakeSource
from tasks.release.protector import Protector
from tasks.sections.lake import LakeConfig
from tasks.storage.parquet import PAYLOAD, RECORD_ID, array_of

ROWS_AT_ONCE, BYTES_AT_ONCE = 8192, 32 * 2**20
PAYLOADS = "_payloads"  # folder of files that a column of paths points to; readers of the table overlook names with _
SUFFIXES = {b"RIFF": ".wav", b"fLaC": ".flac", b"\x89PNG": ".png"}


class Release:
    """Turns donors' numbers into released rows."""

    def __init__(self, job: Job, source: LakeSource, protector: Protector) -> None:
        self._config, self._pool = job.lake, protector.pool
        self._key, self._scope = job.key, (job.dataset, job.pins.model)
        if (source.payload.kind, source.payload.shape) != (protector.info.payload.kind, protector.info.payload.shape):
            raise SchemaMismatch(f"{job.lake.source}: payload: expected what the pool holds: another kind or length; check both")
        self.schema = leaving_schema(job.lake, job.release, source, job.plain_lists)
        self._types = {field.name: field.type for field in self.schema}
        self._passed = source.passed_columns
        self._values: np.ndarray | None = None
        if source.payload.kind == "vector":
            self._values = array_of(self._pool, PAYLOAD, source.payload.shape).reshape(len(self._pool), -1)
            largest = self._values[0].nbytes
        else:
            largest = max(map(len, payload_bytes(self._pool.column(PAYLOAD))))
        self.bytes_per_row = largest
        self.rows_at_once = max(1, min(ROWS_AT_ONCE, BYTES_AT_ONCE // max(1, largest)))
        classes = {name: self._pool.column(name).combine_chunks() for name in job.release}
        self._classes = {name: column.cast(self._types[name]) for name, column in classes.items()}
        if not self._config.payload_is_path and self._values is None:
            self._encoded = self._pool.column(PAYLOAD).combine_chunks().cast(self._types[self._config.payload[0]])

    def rows(self, donors: IntArray, passed: pa.Table | None, partition: str) -> pa.Table:
        """Released rows for donors, with the allowed columns of the originals, which are in the same order."""
        chosen = pa.array(donors)
        columns = self._payload(donors, chosen, partition)
        columns |= {name: column.take(chosen) for name, column in self._classes.items()}
        columns |= {} if passed is None else {name: passed.column(name) for name in self._passed}
        return pa.table(columns, schema=self.schema)

    def write_files(self, folder: Path, donors: IntArray, partition: str) -> list[Path]:
        """Where the payload column holds paths: the files of these donors, under names that tell nothing."""
        if not self._config.payload_is_path:
            return []
        written = []
        for donor, name in zip(donors.tolist(), self._paths(donors, partition), strict=True):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self._pool.column(PAYLOAD)[donor].as_py())
            written.append(path)
        return written

    def _payload(self, donors: IntArray, chosen: pa.Array, partition: str) -> dict[str, pa.Array]:
        names = self._config.payload
        if self._config.payload_is_path:
            return {names[0]: pa.array(self._paths(donors, partition), self._types[names[0]])}
        if self._values is None:
            return {names[0]: self._encoded.take(chosen)}
        values = self._values[donors]
        if len(names) > 1 or not pa.types.is_nested(self._types[names[0]]):
            return {name: _cast(pa.array(values[:, k]), self._types[name]) for k, name in enumerate(names)}
        return {names[0]: _lists(values, self._types[names[0]])}

    def _paths(self, donors: IntArray, partition: str) -> list[str]:
        """A name per donor and partition, which only the key's holder can tell the donor from."""
        ids = [self._pool.column(RECORD_ID)[donor].as_py() for donor in donors.tolist()]
        words = keyed_words(self._key, "payload file", (*self._scope, partition), ids)
        folder = f"{PAYLOADS}/{partition}" if partition != "." else PAYLOADS
        return [f"{folder}/{word:016x}{self._suffix(donor)}" for word, donor in zip(words.tolist(), donors.tolist(), strict=True)]

    def _suffix(self, donor: int) -> str:
        return SUFFIXES.get(self._pool.column(PAYLOAD)[donor].as_py()[:4], ".jpg")


def leaving_schema(lake: LakeConfig, release: tuple[str, ...], source: LakeSource, plain_lists: bool) -> pa.Schema:
    """The columns that leave, in order, in the source's types and without metadata; what nobody named is not among them."""
    names = (*lake.payload, *release, *source.passed_columns)
    found = source.types(names)
    if plain_lists:
        fixed = {name: kind for name, kind in found.items() if pa.types.is_fixed_size_list(kind)}
        found |= {name: pa.list_(pa.field("element", kind.value_type)) for name, kind in fixed.items()}
    return pa.schema([pa.field(name, found.get(name, pa.string())) for name in names])


def _lists(values: np.ndarray, kind: pa.DataType) -> pa.Array:
    """Rows as a column of vectors of the source's own type."""
    flat = _cast(pa.array(values.ravel()), kind.value_type)
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(flat, type=kind)
    offsets = np.arange(len(values) + 1) * values.shape[1]
    made = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    width = pa.int64() if pa.types.is_large_list(kind) else pa.int32()
    return made.from_arrays(pa.array(offsets, width), flat, type=kind)


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Numbers in the column's own type; whole numbers were whole before they were float32."""
    return values if values.type == kind else values.cast(kind, safe=False)
