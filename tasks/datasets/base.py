"""The interface of data sets."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from pass_core.randomness import stream
from tasks.payloads.payload import Payload, Payloads
from tasks.payloads.quarantine import Quarantine

TEST_SHARE = 0.2  # four training records to one test record


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRecords:
    """A batch of records; all columns have one entry per record."""

    payloads: Payloads
    record_ids: tuple[str, ...]  # unique, stable, internal: never released
    splits: tuple[str, ...]  # "train" or "test"
    persons: tuple[str, ...]  # who the record is about
    blocks: tuple[str, ...]  # records of one block (a recording) depend on each other
    labels: Mapping[str, tuple[str, ...]]  # attribute -> class name
    passed: Mapping[str, pa.Array] = field(default_factory=dict)  # columns published unchanged with the record

    def __len__(self) -> int:
        return len(self.record_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A data set being read: the kind of its records, and the records in batches."""

    payload: Payload
    classes: Mapping[str, tuple[str, ...]]  # attribute -> all class names, in label order
    batches: Iterator[RawRecords]
    expected: int  # largest possible number of records, for the progress display
    flags: Mapping[str, int] = field(default_factory=dict)  # counts of oddities that are kept


class Dataset(Protocol):
    """A data set; its config type derives from DatasetConfig."""

    summary: ClassVar[str]
    config_type: ClassVar[type[Any]]
    attribute_names: ClassVar[tuple[str, ...] | None]  # None: any column of the data

    def read(self, raw: Path, config: Any, quarantine: Quarantine, /) -> Reading:
        """The records below `raw`, in the data set's published layout; memory does not grow with their number.

        An unusable file goes to `quarantine`, which ends the run when there are too many. A DataError names a table of records
        that is missing, damaged or has other columns.
        """


@runtime_checkable
class GeneratedDataset(Dataset, Protocol):
    """A data set that is generated, without a download."""

    def generate(self, raw: Path, config: Any, rng: np.random.Generator) -> int:
        """Writes the raw files below `raw` and returns their number."""


def split_of(seed: int, unit: str) -> str:
    """Train or test, four to one: a function of the seed and of a unit that stays together, such as a person."""
    return "test" if stream(seed, "split", unit).random() < TEST_SHARE else "train"
