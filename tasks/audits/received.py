"""What a recipient receives beside the meaning of payloads, as numbers per released row.

Row order, keys, published columns, the form of text, the lowest bits of stored numbers, files and row groups. Nothing here looks
at private classes: an attacker of the audit does. Names of numbers are "group: what"; the report says which group holds a secret.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pass_core.auditing.subject import Part, Received
from pass_core.data import DoubleArray, FloatArray, IntArray
from tasks.audits.received_columns import MODULI, key_numbers, text_numbers, value_numbers, value_ranks
from tasks.audits.received_numbers import Numbers, Payloads
from tasks.lakes.open import OpenLake, plain
from tasks.lakes.records import payload_of

MOST_COLUMNS = 64  # of a payload whose bits are read one by one; of all columns the parity is read
NEIGHBOURS = 4  # numbers of a payload that are compared with the rows before and after
AXES = ("row order: position", "keys: rank")


@dataclass(frozen=True, slots=True)
class ReceivedRows:
    """Numbers of every row of a released table, in the order of the table."""

    names: tuple[str, ...]
    values: DoubleArray  # (rows, f)

    def of(self, rows: IntArray) -> "ReceivedRows":
        """The numbers of these rows."""
        return ReceivedRows(self.names, self.values[rows])

    @classmethod
    def beside(cls, releases: Sequence["ReceivedRows"]) -> "ReceivedRows":
        """The numbers of several releases of the same records side by side."""
        further = [name if k == 0 else f"{name}, release {k + 1}" for k, one in enumerate(releases) for name in one.names]
        return cls(tuple(further), np.concatenate([one.values for one in releases], axis=1))


def received_table(lake: OpenLake, key: str | None, published: Sequence[str], most_columns: int = MOST_COLUMNS) -> ReceivedRows:
    """Of a released table of any format."""
    fragments, names = lake.fragments(), (*lake.columns.payload, *published, *([key] if key else []))
    with lake.reading():
        if lake.columns.format == "csv":
            parts = [[fragment.count_rows()] for fragment in fragments]
        else:
            parts = [[group.num_rows for group in fragment.row_groups] for fragment in fragments]
    batches = (batch.columns for batch in lake.batches(fragments, names, payload_of(lake)))
    return received_rows(batches, parts, payload=lake.columns.payload, key=key, most_columns=most_columns)


def received_partitions(tables: Sequence[pa.Table], paths: Sequence[Sequence[Path]], payload: str) -> list[ReceivedRows]:
    """Of partitions, each read from these Parquet files; all columns are published. Each has an order of its own."""
    parts = [[_group_sizes(path) for path in of] for of in paths]
    batches = [table.to_batches() for table in tables]
    whole = received_rows(itertools.chain(*batches), list(itertools.chain(*parts)), payload=(payload,), key=None)
    found, start = [], 0
    for own, sizes in zip(batches, parts, strict=True):
        apart = received_rows(own, sizes, payload=(payload,), key=None)
        values = whole.values[start : start + len(apart.values)].copy()
        for name in apart.names:
            if name.split(":")[0] in ("row order", "files") and name in whole.names:
                values[:, whole.names.index(name)] = apart.values[:, apart.names.index(name)]
        found.append(ReceivedRows(whole.names, values))
        start += len(values)
    return found


def _group_sizes(path: Path) -> list[int]:
    file = pq.read_metadata(path)
    return [file.row_group(k).num_rows for k in range(file.num_row_groups)]


def make_received(
    train: ReceivedRows, test: ReceivedRows, payloads: tuple[FloatArray, FloatArray], *, together: bool
) -> Received:
    """Of training and test records; `together`: both are rows of one table. Numbers that never vary are left out."""
    kept = np.flatnonzero((train.values != train.values[:1]).any(axis=0))
    names = tuple(train.names[k] for k in kept)
    axes = tuple(name for name in AXES if name in names) if together else ()
    return Received(names=names, train=train.values[:, kept], test=test.values[:, kept], payloads=payloads, axes=axes)


def left_out(whole: Part, test: NDArray[np.bool_], there: NDArray[np.bool_]) -> dict[str, Any]:
    """Fields of `Received` for records that a release leaves out; none where it has all."""
    if there.all():
        return {}
    rows, missing = (np.flatnonzero(~test), np.flatnonzero(test)), (~there).astype(np.int64)
    return {"everyone": (whole.subset(rows[0]), whole.subset(rows[1])), "left_out": (missing[rows[0]], missing[rows[1]])}


def received_rows(
    batches: Iterable[pa.RecordBatch],
    parts: Sequence[Sequence[int]],
    *,
    payload: Sequence[str],
    key: str | None,
    most_columns: int = MOST_COLUMNS,
) -> ReceivedRows:
    """Of batches of rows; `parts` are the numbers of rows of every row group of every file."""
    digests, others = [], []
    for batch in batches:
        columns = {name: plain(batch.column(name)) for name in batch.schema.names}
        digests.append(Payloads.of([columns.pop(name) for name in payload], len(batch), most_columns))
        others.append(pa.table(columns) if columns else None)
    tables = [table for table in others if table is not None]
    whole = pa.concat_tables(tables).combine_chunks() if tables else pa.table({})
    payloads = Payloads.joined(digests)
    keys = whole.column(key).combine_chunks() if key else None
    published = {name: whole.column(name).combine_chunks() for name in whole.column_names if name != key}
    groups = {
        "row order": [_order(payloads, keys)],
        "files": [_files(parts)],
        "low bits": [payloads.low_bits()],
        "payload": [payloads.form()],
        "keys": [] if keys is None else [key_numbers(keys), text_numbers(keys, "key"), value_numbers(keys, "key")],
        "columns": [value_numbers(column, name) for name, column in published.items()],
        "text": [text_numbers(column, name) for name, column in published.items()],
    }
    made = {f"{group}: {name}": row for group, found in groups.items() for part in found for name, row in part}
    return ReceivedRows(tuple(made), np.stack([np.asarray(row, dtype=np.float64) for row in made.values()], axis=1))


def _order(payloads: Payloads, keys: pa.Array | None) -> Numbers:
    """Position, its remainders, and whether neighbouring rows are larger."""
    position = np.arange(len(payloads.digest))
    yield "position", position / max(len(position) - 1, 1)  # of partitions of different lengths alike
    yield "number of the row", position
    for modulus in MODULI:
        yield f"position modulo {modulus}", position % modulus
    compared: dict[str, NDArray[np.generic]] = {
        f"number {k + 1} of the payload": payloads.values[:, k] for k in range(min(NEIGHBOURS, payloads.values.shape[1]))
    }
    compared["size or sum of the payload"] = payloads.values.sum(axis=1) + payloads.sizes
    if keys is not None:
        compared["key"] = value_ranks(keys, "key")
    for name, values in compared.items():
        yield f"{name} above that of the row before", values > np.roll(values, 1)
        yield f"{name} above that of the row after", values > np.roll(values, -1)
    for which, step in (("before", 1), ("after", -1)):
        yield f"same payload as the row {which}", payloads.digest == np.roll(payloads.digest, step)


def _files(parts: Sequence[Sequence[int]]) -> Numbers:
    """Which file and row group a row is in, how long they are, and where it is in them."""
    for name, sizes in (("file", [sum(groups) for groups in parts]), ("row group", [size for part in parts for size in part])):
        if len(sizes) < 2 or (name == "row group" and len(sizes) == len(parts)):
            continue  # the same as row order, or as files
        lengths: IntArray = np.array(sizes, dtype=np.int64)
        starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
        inside, length = np.arange(int(lengths.sum())) - starts, np.repeat(lengths, lengths)
        yield f"number of the {name}", np.repeat(np.arange(len(lengths)), lengths)
        yield f"rows of the {name}", length
        yield f"place in the {name}", inside / np.maximum(length - 1, 1)
        yield f"place in the {name} modulo 2", inside % 2
