"""Reads, checks and joins the two tables of another tool's release, row by row or by a key."""

import dataclasses
import fnmatch
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from pass_core.data import FloatArray, IntArray
from pass_core.errors import DataError, SchemaMismatch
from tasks.lakes.open import OpenLake, open_lake, table_format, text_column, value_type
from tasks.lakes.records import RecordReader, payload_of
from tasks.payloads.quarantine import Quarantine
from tasks.sections.dataset import Roles
from tasks.sections.lake import LakeColumns
from tasks.storage.parquet import PAYLOAD, RECORD_ID

MOST_COLUMNS = 20  # released beside the payload; each is attacked together with it


@dataclass(frozen=True, slots=True, kw_only=True)
class PairColumns:
    """Which columns of a pair of tables hold what."""

    roles: Roles  # of attributes, which are columns of the originals
    payload: tuple[str, ...] = (PAYLOAD,)  # a list column or number columns of both tables; may be patterns such as f_*
    shape: tuple[int, ...] = ()  # of a record, such as (2, 128); default: its length
    key: str | None = None  # column of both tables by which released rows and originals are joined; default: row by row
    person: str | None = None
    block: str | None = None  # records that depend on each other; default: the person's
    split: str | None = None  # train or test; default: split here

    def context(self) -> list[str]:
        """Columns that only the audit uses, in whichever table they are."""
        return [name for name in (self.key, self.person, self.block, self.split) if name is not None]


@dataclass(frozen=True, slots=True)
class PairTable:
    """One of the tables."""

    place: str
    payload: FloatArray  # (n, *shape)
    others: pa.Table

    def texts(self, name: str) -> list[str]:
        """A column of text, whole numbers or booleans as text; a missing value is an error."""
        return list(text_column(self.others.column(name).combine_chunks(), name, self.place).to_pylist())


def open_pair_table(path: Path, columns: PairColumns) -> OpenLake:
    """A table of the pair with its payload columns found."""
    key, form = columns.key or RECORD_ID, table_format(path)
    opened = LakeColumns(format=form, record_id=key, payload=columns.payload, payload_shape=columns.shape)
    lake = open_lake(str(path), opened, (*columns.roles.roles(), *columns.context()))
    vectors = _payload_columns(lake.table.schema, columns, path)
    return dataclasses.replace(lake, columns=dataclasses.replace(opened, payload=vectors))


def read_pair_table(path: Path, columns: PairColumns, wanted: list[str] | None) -> PairTable:
    """The payload and the other columns of a table, rows in file order; all other columns where none are named."""
    lake = open_pair_table(path, columns)
    vectors = lake.columns.payload
    lake.require(wanted or ([columns.key] if columns.key else []))
    others = list(dict.fromkeys(name for name in wanted or lake.table.schema.names if name not in vectors))
    quarantine = Quarantine(0, "none: every record of a pair must have its payload")
    records = list(RecordReader(lake, payload_of(lake), (), tuple(others)).batches(lake.fragments(), quarantine))
    if not records:
        raise DataError(f"{path}: expected records, found none; check the path")
    features: FloatArray = np.concatenate([np.asarray(part.payloads, dtype=np.float32) for part in records])
    damaged = int((~np.isfinite(features.reshape(len(features), -1))).any(axis=1).sum())
    if damaged:
        raise DataError(f"{path}: {damaged} record(s) have a payload that is not all numbers; fill or remove them")
    return PairTable(str(path), features, pa.concat_tables([part.columns for part in records]))


def _payload_columns(schema: pa.Schema, columns: PairColumns, path: Path) -> tuple[str, ...]:
    """The columns that the patterns name."""
    taken = {*columns.roles.roles(), *columns.context()}
    found = [name for pattern in columns.payload for name in fnmatch.filter(schema.names, pattern) if name not in taken]
    if not found:
        wanted, names = ", ".join(columns.payload), ", ".join(schema.names)
        raise SchemaMismatch(f"{path}: expected payload column(s) {wanted}; found {names}; give --payload")
    if encoded := [name for name in found if value_type(schema.field(name).type) in (pa.binary(), pa.large_binary())]:
        advice = "extract features of originals and of released files with one extractor first, and audit those"
        holds = f"column {encoded[0]!r} holds encoded files: expected numbers or a list of floats per record"
        raise SchemaMismatch(f"{path}: {holds}; {advice}")
    return tuple(dict.fromkeys(found))


def beside_payload(release: PairTable, columns: PairColumns) -> pa.Table:
    """The other columns of a released table; every reader sees them."""
    extra = [name for name in release.others.column_names if name not in columns.context()]
    if private := [name for name in columns.roles.private if name in extra]:
        holds = f"holds the private attribute(s) {', '.join(private)}, which every reader of the release sees"
        raise DataError(f"{release.place}: {holds}; remove them, even if they are a donor's")
    if len(extra) > MOST_COLUMNS:
        expected = f"expected at most {MOST_COLUMNS} columns beside the payload, found {len(extra)}"
        advice = "name those that belong to the payload with --payload, remove those that are not released"
        raise DataError(f"{release.place}: {expected}; {advice}")
    return release.others.select(extra)


def matching_rows(originals: PairTable, release: PairTable, columns: PairColumns) -> IntArray:
    """Row of the release for every original; −1 where a release with a key leaves the record out."""
    shape, other = originals.payload.shape[1:], release.payload.shape[1:]
    if shape != other:
        expected = f"expected payloads of shape {shape} as the originals', found {other}"
        raise SchemaMismatch(f"{release.place}: {expected}; make both with the same extractor or --shape")
    n, found = len(originals.payload), len(release.payload)
    if columns.key is None:
        if n != found:
            raise DataError(f"{release.place}: expected {n} rows as in the originals, found {found}; give --key to join by")
        for name in (name for name in columns.context() if name in release.others.column_names):
            differ = sum(a != b for a, b in zip(originals.texts(name), release.texts(name), strict=True))
            if differ:
                raise DataError(f"{release.place}: rows are in another order: column {name!r} differs in {differ}; give --key")
        return np.arange(n)
    keys = [_keys(table, columns.key) for table in (originals, release)]
    if not keys[0].keys() & keys[1].keys():
        expected = f"expected the originals' keys in column {columns.key!r}, found none of them"
        raise DataError(f"{release.place}: {expected}; give the column that both tables share with --key")
    return np.array([keys[1].get(key, -1) for key in keys[0]], dtype=np.int64)


def _keys(table: PairTable, name: str) -> dict[str, int]:
    keys, rows = {key: row for row, key in enumerate(table.texts(name))}, len(table.payload)
    if len(keys) < rows:
        expected = f"expected as many keys as its {rows} records, found {len(keys)}"
        raise DataError(f"{table.place}: column {name!r}: {expected}; remove repeated rows, or give another --key")
    return keys
