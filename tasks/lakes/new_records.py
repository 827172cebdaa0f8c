"""Reads records that came after training and carry no labels, from a table of payloads or of features."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pass_core.data import FloatArray, IntArray, Records
from pass_core.devices import Device
from pass_core.errors import DataError, SchemaMismatch
from tasks.extractors.base import checked_features, load_extractor
from tasks.lakes.open import Batch, open_lake, table_format
from tasks.lakes.records import RecordReader
from tasks.payloads.payload import Payloads
from tasks.payloads.quarantine import Quarantine
from tasks.sections.dataset import DatasetConfig
from tasks.sections.lake import LakeColumns, LakeConfig
from tasks.storage.parquet import BLOCK, PAYLOAD, PERSON, RECORD_ID, FeatureTable, TableInfo, read_features


@dataclass(frozen=True, slots=True)
class NewRecords:
    """Some of the records of a source; labels, if there are any, are not read."""

    table: FeatureTable
    of: int  # number of records of the source


def read_new_records(
    path: Path,
    dataset: DatasetConfig,
    settings: Mapping[str, Any],
    known: TableInfo,
    *,
    device: Device,
    threads: int,
    at_most: int,
    rng: np.random.Generator,
) -> NewRecords:
    """At most so many records at random, from a folder of features or from a table of payloads, whose features are extracted.

    Args:
        settings: of extractors, by name.
        known: describes the pool's records.
    """
    if (path / "table.json").exists():
        return _features(path, known)
    lake = open_lake(str(path), _columns(dataset, known, path))
    lake.require(lake.columns.payload)
    columns = lake.columns
    context = [name for name in (columns.record_id, columns.person, columns.block) if name in lake.table.schema.names]
    with lake.reading():
        total = lake.table.count_rows()
    rows = np.sort(rng.permutation(total)[:at_most])
    reader = RecordReader(lake, known.payload, tuple(str(name) for name in context))
    quarantine = Quarantine(dataset.corrupt_files_allowed, "corrupt_files_allowed")
    payloads: list[Any] = []
    tables, start = [], 0
    for batch in lake.batches(lake.fragments(), [*columns.payload, *reader.texts], known.payload):
        inside = rows[(rows >= start) & (rows < start + len(batch.columns))] - start
        records = reader.read(Batch(batch.columns.take(pa.array(inside)), batch.place, batch.row), quarantine)
        payloads.extend(records.payloads)
        tables.append(records.columns)
        start += len(batch.columns)
    if not payloads:
        raise DataError(f"{path}: expected records without labels, found none that can be used")
    _, _, extractor = load_extractor(dataset, settings, known.payload, device, known.dataset)
    whole: Payloads = np.stack(payloads) if known.payload.kind == "vector" else payloads
    features = checked_features(extractor, whole, threads, str(path))
    return NewRecords(_table(features, pa.concat_tables(tables), columns), total)


def _features(path: Path, known: TableInfo) -> NewRecords:
    info = TableInfo.load(path)
    if info.feature_shape != known.feature_shape:
        raise SchemaMismatch(
            f"{path}: expected features of shape {known.feature_shape}, found {info.feature_shape or 'none'}; use the extractor "
            "with which the model was trained"
        )
    table = read_features(path, ())
    return NewRecords(table, len(table.record_ids))


def _columns(dataset: DatasetConfig, known: TableInfo, path: Path) -> LakeColumns:
    """The columns that the lake's section declares, or else this pipeline's own names."""
    kind = table_format(path)
    if isinstance(dataset, LakeConfig):
        return dataclasses.replace(dataset, format=kind)
    return LakeColumns(
        format=kind,
        record_id=RECORD_ID,
        payload=(PAYLOAD,),
        payload_kind=known.payload.kind,
        person=PERSON,
        block=BLOCK,
    )


def _table(features: FloatArray, found: pa.Table, columns: LakeColumns) -> FeatureTable:
    """Records with their ids, persons and blocks; a record without them is its own person and block."""

    def texts(name: str | None, default: list[str]) -> list[str]:
        return found.column(name).to_pylist() if name in found.column_names else default

    ids = texts(columns.record_id, [str(number) for number in range(len(features))])
    persons = texts(columns.person, ids)
    _, blocks = np.unique(np.array(texts(columns.block, persons)), return_inverse=True)
    none: IntArray = np.zeros(len(features), dtype=np.int64)
    return FeatureTable(
        records=Records(features, {}), record_ids=tuple(ids), splits=none, persons=tuple(persons), blocks=blocks.astype(np.int64)
    )
