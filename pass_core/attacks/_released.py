"""Shared by attacks on a finite pool: released records identified by their exact bytes."""

import hashlib
from dataclasses import dataclass, field

import numpy as np

from pass_core.data import DoubleArray, FloatArray, IntArray

UNSEEN = -1


@dataclass(frozen=True, slots=True)
class RecordNumbers:
    """Numbers distinct records from 0 in the order in which they are first met."""

    known: dict[bytes, int] = field(default_factory=dict)

    def number(self, records: FloatArray) -> IntArray:
        """The number of every record; one that is new gets the next."""
        return np.array([self.known.setdefault(key, len(self.known)) for key in _keys(records)], dtype=np.int64)

    def find(self, records: FloatArray) -> IntArray:
        """The number of every record, or UNSEEN."""
        return np.array([self.known.get(key, UNSEEN) for key in _keys(records)], dtype=np.int64)


def _keys(records: FloatArray) -> list[bytes]:
    """Digests in place of the bytes: a release without a pool has no two records alike, and all would be kept."""
    return [hashlib.blake2b(record.tobytes(), digest_size=16).digest() for record in records]


@dataclass(frozen=True, slots=True)
class LookupAdversary:
    """A table of probabilities by released record."""

    numbers: RecordNumbers
    table: DoubleArray  # (distinct records, classes)
    prior: DoubleArray  # (classes,) of a record that is not in the table

    def probabilities(self, records: FloatArray) -> DoubleArray:
        # UNSEEN is the last row.
        return np.concatenate([self.table, self.prior[None]])[self.numbers.find(records)]
