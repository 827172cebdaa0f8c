"""What a recipient receives beside the meaning of payloads, as numbers per released row.

Row order, keys, published columns, the form of text, the lowest bits of stored numbers, files and row groups. Nothing here looks
at private classes: an attacker of the audit does. Names of numbers are "group: what"; the report says which group holds a secret.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pass_core.auditing.subject import Part, Received
from pass_core.data import DoubleArray, FloatArray, IntArray
from tasks.lakes.open import OpenLake, plain
from tasks.lakes.records import payload_of

Bits = NDArray[np.uint64]
Numbers = Iterator[tuple[str, NDArray[np.generic]]]  # names without the group, each with a number per row

MOST_COLUMNS = 64  # of a payload whose bits are read one by one; of all columns the parity is read
LOW_BITS = 4
MODULI = range(2, 9)
ENDS = 8  # characters at each end of a key that are read one by one
MOST_DECIMALS = 6
NEIGHBOURS = 4  # numbers of a payload that are compared with the rows before and after
AXES = ("row order: position", "keys: rank")
COUNTED = {
    "upper-case letters": r"\p{Lu}", "lower-case letters": r"\p{Ll}", "digits": r"\p{Nd}",
    "spaces": r"[\s\p{Z}]", "double spaces": r"\s\s", "punctuation marks": r"[^\p{L}\p{M}\p{N}\p{Z}\p{C}]",
    "marks and invisible characters": r"[\p{M}\p{Cf}\p{Cc}]", "characters outside ASCII": r"[^\x00-\x7F]",
}  # fmt: skip
_MIXING = np.uint64(0x9E3779B97F4A7C15)


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
        digests.append(_Payloads.of([columns.pop(name) for name in payload], len(batch), most_columns))
        others.append(pa.table(columns) if columns else None)
    tables = [table for table in others if table is not None]
    whole = pa.concat_tables(tables).combine_chunks() if tables else pa.table({})
    payloads = _Payloads.joined(digests)
    keys = whole.column(key).combine_chunks() if key else None
    published = {name: whole.column(name).combine_chunks() for name in whole.column_names if name != key}
    groups = {
        "row order": [_order(payloads, keys)],
        "files": [_files(parts)],
        "low bits": [payloads.low_bits()],
        "payload": [payloads.form()],
        "keys": [] if keys is None else [_keys(keys), _text(keys, "key"), _values(keys, "key")],
        "columns": [_values(column, name) for name, column in published.items()],
        "text": [_text(column, name) for name, column in published.items()],
    }
    made = {f"{group}: {name}": row for group, found in groups.items() for part in found for name, row in part}
    return ReceivedRows(tuple(made), np.stack([np.asarray(row, dtype=np.float64) for row in made.values()], axis=1))


@dataclass(frozen=True, slots=True)
class _Payloads:
    """Payloads as they are stored: of some numbers all bits, of the others what they add to parity and digest."""

    bits: Bits  # (rows, columns)
    values: DoubleArray  # (rows, columns) the same numbers
    parity: Bits  # (rows,) exclusive or over all numbers of a payload
    digest: Bits  # (rows,)
    sizes: IntArray  # (rows,) bytes or numbers of a payload
    negative_zeros: IntArray  # (rows,)

    @classmethod
    def of(cls, columns: list[pa.Array], rows: int, most: int) -> "_Payloads":
        kind = columns[0].type
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return cls._encoded([value or b"" for value in columns[0].to_pylist()])
        if pa.types.is_nested(kind):
            columns = [columns[0].flatten()]
        numbers = [_stored(column) for column in columns]
        bits = np.stack([_bits(one) for one in numbers], axis=1).reshape(rows, -1)
        values = np.stack([one.astype(np.float64) for one in numbers], axis=1).reshape(rows, -1)
        step = np.unique(np.linspace(0, bits.shape[1] - 1, min(most, bits.shape[1])).astype(np.int64))
        weights = (np.arange(bits.shape[1], dtype=np.uint64) * np.uint64(2) + np.uint64(1)) * _MIXING
        zeros = ((values == 0) & np.signbit(values)).sum(axis=1)
        parity = np.bitwise_xor.reduce(bits, axis=1)
        return cls(bits[:, step], values[:, step], parity, bits @ weights, np.full(rows, bits.shape[1]), zeros)

    @classmethod
    def _encoded(cls, files: list[bytes]) -> "_Payloads":
        """Files: their length, and their last bytes as numbers."""
        ends = np.array([list(file[-4:].rjust(4, b"\0")) for file in files], dtype=np.uint64).reshape(-1, 4)
        parity = np.array([np.bitwise_xor.reduce(np.frombuffer(b"\0" + file, np.uint8)) for file in files], dtype=np.uint64)
        digest = np.array([hash(file) & 0xFFFFFFFFFFFF for file in files], dtype=np.uint64)
        sizes = np.array([len(file) for file in files], dtype=np.int64)
        return cls(ends, ends.astype(np.float64), parity, digest, sizes, np.zeros_like(sizes))

    @classmethod
    def joined(cls, parts: list["_Payloads"]) -> "_Payloads":
        names = ("bits", "values", "parity", "digest", "sizes", "negative_zeros")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def low_bits(self) -> Numbers:
        for number, column in enumerate(self.bits.T):
            yield from _lowest(column, f"number {number + 1} of the payload")
        for number, column in enumerate(self.values.T):
            yield from _decimals(column, f"number {number + 1} of the payload")
        yield from _lowest(self.parity, "all numbers of the payload together")

    def form(self) -> Numbers:
        _, inverse, counts = np.unique(self.digest, return_inverse=True, return_counts=True)
        yield "length", self.sizes
        yield "rows with the same payload", counts[inverse]
        yield "negative zeros", self.negative_zeros


def _stored(column: pa.Array) -> NDArray[np.generic]:
    """Numbers in the type in which they are stored; times and booleans as whole numbers, a missing one as 0."""
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_temporal(kind):
        column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    return np.asarray((column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False))


def _bits(numbers: NDArray[np.generic]) -> Bits:
    if numbers.dtype.kind == "f":
        return numbers.view(f"u{numbers.itemsize}").astype(np.uint64)
    return numbers.astype(np.int64).view(np.uint64) if numbers.dtype.kind == "i" else numbers.astype(np.uint64)


def _lowest(bits: Bits, name: str) -> Numbers:
    """The lowest bits that vary: float32 numbers stored as float64 end in zeros."""
    varying = int(np.bitwise_or.reduce(bits ^ bits[:1], initial=0))
    first = (varying & -varying).bit_length() - 1
    for place in range(max(first, 0), min(first + LOW_BITS, varying.bit_length())):
        yield f"bit {place + 1} of {name}", (bits >> np.uint64(place)) & np.uint64(1)


def _decimals(values: DoubleArray, name: str) -> Numbers:
    """The last decimal digit of numbers that were rounded."""
    if not len(values) or not np.isfinite(values).all() or np.abs(values).max() > 1e9 or (values == np.rint(values)).all():
        return
    for places in range(1, MOST_DECIMALS + 1):
        scaled = values * 10**places
        if np.abs(scaled - np.rint(scaled)).max() < 1e-3:
            digit = np.abs(np.rint(scaled)) % 10
            yield f"last decimal digit of {name}", digit
            yield f"parity of the last decimal digit of {name}", digit % 2
            return


def _order(payloads: _Payloads, keys: pa.Array | None) -> Numbers:
    """Position, its remainders, and whether neighbouring rows are larger."""
    position = np.arange(len(payloads.digest))
    yield "position", position / max(len(position) - 1, 1)  # of partitions of different lengths alike
    for modulus in MODULI:
        yield f"position modulo {modulus}", position % modulus
    compared: dict[str, NDArray[np.generic]] = {
        f"number {k + 1} of the payload": payloads.values[:, k] for k in range(min(NEIGHBOURS, payloads.values.shape[1]))
    }
    compared["size or sum of the payload"] = payloads.values.sum(axis=1) + payloads.sizes
    if keys is not None:
        compared["key"] = _ranks(keys)
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


def _keys(keys: pa.Array) -> Numbers:
    """Rank, the number at the end of a key with its remainders, and single characters."""
    yield "rank", _ranks(keys)
    texts = keys.cast(pa.string())
    digits = pc.struct_field(pc.extract_regex(texts, r"(?P<digits>[0-9]{1,15})$"), "digits")
    numbers = np.nan_to_num(digits.cast(pa.float64()).to_numpy(zero_copy_only=False), nan=-1.0)
    yield "number at the end", numbers
    yield "last digit", numbers % 10
    for modulus in MODULI:
        yield f"number modulo {modulus}", numbers % modulus
    for place in range(ENDS):
        yield f"character {place + 1}", _ranks(pc.utf8_slice_codeunits(texts, place, place + 1))
        yield f"character {place + 1} from the end", _ranks(pc.utf8_slice_codeunits(pc.utf8_reverse(texts), place, place + 1))


def _values(column: pa.Array, name: str) -> Numbers:
    """The rank of a value, whether it is missing, and of numbers the lowest bits and decimals."""
    yield f"value of {name}", _ranks(column)
    yield f"{name} is missing", column.is_null().to_numpy(zero_copy_only=False)
    kind = column.type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        numbers = _stored(column)
        yield from _lowest(_bits(numbers), name)
        yield from _decimals(numbers.astype(np.float64), name)


def _text(column: pa.Array, name: str) -> Numbers:
    """How a text is written."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return
    texts = column.fill_null("")
    yield f"characters of {name}", pc.utf8_length(texts)
    yield f"bytes of {name}", pc.binary_length(texts)
    for what, pattern in COUNTED.items():
        yield f"{what} of {name}", pc.count_substring_regex(texts, pattern)
    for what, trimmed in (("start", pc.utf8_ltrim_whitespace(texts)), ("end", pc.utf8_rtrim_whitespace(texts))):
        yield f"space at the {what} of {name}", pc.not_equal(trimmed, texts).to_numpy(zero_copy_only=False)
    yield f"first character of {name}", _ranks(pc.utf8_slice_codeunits(texts, 0, 1))
    yield f"last character of {name}", _ranks(pc.utf8_slice_codeunits(pc.utf8_reverse(texts), 0, 1))
    for form in ("NFC", "NFD"):
        same = pc.equal(pc.utf8_normalize(texts, form=form), texts)
        yield f"{name} is in Unicode form {form}", same.to_numpy(zero_copy_only=False)


def _ranks(column: pa.Array) -> IntArray:
    """Ranks among the distinct values; a missing value is last."""
    distinct = pc.unique(column).drop_null()
    distinct = distinct.take(pc.sort_indices(distinct))
    indices = pc.fill_null(pc.index_in(column, value_set=distinct), len(distinct))
    return np.asarray(indices.to_numpy(zero_copy_only=False).astype(np.int64))
