"""What a record's payload can be: a float vector, or the bytes of an image or audio file."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from pass_core.data import FloatArray

PayloadKind = Literal["vector", "image", "audio"]
PAYLOAD_KINDS: tuple[PayloadKind, ...] = ("vector", "image", "audio")
MAX_FILE_BYTES = 256 * 2**20
Payloads = FloatArray | Sequence[bytes]  # (n, *shape) of vectors, or one encoded file per record


@dataclass(frozen=True, slots=True)
class Payload:
    """The payload column of a table."""

    kind: PayloadKind
    shape: tuple[int, ...] = ()  # of vectors; encoded files have their own
    low: float | None = None  # plausible range of a vector's values
    high: float | None = None


def column_of(payloads: Payloads) -> pa.Array:
    """Payloads as an Arrow column."""
    return vectors(payloads) if isinstance(payloads, np.ndarray) else pa.array(payloads, pa.large_binary())


def vectors(values: FloatArray) -> pa.Array:
    """Arrays (n, *shape) as a column of float vectors of fixed length."""
    flat = np.ascontiguousarray(values, dtype=np.float32).reshape(len(values), -1)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat.ravel()), flat.shape[1])


def payload_bytes(column: pa.ChunkedArray) -> list[bytes]:
    """The bytes of every payload, to compare records by."""
    if pa.types.is_large_binary(column.type):
        encoded: list[bytes] = column.to_pylist()
        return encoded
    values = column.combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)
    return [row.tobytes() for row in values]


def payload_digest(column: pa.ChunkedArray) -> str:
    """SHA-256 over every payload of a column, in order."""
    whole = hashlib.sha256()
    for data in payload_bytes(column):
        whole.update(len(data).to_bytes(8, "big"))
        whole.update(data)
    return whole.hexdigest()
