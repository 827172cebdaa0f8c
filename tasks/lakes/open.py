"""Opens a lake: hive-partitioned Parquet, Delta Lake or CSV, in a folder or an object store."""

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs
from pyarrow import csv

from pass_core.errors import ConfigError, DataError, SchemaMismatch, StorageError
from tasks.payloads.payload import Payload
from tasks.sections.lake import LakeColumns, TableFormat

RECORDS_AT_ONCE = 32  # encoded files of any length: one may have hundreds of MB
NUMBERS_AT_ONCE = 2**20  # of vectors
INSPECTED_AT_MOST = 16  # files, until one shows the columns of the table
MAX_GROUP_BYTES = 2**30  # a Parquet row group is read as a whole


class Batch(NamedTuple):
    """Some rows of one file."""

    columns: pa.RecordBatch
    place: str  # the file, for messages
    row: int  # number of the first row within the file


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLake:
    """A lake that was opened."""

    source: str
    columns: LakeColumns
    filesystem: pafs.FileSystem
    folder: str
    table: ds.Dataset
    version: int | None  # of a Delta table
    number: Callable[[str], str]  # a file's path below the folder -> its number for messages

    def fragments(self) -> list[ds.Fragment]:
        """The table's files by name."""
        return sorted(self.table.get_fragments(), key=lambda fragment: str(fragment.path))

    def path(self, fragment: ds.Fragment) -> str:
        """A file's path below the folder of the lake; it may hold private values, so no message shows it."""
        return str(fragment.path).removeprefix(self.folder).lstrip("/")

    def place(self, fragment: ds.Fragment) -> str:
        """A file for messages: folders of columns that are published anyway, and a number instead of the rest of its path."""
        path = self.path(fragment)  # empty where the source is a single file
        shown = [part for part in PurePosixPath(path).parent.parts if part.partition("=")[0] in self.columns.pass_through]
        return "/".join([*shown, f"file {self.number(path)}"])

    def batches(self, fragments: Iterable[ds.Fragment], columns: Iterable[str], payload: Payload) -> Iterator[Batch]:
        """The rows of these files in batches; memory does not grow with the number of rows."""
        wanted, at_once = sorted(set(columns)), RECORDS_AT_ONCE
        if payload.kind == "vector":
            at_once = max(RECORDS_AT_ONCE, min(8192, NUMBERS_AT_ONCE // max(1, math.prod(payload.shape))))
        for fragment in fragments:
            row, place = 0, self.place(fragment)
            with self.reading(place):
                # A scanner reads ahead in all that it gets, whatever its options: it gets one row group at a time.
                for part in [fragment] if self.columns.format == "csv" else self._groups(fragment, place):
                    scan = {"schema": self.table.schema, "columns": wanted, "batch_size": at_once, "batch_readahead": 1}
                    for batch in part.to_batches(**scan):
                        yield Batch(batch, place, row)
                        row += len(batch)

    def require(self, names: Iterable[str]) -> None:
        """Raises a SchemaMismatch that lists the columns which the table does not have."""
        found = self.table.schema.names
        if missing := [name for name in names if name not in found]:
            listed = f"missing columns: {', '.join(missing)}; found {', '.join(found)}"
            raise SchemaMismatch(f"{self.source}: {listed}; correct the lake or params.yaml")

    @contextlib.contextmanager
    def reading(self, place: str = "") -> Iterator[None]:
        """Reports damage in one line without a value, and a disk or network that failed as an error worth a retry."""
        where, kind = f"{self.source}, {place}" if place else self.source, self.columns.format
        try:
            yield
        except pa.ArrowException:
            raise DataError(f"{where}: is damaged: not readable as {kind}; restore it") from None
        except OSError as error:  # Arrow raises it for damage too, then without an error number
            if error.errno is None or isinstance(error, FileNotFoundError):
                raise DataError(f"{where}: is damaged or gone: not readable as {kind}; restore it") from None
            raise StorageError(f"{where}: cannot be read now ({error.strerror}); run again") from None

    def read_file(self, path: str, at_most: int) -> bytes:
        """The first bytes of a file below the source, which a column of paths names."""
        try:
            with self.filesystem.open_input_stream(f"{self.folder}/{path}", compression=None) as stream:
                return bytes(stream.read(at_most))
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError, pa.ArrowException):
            raise DataError("has a path to no readable file") from None
        except OSError as error:
            raise StorageError(f"{self.source}: a payload cannot be read now ({error.strerror}); run again") from None

    def _groups(self, fragment: ds.Fragment, place: str) -> list[ds.Fragment]:
        largest = max((group.total_byte_size for group in fragment.row_groups), default=0)
        if largest > MAX_GROUP_BYTES:
            limit, found = (f"{size // 2**20} MB" for size in (MAX_GROUP_BYTES, largest))
            expected = f"expected row groups of at most {limit}, found one of {found}"
            raise DataError(f"{self.source}, {place}: {expected}; write the file with smaller ones")
        return list(fragment.split_by_row_group())


def open_lake(
    source: str, columns: LakeColumns, attributes: Iterable[str] = (), number: Callable[[str], str] | None = None
) -> OpenLake:
    """Opens the lake at a path or URL, or raises a DataError without a value.

    Args:
        attributes: more text columns of CSV files.
        number: numbers files in messages, by their path below the lake; default: by their order.
    """
    filesystem, folder = find_filesystem(source)
    version, kind = None, columns.format
    try:
        if kind == "delta":
            from deltalake import DeltaTable

            delta = DeltaTable(source)
            table, version = delta.to_pyarrow_dataset(), delta.version()
        else:
            files = _table_files(filesystem, folder, kind)
            # Ids and classes of CSV files are text: read as a number, 007 would be 7.
            options = csv.ConvertOptions(column_types=dict.fromkeys((*columns.context(), *attributes), pa.string()))
            form = ds.CsvFileFormat(convert_options=options) if kind == "csv" else kind
            table = _inspected(files, filesystem=filesystem, format=form, partitioning="hive", partition_base_dir=folder)
    except DataError as error:
        raise DataError(f"{source}: {error}") from None
    except Exception as error:  # noqa: BLE001
        # Errors of Delta Lake and of object stores share no base class, and their text may hold values of statistics.
        raise DataError(f"{source}: cannot be opened as {kind} ({type(error).__name__}); check `source` and `format`") from None
    table = _with_types(table, (*columns.context(), *columns.payload, *columns.pass_through, *attributes))
    number = number or _by_order(table, folder)
    return OpenLake(
        source=source, columns=columns, filesystem=filesystem, folder=folder, table=table, version=version, number=number
    )


def _inspected(files: list[str], **options: Any) -> ds.Dataset:
    """A dataset with the columns of its first file, or of the next ones where it is damaged: that is reported when it is read."""
    for start in range(min(len(files), INSPECTED_AT_MOST) - 1):
        with contextlib.suppress(pa.ArrowException, OSError):
            return ds.dataset(files[start:] + files[:start], **options)
    start = min(len(files), INSPECTED_AT_MOST) - 1
    return ds.dataset(files[start:] + files[:start], **options)


def _with_types(table: ds.Dataset, names: Iterable[str]) -> ds.Dataset:
    """The table with the types of these columns from its other files, where the first file has no rows and so knows none."""
    schema = table.schema
    for fragment in table.get_fragments():
        unknown = {name for name in names if name in schema.names and pa.types.is_null(schema.field(name).type)}
        if not unknown:
            break
        with contextlib.suppress(pa.ArrowException, OSError):  # a damaged file is reported when it is read
            for field in fragment.physical_schema:
                if field.name in unknown:
                    schema = schema.set(schema.get_field_index(field.name), field)
    return table if schema.equals(table.schema) else table.replace_schema(schema)


def _by_order(table: ds.Dataset, folder: str) -> Callable[[str], str]:
    @functools.cache  # once, when the first message needs it
    def order() -> dict[str, int]:
        paths = sorted(str(fragment.path).removeprefix(folder).lstrip("/") for fragment in table.get_fragments())
        return {path: position for position, path in enumerate(paths, start=1)}

    return lambda path: f"{order()[path]} of {len(order())}"


def text_column(column: pa.Array, name: str, place: str) -> pa.Array:
    """A column of text, whole numbers or booleans as text; a missing value is an error."""
    if column.null_count:
        raise DataError(f"{place}: column {name!r}: {column.null_count} record(s) have no value; fill or remove them")
    try:
        return pc.cast(plain(column), pa.string())
    except pa.ArrowException:
        found = f"expected text, whole numbers or booleans, found {column.type}"
        raise SchemaMismatch(f"{place}: column {name!r}: {found}; convert it, or choose another column") from None


def plain(column: pa.Array) -> pa.Array:
    """A column without its dictionary: Arrow reads partition columns as dictionaries."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def value_type(kind: pa.DataType) -> pa.DataType:
    """The type of a column's values, without a dictionary."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def find_filesystem(source: str) -> tuple[pafs.FileSystem, str]:
    """Arrow's own file systems first, then those of fsspec."""
    if "://" not in source:
        return pafs.LocalFileSystem(), source
    try:
        filesystem, path = pafs.FileSystem.from_uri(source)
    except pa.ArrowInvalid:
        import fsspec

        try:
            filesystem, path = fsspec.core.url_to_fs(source)
        except (ValueError, ImportError) as error:
            scheme = source.split("://", 1)[0]
            raise ConfigError(f"source: no file system for {scheme}://: install the fsspec package for it ({error})") from None
        filesystem = pafs.PyFileSystem(pafs.FSSpecHandler(filesystem))
    return filesystem, path


def _table_files(filesystem: pafs.FileSystem, folder: str, suffix: str) -> list[str]:
    """The table's files below a folder (payload files may lie beside them), or the one file that `folder` is."""
    if filesystem.get_file_info(folder).type == pafs.FileType.File:
        return [folder]
    found = filesystem.get_file_info(pafs.FileSelector(folder, recursive=True, allow_not_found=True))
    files = [file.path for file in found if file.type == pafs.FileType.File and file.path.endswith(f".{suffix}")]
    hidden = ("_", ".")  # _temporary, _delta_log, .crc: files that other programs keep for themselves
    shown = [p for p in files if not any(part.startswith(hidden) for part in PurePosixPath(p.removeprefix(folder)).parts)]
    if not shown:
        raise DataError(f"expected files named *.{suffix} are missing; check `source` and `format`")
    return sorted(shown)


def table_format(path: Path) -> TableFormat:
    """The format of the table at a path, by the files found there."""
    if not path.exists():
        raise DataError(f"{path}: expected a Parquet, Delta or CSV table, found nothing; check the path")
    if (path / "_delta_log").is_dir():
        return "delta"
    suffixes = {file.suffix for file in ([path] if path.is_file() else path.rglob("*.*")) if file.is_file()}
    return "csv" if ".csv" in suffixes and ".parquet" not in suffixes else "parquet"
