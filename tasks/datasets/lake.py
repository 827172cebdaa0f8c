"""A data lake of one's own: hive-partitioned Parquet, Delta Lake or CSV, on this machine or in an object store.

params.yaml declares the columns; docs/lakes.md shows an example. Several lakes are several sections with `reader: lake`. The
table is read in batches, one file after the other; hive partition columns are columns like any other. A damaged *payload* goes
to quarantine; a damaged *table* file ends the run, since its records are unknown.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from pass_core.errors import DataError, SchemaMismatch
from tasks.datasets.base import RawRecords, Reading, split_of
from tasks.lakes.open import OpenLake, open_lake, text_column, value_type
from tasks.lakes.records import LakeRecords, RecordReader, payload_of
from tasks.payloads.quarantine import Quarantine
from tasks.sections.lake import LakeConfig
from tasks.storage.parquet import SPLITS

MAX_CLASSES = 1000


class Lake:
    """A lake of one's own."""

    summary: ClassVar[str] = "your own data: Parquet, Delta Lake or CSV, local or s3://, gs://, abfs:// (docs/lakes.md)"
    config_type: ClassVar[type[LakeConfig]] = LakeConfig
    attribute_names: ClassVar[tuple[str, ...] | None] = None

    def read(self, raw: Path, config: LakeConfig, quarantine: Quarantine) -> Reading:
        source = config.source if "://" in config.source else str(raw / config.source)
        names = config.attribute_names()
        lake = open_lake(source, config, names)
        lake.require([*config.context(), *config.payload, *names, *config.pass_through])
        for name in names:
            if pa.types.is_floating(value_type(lake.table.schema.field(name).type)):
                expected = "expected text, whole numbers or booleans as classes; convert it, or give it no role"
                raise SchemaMismatch(f"{lake.source}: column {name!r} holds floats: {expected}")
        with lake.reading():
            payload = payload_of(lake)
            classes = {name: config.classes.get(name) or _found_classes(lake, name) for name in names}
            rows = lake.table.count_rows()
        flags = {} if lake.version is None else {"delta version": lake.version}
        reader = RecordReader(lake, payload, (*config.context(), *names), config.pass_through)
        split_of_person: dict[str, str] = {}
        batches = (
            _raw_records(records, config, classes, split_of_person) for records in reader.batches(lake.fragments(), quarantine)
        )
        return Reading(payload=payload, classes=classes, batches=batches, expected=rows, flags=flags)


def _found_classes(lake: OpenLake, name: str) -> tuple[str, ...]:
    """All classes of an attribute, numbers in their order; one pass over its column."""
    found: set[str] = set()
    for batch in lake.table.to_batches(columns=[name]):
        found |= set(text_column(batch.column(0), name, lake.source).to_pylist())
        if len(found) > MAX_CLASSES:
            raise DataError(f"{lake.source}: column {name!r} has more than {MAX_CLASSES} classes: give it no role")
    numbers = all(re.fullmatch(r"-?[0-9]+", value) for value in found)
    return tuple(sorted(found, key=lambda value: (int(value), value)) if numbers else sorted(found))


def _raw_records(
    records: LakeRecords, config: LakeConfig, classes: Mapping[str, tuple[str, ...]], split_of_person: dict[str, str]
) -> RawRecords:
    """Records with their split and known classes; `split_of_person` remembers the people of earlier batches."""
    ids = records.texts(config.record_id)
    persons = records.texts(config.person) if config.person else ids
    labels = {name: records.texts(name) for name in classes}
    for name, values in labels.items():
        unknown = sum(value not in classes[name] for value in values)
        if unknown:
            found = f"{unknown} record(s) have a class that params.yaml does not list"
            raise DataError(f"{records.place}: column {name!r}: {found}; add it there")
    splits = records.texts(config.split) if config.split else [split_of(config.split_seed, person) for person in persons]
    if not set(splits) <= set(SPLITS):
        raise DataError(f"{records.place}: column {config.split!r}: expected {' or '.join(SPLITS)} in every record; correct it")
    for person, split in zip(persons, splits, strict=True):
        if split_of_person.setdefault(person, split) != split:
            raise DataError(f"{records.place}: column {config.split!r}: a person is in train and in test; keep people together")
    return RawRecords(
        payloads=records.payloads,
        record_ids=tuple(ids),
        splits=tuple(splits),
        persons=tuple(persons),
        blocks=tuple(records.texts(config.block) if config.block else persons),
        labels={name: tuple(values) for name, values in labels.items()},
        passed={name: records.columns.column(name) for name in config.pass_through},
    )


DATASET = Lake()
