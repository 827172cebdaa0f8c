"""Reads a lake's records: payloads (vectors, encoded files, paths to them, or columns of numbers), and the other columns."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from pass_core.data import FloatArray
from pass_core.errors import DataError, SchemaMismatch
from tasks.lakes.open import Batch, OpenLake, plain, text_column, value_type
from tasks.payloads.encoded import check_encoded
from tasks.payloads.payload import MAX_FILE_BYTES, Payload, Payloads
from tasks.payloads.quarantine import Quarantine

_TEXT, _BINARY = (pa.string(), pa.large_string()), (pa.binary(), pa.large_binary())


@dataclass(frozen=True, slots=True)
class LakeRecords:
    """Some records of one file, without those whose payload cannot be used."""

    payloads: Payloads
    columns: pa.Table  # the other columns under the lake's own names
    place: str  # the file, for messages

    def texts(self, name: str) -> list[str]:
        return list(self.columns.column(name).to_pylist())


@dataclass(frozen=True, slots=True)
class RecordReader:
    """Reads payloads, some columns as text (ids, persons, classes), and other columns as they are."""

    lake: OpenLake
    payload: Payload
    texts: tuple[str, ...]
    passed: tuple[str, ...] = ()
    read_file: Callable[[str, int], bytes] | None = None  # reads what a column of paths names; default: the lake does
    parts_of: Callable[[Batch], Iterable[Batch]] | None = None  # the rows of a batch that are read; default: all

    def batches(self, fragments: Iterable[ds.Fragment], quarantine: Quarantine) -> Iterator[LakeRecords]:
        """The records of these files, one file after the other."""
        names = (*self.lake.columns.payload, *self.texts, *self.passed)
        for batch in self.lake.batches(fragments, names, self.payload):
            for part in self.parts_of(batch) if self.parts_of else (batch,):
                yield self.read(part, quarantine)

    def read(self, batch: Batch, quarantine: Quarantine) -> LakeRecords:
        """The records of a batch; a payload that cannot be used goes to `quarantine`."""
        payloads, kept = (self._vectors if self.payload.kind == "vector" else self._encoded)(batch, quarantine)
        found = batch.columns
        columns = {name: text_column(found.column(name), name, batch.place) for name in dict.fromkeys(self.texts)}
        columns |= {name: plain(found.column(name)) for name in self.passed}
        table = pa.table(columns)
        return LakeRecords(payloads, table if len(kept) == len(found) else table.take(pa.array(kept, pa.int64())), batch.place)

    def _encoded(self, batch: Batch, quarantine: Quarantine) -> tuple[list[bytes], list[int]]:
        """The encoded files that can be used, and the positions of their records."""
        encoded, kept = [], []
        for position, value in enumerate(batch.columns.column(self.lake.columns.payload[0]).to_pylist()):
            try:
                data = self._bytes(value)
                check_encoded(self.payload.kind, data)
            except DataError as error:
                quarantine.add(f"{batch.place}, row {batch.row + position}", f"payload {error}")
            else:
                encoded.append(data)
                kept.append(position)
        return encoded, kept

    def _vectors(self, batch: Batch, quarantine: Quarantine) -> tuple[FloatArray, list[int]]:
        """All vectors at once, without a Python object for each number."""
        parts = [plain(batch.columns.column(name)) for name in self.lake.columns.payload]
        length, fits = math.prod(self.payload.shape), np.ones(len(batch.columns), dtype=bool)
        if _is_list(parts[0].type):
            fits = pc.equal(pc.list_value_length(parts[0]), length).fill_null(False).to_numpy(zero_copy_only=False)
            parts = [(parts[0] if fits.all() else parts[0].filter(pa.array(fits))).flatten()]
        present = np.stack([part.is_valid().to_numpy(zero_copy_only=False) for part in parts], axis=1)
        numbers = np.stack([part.to_numpy(zero_copy_only=False) for part in parts], axis=1)
        fits[fits] = present.reshape(-1, length).all(axis=1)
        made = numbers.astype(np.float32, copy=False).reshape(-1, length)
        for position in np.flatnonzero(~fits).tolist():
            quarantine.add(f"{batch.place}, row {batch.row + position}", f"expected a payload of {length} numbers")
        if len(made) > fits.sum():
            made = made[present.reshape(-1, length).all(axis=1)]
        return made.reshape(-1, *self.payload.shape), np.flatnonzero(fits).tolist()

    def _bytes(self, value: Any) -> bytes:
        """A payload's bytes, read from below the source where the column holds paths."""
        if value is None:
            raise DataError("is missing")
        if self.lake.columns.payload_is_path:
            path = PurePosixPath(value)
            if path.is_absolute() or ".." in path.parts:
                raise DataError("has a path outside the source")
            value = (self.read_file or self.lake.read_file)(str(path), MAX_FILE_BYTES + 1)
        if len(value) > MAX_FILE_BYTES:
            raise DataError(f"is larger than {MAX_FILE_BYTES // 2**20} MB")
        return bytes(value)


def payload_of(lake: OpenLake) -> Payload:
    """What the payload column holds; vectors are as long as the first one, unless the columns declare a shape."""
    config, source = lake.columns, lake.source
    kinds = [value_type(lake.table.schema.field(name).type) for name in config.payload]
    if config.payload_kind != "vector":
        expected, types = ("text", _TEXT) if config.payload_is_path else ("binary", _BINARY)
        if kinds[0] not in types:
            advice = "correct payload, payload_kind or payload_is_path"
            raise SchemaMismatch(f"{source}: column {config.payload[0]!r}: expected {expected}, found {kinds[0]}; {advice}")
        return Payload(config.payload_kind)
    declared = math.prod(config.payload_shape) if config.payload_shape else 0
    if all(pa.types.is_floating(kind) or pa.types.is_integer(kind) for kind in kinds):
        length = len(config.payload)
    elif len(kinds) == 1 and _is_list(kinds[0]) and pa.types.is_floating(kinds[0].value_type):
        length = declared or _first_length(lake, config.payload[0])
    else:
        expected = f"expected numbers or a list of floats per record, found {', '.join(map(str, kinds))}"
        raise SchemaMismatch(f"{source}: payload {', '.join(config.payload)}: {expected}; choose other columns")
    if declared not in (0, length):
        raise SchemaMismatch(f"{source}: payload: expected {declared} numbers per record, found {length}; correct the shape")
    return Payload("vector", config.payload_shape or (length,), config.payload_low, config.payload_high)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _first_length(lake: OpenLake, column: str) -> int:
    """The length of the first vector, from the first file that has rows: damage in others is found when they are read."""
    kind = value_type(lake.table.schema.field(column).type)
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size)
    parts = (fragment.scanner(schema=lake.table.schema, columns=[column]).head(1).column(0) for fragment in lake.fragments())
    first = next((part.to_pylist() for part in parts if len(part)), None)
    if not first or not first[0]:
        raise DataError(f"{lake.source}: expected numbers in the first payload, found none; fill it, or declare payload_shape")
    return len(first[0])
