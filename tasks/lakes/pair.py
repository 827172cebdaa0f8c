"""The two tables of somebody else's release: read, checked, and joined row by row or by a key."""

import dataclasses
import fnmatch
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from pass_core.data import FloatArray, IntArray
from pass_core.errors import DataError, SchemaMismatch
from tasks.lakes.open import open_lake, texts
from tasks.lakes.payloads import PayloadReader, payload_of, value_type
from tasks.payloads.quarantine import Quarantine
from tasks.sections.dataset import DatasetConfig
from tasks.sections.lake import LakeConfig
from tasks.storage.parquet import PAYLOAD, RECORD_ID, RESERVED_COLUMNS

MOST_COLUMNS = 20  # that may leave beside the payload; each is attacked together with it


@dataclass(frozen=True, slots=True)
class PairColumns:
    """What the columns of a pair of tables mean."""

    roles: DatasetConfig  # attributes, columns of the originals
    payload: tuple[str, ...] = (PAYLOAD,)  # a list column or number columns of both tables; may be patterns such as f_*
    shape: tuple[int, ...] = ()  # of a record, such as (2, 128); default: its length
    key: str | None = None  # column of both tables that says which released row belongs to which original; default: the order
    person: str | None = None
    block: str | None = None  # records that depend on each other; default: the person's
    split: str | None = None  # train or test; default: split here

    def context(self) -> list[str]:
        """Columns that are the audit's own, wherever they are found."""
        return [name for name in (self.key, self.person, self.block, self.split) if name is not None]


@dataclass(frozen=True, slots=True)
class PairTable:
    """One of the tables."""

    place: str
    payload: FloatArray  # (n, *shape)
    others: pa.Table

    def texts(self, name: str) -> list[str]:
        """A column of text, whole numbers or booleans as text; a missing value is an error."""
        return texts(self.others.column(name).combine_chunks(), name, self.place)


def read_pair_table(path: Path, columns: PairColumns, wanted: list[str] | None) -> PairTable:
    """The payload and the other columns of a table, rows in file order; all other columns where none are named."""
    roles = [name for name in columns.roles.roles() if name not in RESERVED_COLUMNS]
    config = LakeConfig(
        private=("private",),
        useful=("useful",),
        kept=tuple(name for name in roles if name not in ("private", "useful")),
        format=table_format(path),
        record_id=columns.key or RECORD_ID,
        payload=columns.payload,
        payload_shape=columns.shape,
        person=columns.person,
        block=columns.block,
        split=columns.split,
    )
    lake = open_lake(str(path), config)
    names = lake.table.schema.names
    vectors = _payload_columns(lake.table.schema, columns, path)
    missing = [name for name in wanted or ([columns.key] if columns.key else []) if name not in names]
    if missing:
        raise SchemaMismatch(f"{path}: missing columns: {', '.join(missing)}; found {', '.join(names)}")
    lake = dataclasses.replace(lake, config=dataclasses.replace(config, payload=vectors))
    others = list(dict.fromkeys(name for name in wanted or names if name not in vectors))
    payload = payload_of(lake)
    quarantine, reader = Quarantine(0, "none: every record of a pair must have its payload"), PayloadReader(lake, payload)
    made, kept = [], []
    for batch in lake.batches(lake.fragments(), [*vectors, *others], payload):
        made.append(np.asarray(reader.read(batch, quarantine)[0], dtype=np.float32))
        kept.append(batch.columns.select(others))
    if not made:
        raise DataError(f"{path}: has no records")
    features = np.concatenate(made)
    damaged = int((~np.isfinite(features.reshape(len(features), -1))).any(axis=1).sum())
    if damaged:
        raise DataError(f"{path}: {damaged} record(s) have a payload that is not all numbers; fill or remove them")
    return PairTable(str(path), features, pa.Table.from_batches(kept))


def _payload_columns(schema: pa.Schema, columns: PairColumns, path: Path) -> tuple[str, ...]:
    """The columns that the patterns name."""
    taken = {*columns.roles.roles(), *columns.context()}
    found = [name for pattern in columns.payload for name in fnmatch.filter(schema.names, pattern) if name not in taken]
    if not found:
        raise SchemaMismatch(
            f"{path}: expected payload column(s) {', '.join(columns.payload)}; found {', '.join(schema.names)}; give --payload"
        )
    for name in found:
        kind = value_type(schema.field(name).type)
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            raise SchemaMismatch(
                f"{path}: column {name!r} holds encoded files: expected numbers or a list of floats per record; extract features "
                "of originals and of released files with one extractor first, and audit those"
            )
    return tuple(dict.fromkeys(found))


def beside_payload(release: PairTable, columns: PairColumns) -> pa.Table:
    """What else is in a released table: every reader sees it."""
    told = [name for name in columns.roles.private if name in release.others.column_names and name not in columns.context()]
    if told:
        raise DataError(
            f"{release.place}: holds the private attribute(s) {', '.join(told)}: whoever reads the release reads them; "
            "remove them, also where they are a donor's"
        )
    extra = [name for name in release.others.column_names if name not in columns.context()]
    if len(extra) > MOST_COLUMNS:
        raise DataError(
            f"{release.place}: expected at most {MOST_COLUMNS} columns beside the payload, found {len(extra)}; "
            "name those that belong to the payload with --payload, remove those that are not released"
        )
    return release.others.select(extra)


def matching_rows(originals: PairTable, release: PairTable, columns: PairColumns) -> IntArray:
    """Row of the release for every original."""
    if originals.payload.shape[1:] != release.payload.shape[1:]:
        raise SchemaMismatch(
            f"{release.place}: expected payloads of shape {originals.payload.shape[1:]} as the originals', found "
            f"{release.payload.shape[1:]}"
        )
    n, found = len(originals.payload), len(release.payload)
    if columns.key is None:
        if n != found:
            raise DataError(f"{release.place}: expected {n} rows as in the originals, found {found}; give --key to join by")
        for name in (columns.person, columns.block, columns.split):
            if name is not None and name in release.others.column_names:
                differ = sum(a != b for a, b in zip(originals.texts(name), release.texts(name), strict=True))
                if differ:
                    raise DataError(
                        f"{release.place}: rows are in another order: column {name!r} differs in {differ}; give --key"
                    )
        return np.arange(n)
    keys = [_keys(table, columns.key) for table in (originals, release)]
    missing = len(keys[0].keys() - keys[1].keys()), len(keys[1].keys() - keys[0].keys())
    if any(missing):
        raise DataError(
            f"{release.place}: expected the originals' keys in column {columns.key!r}: {missing[0]} missing, {missing[1]} unknown"
        )
    return np.array([keys[1][key] for key in keys[0]], dtype=np.int64)


def _keys(table: PairTable, name: str) -> dict[str, int]:
    keys = {key: row for row, key in enumerate(table.texts(name))}
    if len(keys) < len(table.payload):
        raise DataError(
            f"{table.place}: column {name!r}: expected as many keys as its {len(table.payload)} records, found {len(keys)}"
        )
    return keys


def table_format(path: Path) -> Literal["parquet", "delta", "csv"]:
    """parquet, delta or csv, by what lies there."""
    if not path.exists():
        raise DataError(f"{path}: expected a Parquet, Delta or CSV table, found nothing; check the path")
    if (path / "_delta_log").is_dir():
        return "delta"
    names = [path.name] if path.is_file() else [file.name for file in path.rglob("*.*") if file.is_file()]
    return "csv" if not any(name.endswith(".parquet") for name in names) and any(n.endswith(".csv") for n in names) else "parquet"
