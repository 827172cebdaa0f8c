"""Stored numbers as a recipient can read them: bits, decimals, and payloads as they lie in the file.

What is read here never passes through float32, in which features are compared: the lowest bits of a number are a hiding place.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pass_core.data import DoubleArray, IntArray

Bits = NDArray[np.uint64]
Numbers = Iterator[tuple[str, NDArray[np.generic]]]  # names without the group, each with a number per row

MOST_BITS = 192  # that are read of all numbers of a payload,
BITS = (4, 12)  # at least and at most so many of each
MOST_DECIMALS = 6
FIRST_BYTES, LAST_BYTES = 192, 32  # of an encoded file: headers and what is appended
_MIXING = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Payloads:
    """Payloads as they are stored: of some numbers all bits, of the others what they add to parity and digest."""

    bits: Bits  # (rows, columns)
    values: DoubleArray  # (rows, columns) the same numbers
    parity: Bits  # (rows,) exclusive or over all numbers of a payload
    digest: Bits  # (rows,)
    sizes: IntArray  # (rows,) bytes or numbers of a payload
    negative_zeros: IntArray  # (rows,)
    ends: IntArray  # (rows, b) first and last bytes of an encoded file; -1 where it is shorter; no column for numbers

    @classmethod
    def of(cls, columns: list[pa.Array], rows: int, most: int) -> "Payloads":
        kind = columns[0].type
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return cls._encoded([value or b"" for value in columns[0].to_pylist()])
        if pa.types.is_nested(kind):
            columns = [columns[0].flatten()]
        numbers = [stored_numbers(column) for column in columns]
        bits = np.stack([bits_of(one) for one in numbers], axis=1).reshape(rows, -1)
        values = np.stack([one.astype(np.float64) for one in numbers], axis=1).reshape(rows, -1)
        step = np.unique(np.linspace(0, bits.shape[1] - 1, min(most, bits.shape[1])).astype(np.int64))
        weights = (np.arange(bits.shape[1], dtype=np.uint64) * np.uint64(2) + np.uint64(1)) * _MIXING
        zeros = ((values == 0) & np.signbit(values)).sum(axis=1)
        parity = np.bitwise_xor.reduce(bits, axis=1)
        sizes, ends = np.full(rows, bits.shape[1]), np.empty((rows, 0), np.int64)
        return cls(bits[:, step], values[:, step], parity, bits @ weights, sizes, zeros, ends)

    @classmethod
    def _encoded(cls, files: list[bytes]) -> "Payloads":
        """Files: their length, the bits of their last bytes, and the bytes where headers and remarks are written."""
        last = np.array([list(file[-4:].rjust(4, b"\0")) for file in files], dtype=np.uint64).reshape(-1, 4)
        ends = np.full((len(files), FIRST_BYTES + LAST_BYTES), -1, dtype=np.int64)
        for row, file in zip(ends, files, strict=True):
            first, end = np.frombuffer(file[:FIRST_BYTES], np.uint8), np.frombuffer(file[-LAST_BYTES:], np.uint8)
            row[: len(first)], row[len(row) - len(end) :] = first, end
        parity = np.array([np.bitwise_xor.reduce(np.frombuffer(b"\0" + file, np.uint8)) for file in files], dtype=np.uint64)
        digest = np.array([hash(file) & 0xFFFFFFFFFFFF for file in files], dtype=np.uint64)
        sizes = np.array([len(file) for file in files], dtype=np.int64)
        return cls(last, last.astype(np.float64), parity, digest, sizes, np.zeros_like(sizes), ends)

    @classmethod
    def joined(cls, parts: list["Payloads"]) -> "Payloads":
        names = ("bits", "values", "parity", "digest", "sizes", "negative_zeros", "ends")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def low_bits(self) -> Numbers:
        most = int(np.clip(MOST_BITS // max(self.bits.shape[1], 1), *BITS))
        for number, column in enumerate(self.bits.T):
            yield from lowest_bits(column, f"number {number + 1} of the payload", most)
        for number, column in enumerate(self.values.T):
            yield from decimals(column, f"number {number + 1} of the payload")
        yield from lowest_bits(self.parity, "all numbers of the payload together", BITS[1])

    def form(self) -> Numbers:
        _, inverse, counts = np.unique(self.digest, return_inverse=True, return_counts=True)
        yield "length", self.sizes
        yield "rows with the same payload", counts[inverse]
        yield "negative zeros", self.negative_zeros
        for k, column in enumerate(self.ends.T):
            yield (f"byte {k + 1}" if k < FIRST_BYTES else f"byte {FIRST_BYTES + LAST_BYTES - k} from the end"), column


def stored_numbers(column: pa.Array) -> NDArray[np.generic]:
    """Numbers in the type in which they are stored; times and booleans as whole numbers, a missing one as 0."""
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_temporal(kind):
        column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    return np.asarray((column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False))


def bits_of(numbers: NDArray[np.generic]) -> Bits:
    if numbers.dtype.kind == "f":
        return numbers.view(f"u{numbers.itemsize}").astype(np.uint64)
    return numbers.astype(np.int64).view(np.uint64) if numbers.dtype.kind == "i" else numbers.astype(np.uint64)


def lowest_bits(bits: Bits, name: str, most: int = BITS[1]) -> Numbers:
    """The lowest bits that vary: float32 numbers stored as float64 end in zeros."""
    varying = int(np.bitwise_or.reduce(bits ^ bits[:1], initial=0))
    first = (varying & -varying).bit_length() - 1
    for place in range(max(first, 0), min(first + most, varying.bit_length())):
        yield f"bit {place + 1} of {name}", (bits >> np.uint64(place)) & np.uint64(1)


def decimals(values: DoubleArray, name: str) -> Numbers:
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
