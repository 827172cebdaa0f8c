"""Released rows: donors' payloads and classes, and the original's passed columns; written, read back and compared."""

import math
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pass_core.data import IntArray
from pass_core.errors import ValidationFailed
from tasks.payloads.payload import Payload, payload_bytes, vectors
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
        paths: bool = False,
    ) -> None:
        """Prepares the donors: payload `columns` (with `paths`, of files) and attributes of `schema`; the rest is passed on."""
        self.schema, self._keyed, self._pool, self._path = schema, keyed, pool, columns[0] if paths else None
        made = {} if paths else _payload_columns(pool, payload, schema, columns)
        attributes = [name for name in schema.names if name in pool.column_names and name not in columns]
        made |= {name: pool.column(name).combine_chunks().cast(schema.field(name).type) for name in attributes}
        self._donors = pa.table(made)
        vector = payload.kind == "vector"
        largest = 4 * math.prod(payload.shape) if vector else max(map(len, payload_bytes(pool.column(PAYLOAD))))
        self.rows_at_once = max(1, min(ROWS_AT_ONCE, BYTES_AT_ONCE // max(1, largest)))

    def rows(self, donors: IntArray, passed: pa.Table | None, partition: str) -> pa.Table:
        """Released rows for donors, with the passed columns of the originals, which are in the same order."""
        made = self._donors.take(pa.array(donors)) if self._donors.num_columns else self._donors
        columns = {name: table.column(name) for table in (made, passed) if table is not None for name in table.column_names}
        if self._path:
            columns[self._path] = pa.array(self._payload_paths(donors, partition), self.schema.field(self._path).type)
        return pa.table(columns, schema=self.schema)

    def write_payloads(self, folder: Path, donors: IntArray, partition: str) -> list[Path]:
        """Writes the files of these donors where the payload column holds paths."""
        paths = [folder / name for name in self._payload_paths(donors, partition)] if self._path else []
        for donor, path in zip(donors.tolist(), paths, strict=False):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self._pool.column(PAYLOAD)[donor].as_py())
            _finish_file(path)
        return paths

    def _payload_paths(self, donors: IntArray, partition: str) -> list[str]:
        """The path of every donor's file, by a word that differs from partition to partition."""
        chosen = self._pool.select([RECORD_ID, PAYLOAD]).take(pa.array(donors))
        words = self._keyed.payload_words(partition, chosen.column(RECORD_ID).to_pylist()).tolist()
        suffixes = [SUFFIXES.get(data.as_py()[:4], ".jpg") for data in chosen.column(PAYLOAD)]
        folder = f"{PAYLOADS}/{partition}" if partition != "." else PAYLOADS
        return [f"{folder}/{word:016x}{suffix}" for word, suffix in zip(words, suffixes, strict=True)]


def _payload_columns(pool: pa.Table, payload: Payload, schema: pa.Schema, columns: tuple[str, ...]) -> dict[str, pa.Array]:
    """The donors' payloads in the released columns and types; whole numbers were whole before they were float32."""
    types = [schema.field(name).type for name in columns]
    if payload.kind != "vector":
        return {columns[0]: pool.column(PAYLOAD).combine_chunks().cast(types[0])}
    values = array_of(pool, PAYLOAD, payload.shape).reshape(len(pool), -1)
    if len(columns) > 1 or not pa.types.is_nested(types[0]):
        parts = zip(columns, types, values.T, strict=True)
        return {name: pa.array(np.ascontiguousarray(part)).cast(kind, safe=False) for name, kind, part in parts}
    return {columns[0]: vectors(values).cast(types[0], safe=False)}


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
    """Writes a file of released rows, reads it back and compares it; then makes it durable, with times that say nothing.

    `released` makes the rows of a range, the same ones whenever it is called; `written` is called after every row group.
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
    _finish_file(path)


def _finish_file(path: Path) -> None:
    sync_file(path)
    os.utime(path, (0, 0))
