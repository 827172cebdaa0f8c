"""Reads a lake's records: payloads, and the columns beside them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.dataset as ds

from tasks.lakes.open import Batch, OpenLake, plain, text_column
from tasks.lakes.payloads import PayloadReader
from tasks.payloads.payload import Payload, Payloads
from tasks.payloads.quarantine import Quarantine


@dataclass(frozen=True, slots=True)
class LakeRecords:
    """Some records of one file, without those whose payload cannot be used."""

    payloads: Payloads
    columns: pa.Table  # the other columns under the lake's own names
    place: str  # the file, for messages

    def __len__(self) -> int:
        return len(self.payloads)

    def texts(self, name: str) -> list[str]:
        """The values of a text column."""
        return texts_of(self.columns, name)


@dataclass(frozen=True, slots=True)
class RecordReader:
    """Reads payloads, some columns as text (ids, persons, classes), and other columns as they are."""

    lake: OpenLake
    payload: Payload
    texts: tuple[str, ...]
    passed: tuple[str, ...] = ()

    def batches(self, fragments: Iterable[ds.Fragment], quarantine: Quarantine) -> Iterator[LakeRecords]:
        """The records of these files, one file after the other."""
        names = (*self.lake.columns.payload, *self.texts, *self.passed)
        for batch in self.lake.batches(fragments, names, self.payload):
            yield self.read(batch, quarantine)

    def read(self, batch: Batch, quarantine: Quarantine) -> LakeRecords:
        """The records of a batch; a payload that cannot be used goes to `quarantine`."""
        payloads, kept = PayloadReader(self.lake, self.payload).read(batch, quarantine)
        found = batch.columns
        columns = {name: text_column(found.column(name), name, batch.place) for name in dict.fromkeys(self.texts)}
        columns |= {name: plain(found.column(name)) for name in self.passed}
        table = pa.table(columns)
        whole = len(kept) == len(found)
        return LakeRecords(payloads, table if whole else table.take(pa.array(kept, pa.int64())), batch.place)


def texts_of(table: pa.Table, name: str) -> list[str]:
    """The values of a text column."""
    values: list[str] = table.column(name).to_pylist()
    return values
