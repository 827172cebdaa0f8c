"""What every data set keeps to."""

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


@dataclass(frozen=True, slots=True)
class RawRecords:
    """Some records as a reader gives them; all columns have one entry per record."""

    payloads: Payloads
    record_ids: tuple[str, ...]  # unique, stable, internal: never released
    splits: tuple[str, ...]  # "train" or "test"
    persons: tuple[str, ...]  # who the record is about
    blocks: tuple[str, ...]  # records of one block (a recording) depend on each other
    labels: Mapping[str, tuple[str, ...]]  # attribute -> class name
    passed: Mapping[str, pa.Array] = field(default_factory=dict)  # columns that leave with the record as they are

    def __len__(self) -> int:
        return len(self.record_ids)


@dataclass(frozen=True, slots=True)
class Reading:
    """A data set being read: what its records are, and the records, a batch at a time."""

    payload: Payload
    classes: Mapping[str, tuple[str, ...]]  # attribute -> all class names, in label order
    batches: Iterator[RawRecords]
    expected: int  # records there may be at most, for the progress display
    flags: Mapping[str, int] = field(default_factory=dict)  # oddities of the data set that are kept, counted


class Dataset(Protocol):
    """A data set; its config type derives from DatasetConfig."""

    summary: ClassVar[str]
    config_type: ClassVar[type[Any]]
    attribute_names: ClassVar[tuple[str, ...] | None]  # None: whatever columns the data have

    def read(self, raw: Path, config: Any, quarantine: Quarantine) -> Reading:
        """The records below `raw`, in the layout the data set is published in; memory does not grow with their number.

        A file that cannot be used goes to `quarantine`, which ends the run when there are too many.

        Raises:
            DataError: a table that names the records is missing, damaged or has other columns; the message names it.
        """


@runtime_checkable
class GeneratedDataset(Dataset, Protocol):
    """A data set that can be made here, without a download."""

    def generate(self, raw: Path, config: Any, rng: np.random.Generator) -> int:
        """Writes the raw files below `raw` and returns their number."""


def split_of(seed: int, unit: str) -> str:
    """Train or test, four to one: a function of the seed and of what must not be torn apart, such as a person."""
    return "test" if stream(seed, "split", unit).random() < TEST_SHARE else "train"
