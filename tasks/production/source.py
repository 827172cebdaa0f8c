"""A lake to protect: its partitions, and their records, with or without labels."""

import contextlib
import dataclasses
import functools
import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from pass_core.errors import ChecksumMismatch, DataError, SchemaMismatch, SchemaPaused
from tasks.lakes.open import Batch, open_lake, text_column, value_type
from tasks.lakes.records import LakeRecords, RecordReader, payload_of
from tasks.payloads.quarantine import Quarantine
from tasks.production.erased import LeftOut
from tasks.production.file_states import AT_ONCE, State
from tasks.production.interfaces import PinnedColumns, SourcePartition
from tasks.production.manifest import NO_VALUE
from tasks.production.source_files import NONE, Notes, SourceFiles, file_number
from tasks.sections.lake import LakeConfig
from tasks.storage.files import json_digest

WHOLE = "."  # the only partition of a lake that releases no partition column


class LakeSource:
    """Hive Parquet, Delta Lake or CSV, in a folder or an object store."""

    def __init__(
        self,
        config: LakeConfig,
        key: bytes,
        pinned: PinnedColumns | None = None,
        carried: tuple[str, ...] = (),
        left_out: LeftOut | None = None,
    ) -> None:
        """Opens the lake at `config.source`; every file must have the `pinned` columns and the `carried` attributes.

        `key` numbers files in messages; records that are `left_out` are not read.
        """
        self.config, self._pinned, self._left_out = config, pinned, left_out or LeftOut()
        self._lake = open_lake(config.source, config, config.attribute_names(), functools.partial(file_number, key))
        self._fragments = {str(fragment.path): fragment for fragment in self._lake.fragments()}
        self.schema = {field.name: logical_type(field.type) for field in self._lake.table.schema}
        self.found = dict(self.schema)  # columns of all files whose rows were counted
        self.used = frozenset((*config.context(), *config.payload, *config.pass_through, *config.attribute_names()))
        context = (config.record_id, *([config.person] if config.person else []))
        self._lake.require([*context, *config.payload, *config.pass_through, *carried])
        with self._lake.reading():
            self.payload = payload_of(self._lake)
        in_folders = {name for path in self._fragments for name in self._folders(path)}
        # The output is partitioned by passed columns that are folder names; its files do not contain these columns.
        self.partition_columns = tuple(name for name in config.pass_through if name in in_folders)
        self.passed_columns = tuple(name for name in config.pass_through if name not in in_folders)
        self.labels = config.attribute_names() if all(name in self.schema for name in config.roles()) else ()
        texts = (*context, *self.labels, *carried)
        self._reader = RecordReader(
            self._lake, self.payload, texts, self.passed_columns, self._read_recording, self._without_erased
        )
        self.files = SourceFiles(self._lake.filesystem, self._lake.folder, self._lake.version is not None, key)
        self.states: dict[str, State | None] = {}  # of the table's files, by their path below the source
        self._recordings: Notes = {}
        self.notes: tuple[Notes, Notes] = {}, {}  # of the table's files and of recordings that were read last

    def released_schema(self, release: tuple[str, ...], plain_lists: bool) -> pa.Schema:
        """The payload, a donor's attributes in `release` and passed columns, in the source's types and without metadata."""
        schema, fields = self._lake.table.schema, []
        for name in (*self.config.payload, *release, *self.passed_columns):
            kind = _without_width(value_type(schema.field(name).type)) if name in self.schema else pa.string()
            if plain_lists and pa.types.is_fixed_size_list(kind):  # become lists of any length
                kind = pa.list_(pa.field("element", kind.value_type))
            fields.append(pa.field(name, kind))
        return pa.schema(fields)

    def partitions(self) -> dict[str, SourcePartition]:
        """All partitions by name; no data are read."""
        self.states = self.files.states(map(self._lake.path, self._fragments.values()))
        grouped: dict[str, list[str]] = {}
        for path in self._fragments:
            folders = self._folders(path)
            name = "/".join(f"{column}={folders[column]}" for column in self.partition_columns) or WHOLE
            grouped.setdefault(name, []).append(path)
        return {
            name: SourcePartition(name, self._digest(paths, self.states), tuple(paths)) for name, paths in sorted(grouped.items())
        }

    def read_footers(self, partitions: Iterable[SourcePartition]) -> None:
        """Reads the footers of these partitions' files, many at once, and keeps them; what fails is reported when it is used."""

        def read(path: str) -> None:
            with contextlib.suppress(pa.ArrowException, OSError):
                self._fragments[path].physical_schema  # noqa: B018

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(read, (path for one in partitions for path in one.files)))

    def check_columns(self, partitions: Sequence[SourcePartition], pinned: PinnedColumns) -> None:
        """Rejects files with other columns before any work; damaged ones are found when they are read."""
        self._pinned = pinned
        self.read_footers(partitions)
        for fragment in (self._fragments[path] for one in partitions for path in one.files):
            try:
                with self._lake.reading(self._lake.place(fragment)):
                    fragment.physical_schema  # noqa: B018
            except DataError:
                continue
            self._check_schema(fragment)

    def states_of(self, partition: SourcePartition) -> dict[str, State | None]:
        """The states of a partition's files when the source was listed."""
        return {path: self.states[path] for path in self._paths(partition.files)}

    def count_rows(self, partition: SourcePartition) -> int:
        """The number of records, from footers where there are any."""
        rows = 0
        for fragment in (self._fragments[path] for path in partition.files):
            with self._lake.reading(self._lake.place(fragment)):
                rows += fragment.count_rows()
                self.found = {field.name: logical_type(field.type) for field in fragment.physical_schema} | self.found
        return rows

    def batches(self, partition: SourcePartition, quarantine: Quarantine) -> Iterator[LakeRecords]:
        """The records of a partition in batches; rejects files that are damaged, have changed or have other columns.

        Afterwards `notes` has what was read.
        """
        states, self._recordings = self._check_unchanged(partition), {}
        self.notes = self.files.note_table(states), self._recordings
        fragments = [self._fragments[path] for path in partition.files]
        for fragment in fragments:
            with self._lake.reading(self._lake.place(fragment)):
                self._check_schema(fragment)
        yield from self._reader.batches(fragments, quarantine)
        self._check_unchanged(partition)

    def sample(
        self, partitions: Sequence[SourcePartition], at_most: int, rng: np.random.Generator, quarantine: Quarantine
    ) -> Iterator[LakeRecords]:
        """Random records of these partitions, at most so many; payload files of other records are not read."""
        chosen = np.sort(rng.permutation(sum(map(self.count_rows, partitions)))[:at_most])
        fragments, start = [self._fragments[path] for one in partitions for path in one.files], 0
        names = (*self.config.payload, *self._reader.texts, *self.passed_columns)
        for batch in self._lake.batches(fragments, names, self.payload):
            inside = chosen[(chosen >= start) & (chosen < start + len(batch.columns))] - start
            start += len(batch.columns)
            for part in self._without_erased(Batch(batch.columns.take(pa.array(inside)), batch.place, batch.row)):
                yield self._reader.read(part, quarantine)

    def count_named(self, partition: SourcePartition, records: Collection[str], persons: Collection[str]) -> int:
        """How many records of a partition have one of these ids, or are about one of these persons."""
        names, rows = [self.config.record_id, *([self.config.person] if self.config.person else [])], 0
        ids, people = pa.array(records, pa.string()), pa.array(persons, pa.string())
        for batch in self._lake.batches([self._fragments[path] for path in partition.files], names, self.payload):
            found = pc.is_in(self._texts(batch, self.config.record_id), ids)
            if self.config.person:
                found = pc.or_(found, pc.is_in(self._texts(batch, self.config.person), people))
            rows += found.true_count
        return rows

    def _without_erased(self, batch: Batch) -> Iterator[Batch]:
        if not (self._left_out.records or self._left_out.persons):
            yield batch
            return
        records, person = self._texts(batch, self.config.record_id), self.config.person
        for first, rows in self._left_out.kept(records, self._texts(batch, person) if person else None):
            yield Batch(batch.columns.slice(first, rows), batch.place, batch.row + first)

    @staticmethod
    def _texts(batch: Batch, name: str) -> pa.Array:
        return text_column(batch.columns.column(name), name, batch.place)

    def _check_unchanged(self, partition: SourcePartition) -> dict[str, State | None]:
        states = self.files.states(self._paths(partition.files))
        if self._digest(partition.files, states) != partition.digest:
            raise ChecksumMismatch(f"{self.config.source}, {partition.name}: has changed since the run was planned; run again")
        return states

    def _read_recording(self, path: str, at_most: int) -> bytes:
        """A file that a column of paths names; its state is noted before it is read, so that no change is missed."""
        number, state = self.files.number(path), self.files.state_word(self.files.state(path))
        self._recordings[number] = state, NONE
        data = self._lake.read_file(path, at_most)
        self._recordings[number] = state, self.files.content_word(hashlib.sha256(data).hexdigest())
        return data

    def _paths(self, files: Iterable[str]) -> list[str]:
        return [self._lake.path(self._fragments[file]) for file in files]

    def _check_schema(self, fragment: ds.Fragment) -> None:
        """A file's own columns against the pinned ones; columns that are folder names are in no file."""
        if self._pinned is None or self._lake.version is not None:  # a Delta table's log keeps its files to one schema
            return
        found = {field.name: logical_type(field.type) for field in fragment.physical_schema}
        in_folders = ds.get_partition_keys(fragment.partition_expression)
        schema = {name: kind for name, kind in self._pinned.schema.items() if name not in in_folders}
        pinned = dataclasses.replace(self._pinned, schema=schema)
        if self.config.format == "csv":  # whose types are guessed file by file; those that matter are read as text anyway
            pinned = dataclasses.replace(pinned, schema=dict.fromkeys(schema, ""), added=dict.fromkeys(pinned.added, ""))
            found = dict.fromkeys(found, "")
        check_drift(f"{self.config.source}, {self._lake.place(fragment)}", pinned, found)

    def _digest(self, files: Iterable[str], states: Mapping[str, State | None]) -> str:
        """Of names and states."""
        return json_digest([[path, states[path]] for path in self._paths(files)])

    def _folders(self, path: str) -> dict[str, str]:
        """Partition column -> value as the folders write it: read as a number, 01 would be 1."""
        if self._lake.version is None:
            parts = PurePosixPath(self._lake.path(self._fragments[path])).parent.parts
            pairs = [part.split("=", 1) for part in parts if "=" in part]
            return {column: folder_value(unquote(value)) for column, value in pairs}  # writers quote more or less
        keys = ds.get_partition_keys(self._fragments[path].partition_expression)
        return {name: NO_VALUE if value is None else folder_value(str(value)) for name, value in keys.items()}


@contextlib.contextmanager
def pausing(policy: str) -> Iterator[None]:
    """Makes other columns stop the whole run, where `protect.on_schema_change` is pause."""
    try:
        yield
    except SchemaMismatch as error:
        if policy != "pause":
            raise
        raise SchemaPaused(f"{error}. Paused: nothing is published until then (protect.on_schema_change)") from None


def logical_type(kind: pa.DataType | str) -> str:
    """A type, or its name in a manifest, as columns are compared: however long texts may be, with or without a dictionary."""
    name = re.sub(r"^dictionary<values=(.*), indices=.*>$", r"\1", str(kind))
    return {"large_string": "string", "string_view": "string", "large_binary": "binary", "binary_view": "binary"}.get(name, name)


def _without_width(kind: pa.DataType) -> pa.DataType:
    """Text and bytes of any length in their usual form; Parquet itself has only one."""
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) else kind


def find_files(config: LakeConfig, source: str, key: bytes, numbers: Sequence[str]) -> list[str]:
    """The paths below a source of the files that messages call by these numbers."""
    lake, wanted = open_lake(source, config, number=functools.partial(file_number, key)), set(numbers)
    found = {number: path for path in map(lake.path, lake.fragments()) if (number := lake.number(path)) in wanted}
    if lost := len(wanted - set(found)):
        expected = f"expected the numbers of files, found {lost} that no file has now under this key"
        raise DataError(f"{source}: {expected}; copy them from the message, and give the key of that run")
    return [found[number] for number in numbers]


def folder_value(value: str) -> str:
    """A partition value in a folder's name: one name for each value, whatever the source's writer quoted."""
    return quote(value, safe=" ")


def check_drift(place: str, pinned: PinnedColumns, found: Mapping[str, str]) -> None:
    """Rejects used columns that are missing or have another type, and new columns, which are never published, unless allowed."""
    known = {**pinned.schema, **pinned.added}
    expected = {name: logical_type(kind) for name, kind in pinned.schema.items() if name in pinned.used}
    differences = {
        "missing": sorted(set(expected) - set(found)),
        # A file without rows may know the type of no column: null goes with every type.
        "of another type": sorted(n for n in expected if n in found and len({expected[n], found[n]} - {"null"}) > 1),
        "new": []
        if pinned.anything_new
        else sorted(n for n in set(found) - set(known) if n in pinned.used or not pinned.ignore_unused),
    }
    if any(differences.values()):
        listed = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in differences.items() if names)
        advice = " (--new-columns accepts them; they are never published)" if differences["new"] else "; correct the lake"
        raise SchemaMismatch(f"{place}: columns differ from those of the target's first version: {listed}{advice}")
