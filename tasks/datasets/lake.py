"""A data lake of one's own: hive-partitioned Parquet, Delta Lake or CSV, on this machine or in an object store.

Columns are named in params.yaml; docs/lakes.md shows an example. Several lakes are several sections with `reader: lake`. The
table is read in batches, one file after the other; hive partition columns are columns like any other. A damaged *payload* goes
to quarantine; a damaged *table* file ends the run, since nobody can tell which records it held.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from pass_core.errors import DataError, SchemaMismatch
from tasks.datasets.base import RawRecords, Reading, split_of
from tasks.lakes.open import Batch, OpenLake, open_lake, plain, texts
from tasks.lakes.payloads import PayloadReader, payload_of, value_type
from tasks.payloads.payload import Payload
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
        lake = open_lake(config.source if "://" in config.source else str(raw / config.source), config)
        _check_columns(lake)
        with lake.told():
            payload = payload_of(lake)
            classes = {name: config.classes.get(name) or _found_classes(lake, name) for name in config.columns()}
            rows = lake.table.count_rows()
        flags = {} if lake.version is None else {"delta version": lake.version}
        return Reading(
            payload=payload,
            classes=classes,
            batches=_Lake(lake, payload, classes).batches(quarantine),
            expected=rows,
            flags=flags,
        )


def _check_columns(lake: OpenLake) -> None:
    config, schema = lake.config, lake.table.schema
    named = [config.record_id, *config.payload, config.person, config.block, config.split]
    named += [*config.columns(), *config.pass_through]
    missing = [name for name in named if name is not None and name not in schema.names]
    if missing:
        raise SchemaMismatch(
            f"{lake.source}: missing columns: {', '.join(missing)}; found {', '.join(schema.names)}; correct params.yaml"
        )
    for name in config.columns():
        if pa.types.is_floating(value_type(schema.field(name).type)):
            raise SchemaMismatch(
                f"{lake.source}: column {name!r} holds floats: expected text, whole numbers or booleans as classes"
            )


def _found_classes(lake: OpenLake, name: str) -> tuple[str, ...]:
    """All classes of an attribute, numbers in their order; one pass over its column."""
    found: set[str] = set()
    for batch in lake.table.to_batches(columns=[name]):
        found |= set(texts(batch.column(0), name, lake.source))
        if len(found) > MAX_CLASSES:
            raise DataError(f"{lake.source}: column {name!r} has more than {MAX_CLASSES} classes: not an attribute")
    numbers = all(re.fullmatch(r"-?[0-9]+", value) for value in found)
    return tuple(sorted(found, key=lambda value: (int(value), value)) if numbers else sorted(found))


@dataclass(frozen=True, slots=True)
class _Lake:
    """A lake that was opened and checked."""

    lake: OpenLake
    payload: Payload
    classes: Mapping[str, tuple[str, ...]]
    split_of_person: dict[str, str] = field(default_factory=dict)

    def batches(self, quarantine: Quarantine) -> Iterator[RawRecords]:
        """The records of one file after the other, files by name."""
        config, reader = self.lake.config, PayloadReader(self.lake, self.payload)
        columns = {config.record_id, *config.payload, *config.columns(), *config.pass_through}
        columns |= {name for name in (config.person, config.block, config.split) if name}
        for batch in self.lake.batches(self.lake.fragments(), columns, self.payload):
            yield self._records(batch, reader, quarantine)

    def _records(self, batch: Batch, reader: PayloadReader, quarantine: Quarantine) -> RawRecords:
        config, place = self.lake.config, batch.place

        def texts(name: str) -> list[str]:
            return self.lake.texts(batch, name)

        payloads, kept = reader.read(batch, quarantine)
        ids = texts(config.record_id)
        persons = texts(config.person) if config.person else ids
        labels = {name: texts(name) for name in config.columns()}
        for name, values in labels.items():
            unknown = sum(value not in self.classes[name] for value in values)
            if unknown:
                raise DataError(f"{place}: column {name!r}: {unknown} record(s) carry a class that params.yaml does not name")
        splits = texts(config.split) if config.split else [split_of(config.split_seed, person) for person in persons]
        if not set(splits) <= set(SPLITS):
            raise DataError(f"{place}: column {config.split!r}: expected {' or '.join(SPLITS)} in every record")
        for person, split in zip(persons, splits, strict=True):
            if self.split_of_person.setdefault(person, split) != split:
                raise DataError(f"{place}: column {config.split!r}: a person is in train and in test; keep people together")
        blocks = texts(config.block) if config.block else persons

        def chosen(values: list[Any]) -> tuple[Any, ...]:
            return tuple(values[position] for position in kept)

        return RawRecords(
            payloads=payloads,
            record_ids=chosen(ids),
            splits=chosen(splits),
            persons=chosen(persons),
            blocks=chosen(blocks),
            labels={name: chosen(values) for name, values in labels.items()},
            passed={name: plain(batch.columns.column(name)).take(pa.array(kept, pa.int64())) for name in config.pass_through},
        )


DATASET = Lake()
