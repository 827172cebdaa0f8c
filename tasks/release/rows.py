"""Released rows: donors' payloads and classes, and the original's passed columns; written, read back and compared."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pass_core.data import IntArray
from pass_core.errors import ValidationFailed
from tasks.payloads.payload import Payload, payload_bytes
from tasks.release.draw import KeyedRelease
from tasks.storage.files import sync_file
from tasks.storage.parquet import PAYLOAD, RECORD_ID, array_of, open_writer

ROWS_AT_ONCE, BYTES_AT_ONCE = 8192, 32 * 2**20
PAYLOADS = "_payloads"  # folder of files that a column of paths points to; readers of the table skip names with _
SUFFIXES = {b"RIFF": ".wav", b"fLaC": ".flac", b"\x89PNG": ".png"}


class ReleasedRows:
    """Turns donors' positions in the pool into released rows."""

    def __init__(
        self,
        keyed: KeyedRelease,
        pool: pa.Table,
        payload: Payload,
        schema: pa.Schema,
        *,
        columns: tuple[str, ...] = (PAYLOAD,),
        release: tuple[str, ...],
        paths: bool = False,
    ) -> None:
        """Prepares the pool for a release.

        Args:
            schema: all released columns; those that are neither payload nor `release` are passed columns of the originals.
            columns: those of the payload.
            release: attributes of the donors.
            paths: the payload column holds paths, and payloads become files.
        """
        self.schema, self._keyed, self._pool, self._columns, self._paths = schema, keyed, pool, columns, paths
        self._types = {field.name: field.type for field in schema}
        self._classes = {name: pool.column(name).combine_chunks().cast(self._types[name]) for name in release}
        self._values: np.ndarray | None = None
        if payload.kind == "vector":
            self._values = array_of(pool, PAYLOAD, payload.shape).reshape(len(pool), -1)
            largest = self._values[0].nbytes
        else:
            largest = max(map(len, payload_bytes(pool.column(PAYLOAD))))
            self._encoded: pa.Array = None if paths else pool.column(PAYLOAD).combine_chunks().cast(self._types[columns[0]])
        self.rows_at_once = max(1, min(ROWS_AT_ONCE, BYTES_AT_ONCE // max(1, largest)))

    def rows(self, donors: IntArray, passed: pa.Table | None, partition: str) -> pa.Table:
        """Released rows for donors, with the passed columns of the originals, which are in the same order."""
        chosen = pa.array(donors)
        made = self._payload(donors, chosen, partition)
        made |= {name: column.take(chosen) for name, column in self._classes.items()}
        made |= {} if passed is None else {name: passed.column(name) for name in passed.column_names}
        return pa.table(made, schema=self.schema)

    def write_payloads(self, folder: Path, donors: IntArray, partition: str) -> list[Path]:
        """Writes the files of these donors where the payload column holds paths."""
        if not self._paths:
            return []
        written = []
        for donor, name in zip(donors.tolist(), self._payload_paths(donors, partition), strict=True):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self._pool.column(PAYLOAD)[donor].as_py())
            written.append(path)
        return written

    def _payload(self, donors: IntArray, chosen: pa.Array, partition: str) -> dict[str, pa.Array]:
        first, kind = self._columns[0], self._types[self._columns[0]]
        if self._paths:
            return {first: pa.array(self._payload_paths(donors, partition), kind)}
        if self._values is None:
            return {first: self._encoded.take(chosen)}
        values = self._values[donors]
        if len(self._columns) > 1 or not pa.types.is_nested(kind):
            return {name: _cast(pa.array(values[:, k]), self._types[name]) for k, name in enumerate(self._columns)}
        return {first: _lists(values, kind)}

    def _payload_paths(self, donors: IntArray, partition: str) -> list[str]:
        """The path of every donor's file, by a word that differs from partition to partition."""
        ids = [self._pool.column(RECORD_ID)[donor].as_py() for donor in donors.tolist()]
        words = self._keyed.payload_words(partition, ids)
        folder = f"{PAYLOADS}/{partition}" if partition != "." else PAYLOADS
        starts = [self._pool.column(PAYLOAD)[donor].as_py()[:4] for donor in donors.tolist()]
        return [f"{folder}/{word:016x}{SUFFIXES.get(start, '.jpg')}" for word, start in zip(words.tolist(), starts, strict=True)]


def write_rows(
    path: Path,
    schema: pa.Schema,
    rows: range,
    released: Callable[[range], pa.Table],
    *,
    at_once: int = ROWS_AT_ONCE,
    dictionaries: bool = False,
    written: Callable[[], None] = lambda: None,
) -> None:
    """Writes released rows, reads them back and compares them; calls `written` after every row group.

    Args:
        rows: of the release that become this file.
        released: makes these rows, the same ones whenever it is called.
    """
    groups = [rows[start : start + at_once] for start in range(0, len(rows), at_once)]
    with open_writer(path, schema, dictionaries=dictionaries) as writer:
        for group in groups:
            writer.write_table(released(group), row_group_size=len(group))
            written()
    file = pq.ParquetFile(path, page_checksum_verification=True)
    if file.schema_arrow != schema or file.metadata.num_rows != len(rows):
        raise ValidationFailed(f"{path.name}: columns or rows differ from those to be written; check the disk and run again")
    for number, group in enumerate(groups):
        if not file.read_row_group(number, use_threads=False).equals(released(group)):
            raise ValidationFailed(f"{path.name}: a released row is not its donor's; check the disk and run again")


def finish_file(path: Path) -> None:
    """Makes a released file durable, with times that say nothing."""
    sync_file(path)
    os.utime(path, (0, 0))


def _lists(values: np.ndarray, kind: pa.DataType) -> pa.Array:
    """Rows as a column of vectors of the source's own type."""
    flat = _cast(pa.array(values.ravel()), kind.value_type)
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(flat, type=kind)
    large = pa.types.is_large_list(kind)
    offsets = pa.array(np.arange(len(values) + 1) * values.shape[1], pa.int64() if large else pa.int32())
    return (pa.LargeListArray if large else pa.ListArray).from_arrays(offsets, flat, type=kind)


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Numbers in the column's own type; whole numbers were whole before they were float32."""
    return values if values.type == kind else values.cast(kind, safe=False)
