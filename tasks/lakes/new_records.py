"""Records that came after training and carry no labels: features of some of them, from a table of payloads or of features."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import tasks.extractors
from pass_core import discovery
from pass_core.data import FloatArray, IntArray, Records
from pass_core.devices import Device, resolve_device
from pass_core.errors import DataError, SchemaMismatch
from tasks.extractors.base import Extractor
from tasks.lakes.open import Batch, open_lake
from tasks.lakes.pair import table_format
from tasks.lakes.payloads import PayloadReader
from tasks.payloads.payload import Payload, Payloads
from tasks.payloads.quarantine import Quarantine
from tasks.sections.dataset import DatasetConfig
from tasks.sections.lake import LakeConfig
from tasks.storage.parquet import BLOCK, PAYLOAD, PERSON, RECORD_ID, FeatureTable, TableInfo, read_features


@dataclass(frozen=True, slots=True)
class NewRecords:
    """Some of the records of a source; labels there may be are not read."""

    table: FeatureTable
    of: int  # records of which these are some


def read_new_records(
    path: Path,
    dataset: DatasetConfig,
    settings: Mapping[str, Any],
    known: TableInfo,
    device: Device,
    threads: int,
    at_most: int,
    rng: np.random.Generator,
) -> NewRecords:
    """At most so many records at random: those of a folder of features, or those of a table of payloads, extracted here.

    Args:
        settings: of extractors, by name.
        known: what the pool's records are.
    """
    if (path / "table.json").exists():
        return _features(path, known)
    lake = open_lake(str(path), _columns(dataset, known, path))
    config, names = lake.config, lake.table.schema.names
    missing = [name for name in config.payload if name not in names]
    if missing:
        raise SchemaMismatch(f"{path}: missing payload columns: {', '.join(missing)}; found {', '.join(names)}")
    context = [name for name in (config.record_id, config.person, config.block) if name is not None and name in names]
    with lake.told():
        total = lake.table.count_rows()
    rows = np.sort(rng.permutation(total)[:at_most])
    reader, quarantine = PayloadReader(lake, known.payload), Quarantine(config.corrupt_files_allowed, "corrupt_files_allowed")
    payloads: list[Any] = []
    told: dict[str, list[str]] = {name: [] for name in context}
    start = 0
    for batch in lake.batches(lake.fragments(), [*config.payload, *context], known.payload):
        inside = rows[(rows >= start) & (rows < start + len(batch.columns))] - start
        chosen = Batch(batch.columns.take(pa.array(inside)), batch.place, batch.row)
        made, kept = reader.read(chosen, quarantine)
        payloads.extend(made)
        for name in context:
            values = lake.texts(chosen, name)
            told[name] += [values[position] for position in kept]
        start += len(batch.columns)
    features = _extracted(payloads, dataset, settings, known.payload, device, threads)
    return NewRecords(_table(features, told, config), total)


def _features(path: Path, known: TableInfo) -> NewRecords:
    info = TableInfo.load(path)
    if info.feature_shape != known.feature_shape:
        raise SchemaMismatch(
            f"{path}: expected features of shape {known.feature_shape}, found {info.feature_shape or 'none'}; use the extractor "
            "that the model was trained with"
        )
    table = read_features(path, ())
    return NewRecords(table, len(table.record_ids))


def _columns(dataset: DatasetConfig, known: TableInfo, path: Path) -> LakeConfig:
    """What the columns mean: as the lake's section says, or by this pipeline's own names."""
    kind = table_format(path)
    if isinstance(dataset, LakeConfig):
        return dataclasses.replace(dataset, format=kind)
    return LakeConfig(
        private=dataset.private,
        useful=dataset.useful,
        format=kind,
        record_id=RECORD_ID,
        payload=(PAYLOAD,),
        payload_kind=known.payload.kind,
        person=PERSON,
        block=BLOCK,
    )


def _extracted(
    payloads: list[Any], dataset: DatasetConfig, settings: Mapping[str, Any], payload: Payload, device: Device, threads: int
) -> FloatArray:
    if not payloads:
        raise DataError("expected records without labels, found none that can be used")
    extractor: Extractor = discovery.load(tasks.extractors, dataset.extractor).EXTRACTOR
    chosen = settings.get(dataset.extractor) or extractor.config_type()
    whole: Payloads = np.stack(payloads) if payload.kind == "vector" else payloads
    return extractor.load(chosen, resolve_device(device)).features(whole, threads, lambda _: None)


def _table(features: FloatArray, told: Mapping[str, list[str]], config: LakeConfig) -> FeatureTable:
    """Records are told from others by what columns there are; a record without any is its own person and block."""
    numbers = [str(number) for number in range(len(features))]
    ids = told.get(config.record_id, numbers)
    persons = told.get(str(config.person), ids)
    blocks = told.get(str(config.block), persons)
    _, indices = np.unique(np.array(blocks), return_inverse=True)
    none: IntArray = np.zeros(len(features), dtype=np.int64)
    return FeatureTable(
        records=Records(features, {}), record_ids=tuple(ids), splits=none, persons=tuple(persons), blocks=indices.astype(np.int64)
    )
