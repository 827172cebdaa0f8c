"""A lake as protection reads it: partitions that may be told apart outside, and their records without labels if need be."""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from urllib.parse import quote

import pyarrow as pa
import pyarrow.dataset as ds

from pass_core.errors import ChecksumMismatch, SchemaMismatch
from tasks.lakes.open import Batch, open_lake, plain
from tasks.lakes.payloads import PayloadReader, payload_of
from tasks.payloads.quarantine import Quarantine
from tasks.production.interfaces import Originals, PinnedColumns, SourcePartition
from tasks.sections.lake import LakeConfig
from tasks.storage.files import json_digest

WHOLE = "."  # the one partition of a lake none of whose partition columns may leave


class LakeSource:
    """Hive Parquet, Delta Lake or CSV, in a folder or an object store."""

    def __init__(self, config: LakeConfig, pinned: PinnedColumns | None = None) -> None:
        """Opens the lake at `config.source`; `pinned` is what every file must have."""
        self._config, self._pinned = config, pinned
        self._lake = open_lake(config.source, config)
        self._fragments = {str(fragment.path): fragment for fragment in self._lake.fragments()}
        self.schema = {field.name: str(field.type) for field in self._lake.table.schema}
        needed = [config.record_id, *config.payload, *config.pass_through, *([config.person] if config.person else [])]
        missing = [name for name in needed if name not in self.schema]
        if missing:
            raise SchemaMismatch(f"{config.source}: missing columns: {', '.join(missing)}; correct the lake or params.yaml")
        with self._lake.told():
            self.payload = payload_of(self._lake)
        self._reader = PayloadReader(self._lake, self.payload)
        told = {name for path in self._fragments for name in self._folders(path)}
        # Columns that folders tell and that may leave: the output is partitioned by them, the other files carry no such column.
        self.partition_columns = tuple(name for name in config.pass_through if name in told)
        self.passed_columns = tuple(name for name in config.pass_through if name not in told)
        self.labels = config.columns() if all(name in self.schema for name in config.roles()) else ()

    def types(self, names: tuple[str, ...]) -> dict[str, pa.DataType]:
        """The Arrow types of columns; those of partition columns without their dictionary."""
        found = {name: self._lake.table.schema.field(name).type for name in names if name in self.schema}
        return {name: kind.value_type if pa.types.is_dictionary(kind) else kind for name, kind in found.items()}

    def partitions(self) -> dict[str, SourcePartition]:
        grouped: dict[str, list[str]] = {}
        for path in self._fragments:
            folders = self._folders(path)
            name = "/".join(f"{column}={folders[column]}" for column in self.partition_columns) or WHOLE
            grouped.setdefault(name, []).append(path)
        states = self._states(list(self._fragments))
        return {name: SourcePartition(name, self._digest(paths, states), tuple(paths)) for name, paths in sorted(grouped.items())}

    def count_rows(self, partition: SourcePartition) -> int:
        with self._lake.told(partition.name):
            return sum(self._fragments[path].count_rows() for path in partition.files)

    def batches(self, partition: SourcePartition, quarantine: Quarantine) -> Iterator[Originals]:
        self._check_unchanged(partition)
        fragments = [self._fragments[path] for path in partition.files]
        for fragment in fragments:
            with self._lake.told(self._lake.place(fragment)):
                self._check_schema(fragment)
        config = self._config
        columns = {config.record_id, *config.payload, *self.labels, *self.passed_columns}
        columns |= {config.person} if config.person else set()
        for batch in self._lake.batches(fragments, columns, self.payload):
            yield self._originals(batch, quarantine)
        self._check_unchanged(partition)

    def _check_unchanged(self, partition: SourcePartition) -> None:
        files = list(partition.files)
        if self._digest(files, self._states(files)) != partition.digest:
            raise ChecksumMismatch(f"{self._config.source}, {partition.name}: has changed since the run was planned; run again")

    def _originals(self, batch: Batch, quarantine: Quarantine) -> Originals:
        payloads, kept = self._reader.read(batch, quarantine)
        whole, config = len(kept) == len(batch.columns), self._config

        def texts(name: str) -> list[str]:
            found = self._lake.texts(batch, name)
            return found if whole else [found[position] for position in kept]

        rows = pa.array(kept, pa.int64())
        return Originals(
            texts(config.record_id),
            payloads,
            texts(config.person) if config.person else None,
            {name: texts(name) for name in self.labels},
            {name: plain(batch.columns.column(name)).take(rows) for name in self.passed_columns},
        )

    def _check_schema(self, fragment: ds.Fragment) -> None:
        """A file's own columns against the pinned ones; columns that folders tell are in no file."""
        if self._pinned is None or self._lake.version is not None:  # a Delta table's log keeps its files to one schema
            return
        found = {field.name: str(field.type) for field in fragment.physical_schema}
        told = self._keys(str(fragment.path))
        schema = {name: kind for name, kind in self._pinned.schema.items() if name not in told}
        pinned = dataclasses.replace(self._pinned, schema=schema)
        if self._config.format == "csv":  # whose types are guessed file by file; those that matter are read as text anyway
            pinned = dataclasses.replace(pinned, schema=dict.fromkeys(schema, ""), added=dict.fromkeys(pinned.added, ""))
            found = dict.fromkeys(found, "")
        check_drift(f"{self._config.source}, {self._lake.place(fragment)}", pinned, found)

    def _states(self, paths: list[str]) -> dict[str, list[int]]:
        """Size and time of files; a Delta table's files never change under their name."""
        if self._lake.version is not None:
            return {path: [] for path in paths}
        infos = self._lake.filesystem.get_file_info(paths)
        return {info.path: [info.size or 0, info.mtime_ns or 0] for info in infos}

    def _digest(self, paths: list[str], states: Mapping[str, list[int]]) -> str:
        return json_digest([[self._lake.place(self._fragments[path]), *states[path]] for path in paths])

    def _folders(self, path: str) -> dict[str, str]:
        """Partition column -> value as the folders write it: read as a number, 01 would be 1."""
        parts = PurePosixPath(self._lake.place(self._fragments[path])).parent.parts
        found = dict(part.split("=", 1) for part in parts if "=" in part)
        if self._lake.version is None:
            return found
        return {name: _folder_text(value) for name, value in self._keys(path).items()}

    def _keys(self, path: str) -> dict[str, object]:
        keys: dict[str, object] = ds.get_partition_keys(self._fragments[path].partition_expression)
        return keys


def check_drift(place: str, pinned: PinnedColumns, found: Mapping[str, str]) -> None:
    """Columns that are gone or of another type are refused; new ones, which would stay behind anyway, unless allowed."""
    expected = {**pinned.schema, **{name: kind for name, kind in pinned.added.items() if name in found}}
    gone = sorted(set(expected) - set(found))
    retyped = sorted(name for name in expected if name in found and expected[name] != found[name])
    added = sorted(set(found) - set(expected))
    told = [f"gone: {', '.join(gone)}"] * bool(gone) + [f"of another type: {', '.join(retyped)}"] * bool(retyped)
    if added and not pinned.anything_new:
        told.append(f"new: {', '.join(added)} (--new-columns lets them in; they do not leave)")
    if told:
        raise SchemaMismatch(f"{place}: columns differ from those the target was begun with: {'; '.join(told)}")


def _folder_text(value: object) -> str:
    """A partition value as hive writes it."""
    return "__HIVE_DEFAULT_PARTITION__" if value is None else quote(str(value), safe=" ")
