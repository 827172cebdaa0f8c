"""A data lake of one's own: hive-partitioned Parquet, Delta Lake or CSV, on this machine or in an object store.

Columns are named in params.yaml; docs/lakes.md shows an example. Several lakes are several sections with `reader: lake`. The
table is read in batches, one file after the other; hive partition columns are columns like any other. A damaged *payload* goes
to quarantine; a damaged *table* file ends the run, since nobody can tell which records it held.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs
from pyarrow import csv

from pass_core.data import FloatArray
from pass_core.errors import ConfigError, DataError, SchemaMismatch, StorageError
from tasks.dataset_config import DatasetConfig
from tasks.datasets.base import RawRecords, Reading, split_of
from tasks.encoded import check_encoded
from tasks.lake import RESERVED_COLUMNS, SPLITS
from tasks.payloads import MAX_FILE_BYTES, Payload, PayloadKind
from tasks.quarantine import Quarantine

RECORDS_AT_ONCE = 32  # of any length: a file may have hundreds of MB
MAX_CLASSES = 1000


@dataclass(frozen=True, slots=True)
class LakeConfig(DatasetConfig):
    """Where the lake is and what its columns mean."""

    source: str = ""  # a path or URL; relative to the data set's raw folder, which is the default
    format: Literal["parquet", "delta", "csv"] = "parquet"
    record_id: str = ""  # column that names a record; unique
    payload: tuple[str, ...] = ()  # one column, or several of numbers that make a vector together
    payload_kind: PayloadKind = "vector"
    payload_is_path: bool = False  # the column holds paths below the source; the files' bytes become the payload
    payload_shape: tuple[int, ...] = ()  # of vectors, such as [2, 128]; default: as long as the first one
    payload_low: float | None = None  # what a sane value lies in; validation fails outside
    payload_high: float | None = None
    person: str | None = None  # whom a record is about; people are never split between train and test
    block: str | None = None  # records that depend on each other; default: the person's
    split: str | None = None  # column that holds train or test; default: a seeded split by person
    split_seed: int = 0
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # attribute -> classes; default: those found
    pass_through: tuple[str, ...] = ()  # columns that leave beside the payload as they are: known to every attacker

    def __post_init__(self) -> None:
        DatasetConfig.__post_init__(self)
        if not self.record_id or not self.payload:
            raise ConfigError("expected the columns `record_id` and `payload` of the lake")
        if len(self.payload) > 1 and (self.payload_kind != "vector" or self.payload_is_path):
            raise ConfigError(f"payload: expected one column of {self.payload_kind} payloads, found {len(self.payload)}")
        if self.payload_is_path and self.payload_kind == "vector":
            raise ConfigError("payload_is_path: expected payload_kind image or audio")
        named = {self.record_id, *self.payload, self.person, self.block, self.split}
        clash = sorted(map(str, set(self.pass_through) & (named | {*RESERVED_COLUMNS, *self.columns()})))
        if clash:
            raise ConfigError(f"pass_through: may not leave as it is: {', '.join(clash)}")
        if set(self.columns()) & set(RESERVED_COLUMNS):
            raise ConfigError(f"an attribute may not be called any of {', '.join(RESERVED_COLUMNS)}; rename the column")

    @property
    def needs_raw(self) -> bool:
        return "://" not in self.source and not self.source.startswith("/")


class Lake:
    """A lake of one's own."""

    summary: ClassVar[str] = "your own data: Parquet, Delta Lake or CSV, local or s3://, gs://, abfs:// (docs/lakes.md)"
    config_type: ClassVar[type[LakeConfig]] = LakeConfig
    attribute_names: ClassVar[tuple[str, ...] | None] = None

    def read(self, raw: Path, config: LakeConfig, quarantine: Quarantine) -> Reading:
        source = config.source if "://" in config.source else str(raw / config.source)
        filesystem, folder = _filesystem(source)
        table, flags = _open(source, filesystem, folder, config)
        _check_columns(table, config, source)
        with _table_errors(source, config.format):
            payload = _payload(table, config, source)
            classes = {name: config.classes.get(name) or _found_classes(table, name, source) for name in config.columns()}
            rows = table.count_rows()
        reading = _Lake(source, filesystem, folder, config, payload, classes)
        return Reading(payload, classes, reading.batches(table, quarantine), rows, flags)


@contextlib.contextmanager
def _table_errors(place: str, kind: str) -> Iterator[None]:
    """Damage as one line without a value; a disk or network that failed as something to try again."""
    try:
        yield
    except pa.ArrowException:
        raise DataError(f"{place}: is damaged: not readable as {kind}; restore it") from None
    except OSError as error:  # Arrow raises it for damage too, then without an error number
        if error.errno is None or isinstance(error, FileNotFoundError):
            raise DataError(f"{place}: is damaged or gone: not readable as {kind}; restore it") from None
        raise StorageError(f"{place}: cannot be read now ({error.strerror}); run again") from None


def _filesystem(source: str) -> tuple[pafs.FileSystem, str]:
    """Arrow's own file systems first, then whatever fsspec knows."""
    if "://" not in source:
        return pafs.LocalFileSystem(), source
    try:
        found: tuple[pafs.FileSystem, str] = pafs.FileSystem.from_uri(source)
    except pa.ArrowInvalid:
        import fsspec

        try:
            filesystem, path = fsspec.core.url_to_fs(source)
        except (ValueError, ImportError) as error:
            scheme = source.split("://", 1)[0]
            raise ConfigError(f"source: no file system for {scheme}://: install the fsspec package for it ({error})") from None
        return pafs.PyFileSystem(pafs.FSSpecHandler(filesystem)), path
    return found


def _open(source: str, filesystem: pafs.FileSystem, folder: str, config: LakeConfig) -> tuple[ds.Dataset, dict[str, int]]:
    flags, kind = {}, config.format
    try:
        if kind == "delta":
            from deltalake import DeltaTable

            delta = DeltaTable(source)
            table, flags["delta version"] = delta.to_pyarrow_dataset(), delta.version()
        else:
            files = _table_files(filesystem, folder, kind)
            form = _csv_format(config) if kind == "csv" else kind
            table = ds.dataset(files, filesystem=filesystem, format=form, partitioning="hive", partition_base_dir=folder)
    except DataError as error:
        raise DataError(f"{source}: {error}") from None
    except Exception as error:  # noqa: BLE001
        # Errors of Delta Lake and of object stores share no base class, and their text may hold values of statistics.
        raise DataError(f"{source}: cannot be opened as {kind} ({type(error).__name__}); check `source` and `format`") from None
    return table, flags


def _csv_format(config: LakeConfig) -> ds.CsvFileFormat:
    """Names and classes are text: read as a number, 007 would be 7."""
    texts = [config.record_id, config.person, config.block, config.split, *config.columns()]
    return ds.CsvFileFormat(convert_options=csv.ConvertOptions(column_types={name: pa.string() for name in texts if name}))


def _table_files(filesystem: pafs.FileSystem, folder: str, suffix: str) -> list[str]:
    """The table's files below a folder (payload files may lie beside them), or the one file that `folder` is."""
    if filesystem.get_file_info(folder).type == pafs.FileType.File:
        return [folder]
    found = filesystem.get_file_info(pafs.FileSelector(folder, recursive=True, allow_not_found=True))
    files = [file.path for file in found if file.type == pafs.FileType.File and file.path.endswith(f".{suffix}")]
    hidden = ("_", ".")  # _temporary, _delta_log, .crc: what other programs leave for themselves
    shown = sorted(
        path for path in files if not any(part.startswith(hidden) for part in PurePosixPath(path.removeprefix(folder)).parts)
    )
    if not shown:
        raise DataError(f"expected files named *.{suffix} are missing; check `source` and `format`")
    return shown


def _check_columns(table: ds.Dataset, config: LakeConfig, source: str) -> None:
    named = [config.record_id, *config.payload, config.person, config.block, config.split]
    named += [*config.columns(), *config.pass_through]
    missing = [name for name in named if name is not None and name not in table.schema.names]
    if missing:
        raise SchemaMismatch(
            f"{source}: missing columns: {', '.join(missing)}; found {', '.join(table.schema.names)}; correct params.yaml"
        )
    for name in config.columns():
        if pa.types.is_floating(_value_type(table.schema.field(name).type)):
            raise SchemaMismatch(f"{source}: column {name!r} holds floats: expected text, whole numbers or booleans as classes")


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _payload(table: ds.Dataset, config: LakeConfig, source: str) -> Payload:
    """What the payload column holds; a vector's length is the first one's, where the parameters do not tell."""
    kinds = [_value_type(table.schema.field(name).type) for name in config.payload]
    numbers = all(pa.types.is_floating(kind) or pa.types.is_integer(kind) for kind in kinds)
    if config.payload_kind != "vector":
        wanted = pa.types.is_string if config.payload_is_path else _is_binary
        if not wanted(kinds[0]) and not (config.payload_is_path and pa.types.is_large_string(kinds[0])):
            expected = "text" if config.payload_is_path else "binary"
            raise SchemaMismatch(f"{source}: column {config.payload[0]!r}: expected {expected}, found {kinds[0]}")
        return Payload(config.payload_kind)
    if numbers:
        length = len(config.payload)
    elif len(kinds) == 1 and _is_list(kinds[0]) and pa.types.is_floating(kinds[0].value_type):
        length = (config.payload_shape and int(np.prod(config.payload_shape))) or _first_length(table, config.payload[0], source)
    else:
        raise SchemaMismatch(f"{source}: payload {', '.join(config.payload)}: expected numbers or a list of floats per record")
    shape = config.payload_shape or (length,)
    if int(np.prod(shape)) != length:
        raise SchemaMismatch(f"{source}: payload: expected {int(np.prod(shape))} numbers per record, found {length}")
    return Payload("vector", shape, config.payload_low, config.payload_high)


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _first_length(table: ds.Dataset, column: str, source: str) -> int:
    first = table.head(1, columns=[column]).column(0).to_pylist()
    if not first or not first[0]:
        raise DataError(f"{source}: the first payload is missing or empty; check the lake")
    return len(first[0])


def _found_classes(table: ds.Dataset, name: str, source: str) -> tuple[str, ...]:
    """All classes of an attribute, numbers in their order; one pass over its column."""
    found: set[str] = set()
    for batch in table.to_batches(columns=[name]):
        found |= set(_texts(batch.column(0), name, source))
        if len(found) > MAX_CLASSES:
            raise DataError(f"{source}: column {name!r} has more than {MAX_CLASSES} classes: not an attribute")
    numbers = all(re.fullmatch(r"-?[0-9]+", value) for value in found)
    return tuple(sorted(found, key=lambda value: (int(value), value)) if numbers else sorted(found))


def _texts(column: pa.Array, name: str, source: str) -> list[str]:
    """A column of text, whole numbers or booleans as text; a missing value is an error."""
    if column.null_count:
        raise DataError(f"{source}: column {name!r}: {column.null_count} record(s) have no value; fill or remove them")
    try:
        texts: list[str] = pc.cast(_plain(column), pa.string()).to_pylist()
    except pa.ArrowException:
        raise SchemaMismatch(
            f"{source}: column {name!r}: expected text, whole numbers or booleans, found {column.type}"
        ) from None
    return texts


def _plain(column: pa.Array) -> pa.Array:
    """Partition columns come as dictionaries."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


@dataclass(frozen=True, slots=True)
class _Lake:
    """A lake that was opened and checked."""

    source: str
    filesystem: pafs.FileSystem
    folder: str
    config: LakeConfig
    payload: Payload
    classes: Mapping[str, tuple[str, ...]]
    split_of_person: dict[str, str] = field(default_factory=dict)

    def batches(self, table: ds.Dataset, quarantine: Quarantine) -> Iterator[RawRecords]:
        """The records of one file after the other, files by name."""
        config = self.config
        columns = {config.record_id, *config.payload, *config.columns(), *config.pass_through}
        columns |= {name for name in (config.person, config.block, config.split) if name}
        for fragment in sorted(table.get_fragments(), key=lambda fragment: str(fragment.path)):
            row, place = 0, str(fragment.path).removeprefix(self.folder).lstrip("/")
            batches = fragment.to_batches(
                schema=table.schema, columns=sorted(columns), batch_size=RECORDS_AT_ONCE, batch_readahead=1, fragment_readahead=1
            )
            while True:
                with _table_errors(f"{self.source}, {place}", config.format):
                    batch = next(batches, None)
                if batch is None:
                    break
                yield self._records(batch, place, row, quarantine)
                row += len(batch)

    def _records(self, batch: pa.RecordBatch, place: str, row: int, quarantine: Quarantine) -> RawRecords:
        config = self.config

        def texts(name: str) -> list[str]:
            return _texts(batch.column(name), name, place)

        payloads, kept = self._payloads(batch, place, row, quarantine)
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
            passed={name: _plain(batch.column(name)).take(pa.array(kept, pa.int64())) for name in config.pass_through},
        )

    def _payloads(
        self, batch: pa.RecordBatch, place: str, row: int, quarantine: Quarantine
    ) -> tuple[FloatArray | list[bytes], list[int]]:
        """Payloads that can be used, and the positions of their records."""
        kept: list[int] = []
        if self.payload.kind == "vector":
            rows = self._rows(batch)
            length = int(np.prod(self.payload.shape))
            for position, values in enumerate(rows):
                if values is None or len(values) != length or any(value is None for value in values):
                    quarantine.add(f"{place}, row {row + position}", f"expected a payload of {length} numbers")
                else:
                    kept.append(position)
            made = np.array([rows[position] for position in kept], dtype=np.float32)
            return made.reshape(len(kept), *self.payload.shape), kept
        encoded: list[bytes] = []
        for position, value in enumerate(batch.column(self.config.payload[0]).to_pylist()):
            try:
                data = self._bytes(value)
                check_encoded(self.payload.kind, data)
            except DataError as error:
                quarantine.add(f"{place}, row {row + position}", f"payload {error}")
            else:
                encoded.append(data)
                kept.append(position)
        return encoded, kept

    def _rows(self, batch: pa.RecordBatch) -> list[Any]:
        columns = [batch.column(name) for name in self.config.payload]
        if _is_list(columns[0].type):
            rows: list[Any] = columns[0].to_pylist()
            return rows
        return list(zip(*(column.to_pylist() for column in columns), strict=True))

    def _bytes(self, value: Any) -> bytes:
        """A payload's bytes, read from below the source where the column holds paths."""
        if value is None:
            raise DataError("is missing")
        if not self.config.payload_is_path:
            data: bytes = value
        else:
            path = PurePosixPath(value)
            if path.is_absolute() or ".." in path.parts:
                raise DataError("has a path that leaves the source")
            try:
                with self.filesystem.open_input_stream(f"{self.folder}/{path}", compression=None) as stream:
                    data = stream.read(MAX_FILE_BYTES + 1)
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError, pa.ArrowException):
                raise DataError("has a path to no readable file") from None
            except OSError as error:
                raise StorageError(f"{self.source}: a payload cannot be read now ({error.strerror}); run again") from None
        if len(data) > MAX_FILE_BYTES:
            raise DataError(f"is larger than {MAX_FILE_BYTES // 2**20} MB")
        return data


DATASET = Lake()
