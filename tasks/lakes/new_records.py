"""Reads records that came after training and carry no labels, from a table of payloads or of features."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pass_core.data import Records
from pass_core.devices import Device
from pass_core.errors import DataError
from tasks.extractors.loading import checked_features, load_extractor_of
from tasks.lakes.open import Batch, open_lake, table_format
from tasks.lakes.records import RecordReader
from tasks.payloads.payload import Payloads
from tasks.payloads.quarantine import Quarantine
from tasks.sections.dataset import DatasetConfig
from tasks.sections.lake import LakeColumns, LakeConfig
from tasks.storage.parquet import BLOCK, DESCRIPTION, PAYLOAD, PERSON, RECORD_ID, FeatureTable, TableInfo, read_features


class NewRecords(NamedTuple):
    """Some of the records of a source; labels, if there are any, are not read."""

    table: FeatureTable
    of: int  # number of records of the source


def read_new_records(
    path: Path,
    dataset: DatasetConfig,
    settings: Mapping[str, Any],
    pool: Path,
    *,
    device: Device,
    threads: int,
    at_most: int,
    rng: np.random.Generator,
) -> NewRecords:
    """Random records of a folder of features, or of a table of payloads like those of the pool, extracted as its own were."""
    known = TableInfo.load(pool)
    if (path / DESCRIPTION).exists():
        TableInfo.same_features(path, pool)
        table = read_features(path, ())
        return NewRecords(table, len(table.record_ids))
    form, kind = table_format(path), known.payload.kind
    columns = LakeColumns(format=form, record_id=RECORD_ID, payload=(PAYLOAD,), payload_kind=kind, person=PERSON, block=BLOCK)
    if isinstance(dataset, LakeConfig):  # declares the columns; else they have this pipeline's own names
        columns = dataclasses.replace(dataset, format=form)
    lake = open_lake(str(path), columns)
    lake.require(columns.payload)
    context = (columns.record_id, columns.person, columns.block)
    with lake.reading():
        total = lake.table.count_rows()
    rows = np.sort(rng.permutation(total)[:at_most])
    reader = RecordReader(lake, known.payload, tuple(name for name in context if name and name in lake.table.schema.names))
    quarantine = Quarantine(dataset.corrupt_files_allowed, "corrupt_files_allowed")
    found, start = [], 0
    for batch in lake.batches(lake.fragments(), [*columns.payload, *reader.texts], known.payload):
        inside = rows[(rows >= start) & (rows < start + len(batch.columns))] - start
        found.append(reader.read(Batch(batch.columns.take(pa.array(inside)), batch.place, batch.row), quarantine))
        start += len(batch.columns)
    payloads = [payload for records in found for payload in records.payloads]
    if not payloads:
        raise DataError(f"{path}: expected records without labels, found none that can be used; restore their payloads")
    extractor = load_extractor_of(pool, dataset, settings, device, known.dataset)
    whole: Payloads = np.stack(payloads) if kind == "vector" else payloads
    features = checked_features(extractor, whole, threads, str(path))
    # A record without a person or a block is its own.
    texts = pa.concat_tables([records.columns for records in found]).to_pydict()
    ids = texts.get(columns.record_id, [str(number) for number in range(len(features))])
    persons = texts.get(columns.person, ids)
    blocks = np.unique(np.array(texts.get(columns.block, persons)), return_inverse=True)[1].astype(np.int64)
    people: dict[str, Any] = {"record_ids": tuple(ids), "persons": tuple(persons), "blocks": blocks}
    return NewRecords(FeatureTable(records=Records(features, {}), splits=np.zeros_like(blocks), **people), total)
