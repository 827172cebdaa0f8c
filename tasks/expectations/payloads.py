"""Expectations of payloads, before they are used and before they are published."""

from typing import Any

import numpy as np
import pyarrow as pa

from tasks.expectations.suites import Expectation, between
from tasks.payloads.payload import MAX_FILE_BYTES, Payload, payload_bytes
from tasks.storage.parquet import PAYLOAD, array_of


def payload_expectations(payload: Payload) -> list[Expectation]:
    """Range of a vector's values, size of an encoded file."""
    if payload.kind != "vector":
        return [between("payload_bytes", 1, MAX_FILE_BYTES)]
    largest = float(np.finfo(np.float32).max)
    low = -largest if payload.low is None else payload.low
    high = largest if payload.high is None else payload.high
    return [between("payload_min", low, high), between("payload_max", low, high)]


def payload_profile(table: pa.Table, payload: Payload) -> dict[str, Any]:
    """The values that `payload_expectations` check, one per record; a non-finite number counts as out of range."""
    if payload.kind != "vector":
        return {"payload_bytes": [len(data) for data in payload_bytes(table.column(PAYLOAD))]}
    values = array_of(table, PAYLOAD, payload.shape).reshape(len(table), -1)
    finite = np.isfinite(values).all(axis=1)
    return {
        "payload_min": np.where(finite, values.min(axis=1), np.inf),
        "payload_max": np.where(finite, values.max(axis=1), np.inf),
    }
