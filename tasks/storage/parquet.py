"""Parquet in and out: the only file that writes it, with fixed options so that equal tables give equal bytes."""

import dataclasses
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pass_core.data import Attribute, FloatArray, IntArray, Records
from pass_core.errors import DataError, SchemaMismatch
from tasks.payloads.payload import Payload
from tasks.storage.files import read_json, write_json

# A record's columns inside the pipeline; only the payload is ever released.
RECORD_ID, SPLIT, PERSON, BLOCK, PAYLOAD, FEATURES = "record_id", "split", "person", "block", "payload", "features"
CONTEXT_COLUMNS = (RECORD_ID, SPLIT, PERSON, BLOCK)
RESERVED_COLUMNS = (*CONTEXT_COLUMNS, PAYLOAD, FEATURES)
SPLITS = ("train", "test")
DESCRIPTION = "table.json"
COMPONENTS = "components.safetensors"  # beside it: what the extractor learnt on training records, if it learns
QUANTISED = "network.int8"  # beside it, too: the network that training records calibrated, if it computes in int8
SHARD_ROWS = 1024  # the most that a resumed extraction repeats
SHARD_BYTES = 64 * 2**20
FOOTER: dict[str, Any] = {"write_statistics": False, "write_page_checksum": True, "version": "2.6"}  # reveals no values


@dataclass(frozen=True, slots=True, kw_only=True)
class TableInfo:
    """The description of a folder of records (payload, features, classes), saved as table.json beside its Parquet files.

    `extraction` names the extractor with all that its features depend on; it is empty, and not written, where features are the
    payload.
    """

    dataset: str
    payload: Payload
    feature_shape: tuple[int, ...]  # empty until features are extracted
    classes: Mapping[str, tuple[str, ...]]
    pass_through: tuple[str, ...] = ()  # columns published unchanged
    extraction: str = ""

    def save(self, folder: Path) -> None:
        written = dataclasses.asdict(self)
        if not self.extraction:
            del written["extraction"]
        write_json(folder / DESCRIPTION, written)

    @classmethod
    def load(cls, folder: Path) -> "TableInfo":
        raw = read_json(folder / DESCRIPTION)
        try:
            payload = Payload(**raw["payload"] | {"shape": tuple(raw["payload"]["shape"])})
            classes = {name: tuple(known) for name, known in raw["classes"].items()}
            shape, passed, extraction = tuple(raw["feature_shape"]), tuple(raw["pass_through"]), str(raw.get("extraction", ""))
            known = {"dataset": raw["dataset"], "classes": classes, "pass_through": passed}
            return cls(payload=payload, feature_shape=shape, extraction=extraction, **known)
        except (KeyError, TypeError, AttributeError):
            raise DataError(f"{folder / DESCRIPTION}: is damaged; run the step that writes it again") from None

    @classmethod
    def same_features(cls, features: Path, pool: Path) -> "TableInfo":
        """The description of a folder of features; rejected when other numbers are in it than in the features of `pool`."""
        info, known = cls.load(features), cls.load(pool)
        if (info.feature_shape, info.extraction) != (known.feature_shape, known.extraction):
            expected, found = (f"shape {one.feature_shape}, extraction {one.extraction[:12] or 'none'}" for one in (known, info))
            raise SchemaMismatch(
                f"{features}: expected features like the donors' in {pool} ({expected}), found others ({found}); extract them "
                "with the same settings, or run sample_pool and the steps after it again"
            )
        return info


def copy_description(source: Path, target: Path) -> None:
    """Gives a folder the description of another, with what the extractor learnt."""
    target.mkdir(parents=True, exist_ok=True)
    for name in (DESCRIPTION, COMPONENTS, QUANTISED):
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)


class ShardWriter:
    """Writes a table of any length as numbered Parquet files; holds no more than one of them in memory."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._waiting = folder, list[pa.Table]()
        self._written = self.rows = 0

    def add(self, table: pa.Table) -> None:
        """Appends rows."""
        self._waiting.append(table)
        self.rows += len(table)
        while sum(map(len, self._waiting)) >= SHARD_ROWS or sum(part.nbytes for part in self._waiting) >= SHARD_BYTES:
            self._write(SHARD_ROWS)

    def close(self) -> None:
        """Writes what is left; a table without rows is one empty file."""
        if self._waiting:
            self._write(sum(map(len, self._waiting)))

    def _write(self, rows: int) -> None:
        whole = pa.concat_tables(self._waiting)
        write_table(whole[:rows], shard_path(self._folder, self._written))
        self._written += 1
        self._waiting = [whole[rows:]] if len(whole) > rows else []


def shard_path(folder: Path, number: int) -> Path:
    """The Parquet file of that number."""
    return folder / f"part-{number:05d}.parquet"


def shards(folder: Path, pattern: str = "part-*.parquet") -> list[Path]:
    """The Parquet files of a folder of records, in order."""
    found = sorted(folder.glob(pattern))
    if not found:
        raise DataError(f"{folder}: has no Parquet files; run the step that writes it again")
    return found


def write_table(table: pa.Table, path: Path) -> None:
    """Writes Parquet without statistics or pandas metadata: the footer reveals no values."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.replace_schema_metadata(None), path, compression="zstd", row_group_size=8192, **FOOTER)


def open_writer(path: Path, schema: pa.Schema, *, dictionaries: bool = False) -> pq.ParquetWriter:
    """For tables of any length, a row group per `write_table`; dictionaries cost more time than they save in donors' repeats."""
    level = None if dictionaries else 1  # as `write_table` writes, or fast
    return pq.ParquetWriter(path, schema, compression="zstd", compression_level=level, use_dictionary=dictionaries, **FOOTER)


def read_table(path: Path, columns: list[str] | None = None) -> pa.Table:
    """A Parquet table, checked; a missing, damaged or different file is a DataError that names it."""
    try:
        table = pq.ParquetFile(path, page_checksum_verification=True).read(columns=columns)
        table.validate(full=True)
    except FileNotFoundError:
        raise DataError(f"{path}: expected file is missing; run the step that writes it again") from None
    except (pa.ArrowException, OSError):
        raise DataError(f"{path}: is damaged: not readable as Parquet; run the step that writes it again") from None
    missing = [name for name in columns or () if name not in table.column_names]
    if missing:
        expected = f"expected columns {', '.join(columns or ())}; missing: {', '.join(missing)}"
        raise SchemaMismatch(f"{path}: {expected}; run the step that writes it again")
    return table


def count_rows(path: Path) -> int:
    """The number of rows of a Parquet file, from its footer."""
    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError):
        raise DataError(f"{path}: is damaged: not readable as Parquet; run the step that writes it again") from None


def read_folder(folder: Path, columns: list[str] | None = None, pattern: str = "part-*.parquet") -> pa.Table:
    """All rows of a folder of records."""
    return pa.concat_tables([read_table(path, columns) for path in shards(folder, pattern)])


def take_rows(folder: Path, columns: list[str], rows: IntArray) -> pa.Table:
    """The rows at these positions, in this order, with no more than one file in memory beside them."""
    parts, start, wanted = [], 0, np.sort(rows)
    for path in shards(folder):
        table = read_table(path, columns)
        inside = wanted[(wanted >= start) & (wanted < start + len(table))]
        parts.append(table.take(pa.array(inside - start)))
        start += len(table)
    return pa.concat_tables(parts).take(pa.array(np.argsort(np.argsort(rows, kind="stable"), kind="stable")))


def array_of(table: pa.Table, column: str, shape: tuple[int, ...]) -> FloatArray:
    """A column of float vectors as an array (n, *shape)."""
    chunks = table.column(column).combine_chunks()
    if getattr(chunks.type, "list_size", None) != int(np.prod(shape)):
        expected = f"expected float vectors of length {int(np.prod(shape))}, found {chunks.type}"
        raise SchemaMismatch(f"column {column!r}: {expected}; run the step that writes it again")
    values: FloatArray = chunks.flatten().to_numpy(zero_copy_only=False).astype(np.float32, copy=False)
    return values.reshape(len(table), *shape)


def labels_of(table: pa.Table, attributes: tuple[Attribute, ...]) -> dict[str, IntArray]:
    """Class indices per attribute."""
    return {attribute.name: class_indices(table, attribute.name, attribute.classes) for attribute in attributes}


def class_indices(table: pa.Table, name: str, classes: tuple[str, ...]) -> IntArray:
    """Class index of every record; a class that the attribute does not have is a DataError that names the column."""
    column = table.column(name).combine_chunks()
    codes = pc.index_in(column, value_set=pa.array(classes, type=column.type))
    if codes.null_count:
        found = f"{codes.null_count} record(s) carry a class that is not one of the {len(classes)} known ones"
        raise DataError(f"column {name!r}: {found}; add the class to the data set, or correct the records")
    indices: IntArray = codes.to_numpy().astype(np.int64)
    return indices


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureTable:
    """Extracted records with their context, in file order."""

    records: Records
    record_ids: tuple[str, ...]
    splits: IntArray  # 0 train, 1 test
    persons: tuple[str, ...]
    blocks: IntArray

    def rows(self, split: str) -> IntArray:
        """Positions of the records of a split."""
        return np.flatnonzero(self.splits == SPLITS.index(split)).astype(np.int64)

    def subset(self, rows: IntArray) -> Records:
        """The records at these positions."""
        return self.records.subset(rows)


def read_features(folder: Path, attributes: tuple[Attribute, ...]) -> FeatureTable:
    """The features of a folder with labels of `attributes`."""
    info = TableInfo.load(folder)
    table = read_folder(folder, [*CONTEXT_COLUMNS, FEATURES, *(a.name for a in attributes)])
    _, blocks = np.unique(np.array(table.column(BLOCK).to_pylist()), return_inverse=True)
    return FeatureTable(
        records=Records(array_of(table, FEATURES, info.feature_shape), labels_of(table, attributes)),
        record_ids=tuple(table.column(RECORD_ID).to_pylist()),
        splits=np.array([SPLITS.index(split) for split in table.column(SPLIT).to_pylist()], dtype=np.int64),
        persons=tuple(table.column(PERSON).to_pylist()),
        blocks=blocks.astype(np.int64),
    )


def read_partition(protected: Path, split: str) -> pa.Table:
    """The released records of a split, in released order."""
    return read_folder(protected / f"{SPLIT}={split}", pattern="*.parquet")
