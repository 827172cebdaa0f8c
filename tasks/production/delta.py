"""A Delta table as target: a version is one commit, which replaces partitions' old files by their new ones.

The files are those that workers staged, byte for byte; the log holds names, lengths and numbers of rows, and no other statistics.
Manifests are beside them. The commit itself records which one is current, as the version of our application, and is made only
while the table is what this run started from: Delta's own check of the version that was read.
"""

import contextlib
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from pass_core.errors import ConfigError, DataError, StorageError
from tasks.production.crash_points import crash_point
from tasks.production.manifest import NO_VALUE, Manifest
from tasks.production.object_store import CROISSANTS, ObjectTarget
from tasks.production.versions import Target
from tasks.production.writer_lock import Lease

if TYPE_CHECKING:
    from deltalake import DeltaTable

APPLICATION, MANIFESTS = "pass-pipeline", "_manifests"  # readers of Delta skip folders whose names begin with _
NO_STATISTICS = {"delta.dataSkippingNumIndexedCols": "0"}  # also when the table is compacted later


class DeltaTarget(ObjectTarget):
    """A Delta table; files keep their hive folders, since some readers (polars) take partition values from those alone."""

    plain_lists = True

    def __init__(self, place: str, state: Path) -> None:
        super().__init__(place, state)
        self._seen: tuple[int, dict[str, Mapping[str, str | None]]] = (-1, {})
        self.current()

    def check(self, schema: pa.Schema, partitions: Sequence[str]) -> None:
        Target.check(self, schema, partitions)  # there is no pointer: the table's log decides
        bad = [field.name for field in schema if not _fits(field.type)]
        if bad:
            expected = "expected column types that Delta has (docs/operations.md, Delta tables), found others in"
            raise ConfigError(f"{self.location}: {expected} {', '.join(bad)}; convert them, or give --target-format parquet")
        if empty := sum(value == "" for name in partitions for value in _values(name).values()):
            expected = f"expected partition values that Delta has, found {empty} empty text(s), which it reads as no value"
            raise ConfigError(f"{self.location}: {expected}; name them in the source, or give --target-format parquet")
        table, columns = self._table(), _partition_columns(partitions)
        if table is not None and partitions and (known := table.metadata().partition_columns) != columns:
            expected = (
                f"expected the table's partition columns ({', '.join(known) or 'none'}), found {', '.join(columns) or 'none'}"
            )
            raise ConfigError(f"{self.location}: {expected}; pass the same columns through, or choose another target")

    def _check_writable(self) -> None:
        path = f".{secrets.token_hex(4)}.check"
        try:
            self._write(path, b"{}")
            self._files.delete_file(f"{self._base}/{path}")
        except OSError as error:  # an object store's has no number
            found = f"cannot be written ({error.strerror or type(error).__name__})"
            raise StorageError(f"{self.location}: {found}; give this run the right to write, then run again") from None

    def current(self) -> Manifest | None:
        place = self._place_in(self._table())
        return self._load(self._manifest(place)) if place else None

    def holds(self, manifest: Manifest, partition: str) -> bool:
        paths = [f"{manifest.places[partition]}/{file.path}" for file in manifest.partitions[partition].files]
        return all(path in self._adds() for path in paths) and self.has_files(manifest, partition)

    def place(self, version: int, held: Lease) -> str:
        return f"{version:06d}-{held.nonce}"

    def _make_live(self, manifest: Manifest, staged: Mapping[str, Path], base: Manifest | None) -> None:
        table = self._table()  # one snapshot: a commit of another run between here and ours makes ours fail
        if self._place_in(table) != manifest.previous:
            raise self._overtaken()
        with _one_line_errors(self.location):
            if table is not None and base is not None and base.place != manifest.previous and manifest.restores is not None:
                table.restore(self._commits()[base.version], commit_properties=_properties(manifest))
            else:
                self._commit(table, manifest, staged)

    def retire(self, keep: int) -> None:
        """Deletes files that the last `keep` versions do not contain; older versions of the table can no longer be read.

        Files of the next version, which another run may be uploading, stay: a vacuum would delete them.
        """
        table, current = self._table(), self.current()
        if table is None or current is None:
            return
        commits, oldest = self._commits().items(), current.version - keep + 1
        wanted = sorted(commit for version, commit in commits if oldest <= version <= current.version)
        with _one_line_errors(self.location):
            unused = table.vacuum(0, dry_run=True, enforce_retention_duration=False, full=True, keep_versions=wanted)
        used = {self._manifest(one.place) for version, one in self.manifests().items() if oldest <= version}
        old = [one for one in map(unquote, unused) if not one.startswith(CROISSANTS)]
        old += [path for path in self._list(MANIFESTS) if path not in used]
        self._delete(self._old_croissants(current.version, keep))
        self._delete(path for path in old if path and _version_of(path.removeprefix(f"{MANIFESTS}/")) <= current.version)
        crash_point("retired one")

    def _place_in(self, table: "DeltaTable | None") -> str | None:
        """The place of the version that a table shows."""
        if table is None:
            return None
        number = table.transaction_version(APPLICATION)
        if number is None:
            raise ConfigError(f"{self.location}: expected a protected lake or none, found another table; choose another target")
        return f"{number >> 32:06d}-{number & 0xFFFFFFFF:08x}"

    def _manifest(self, place: str) -> str:
        return f"{MANIFESTS}/{place}.json"

    def _commit(self, table: "DeltaTable | None", manifest: Manifest, staged: Mapping[str, Path]) -> None:
        from deltalake import Schema
        from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

        own, adds, fields = manifest.place, [], list[pa.Field]()
        for name, folder in staged.items():
            for file in manifest.partitions[name].files:
                rows = json.dumps({"numRecords": pq.read_metadata(folder / file.path).num_rows})
                adds.append(AddAction(f"{own}/{file.path}", file.bytes, _values(name), 0, True, rows))
            fields = fields or list(pq.read_schema(folder / manifest.partitions[name].files[0].path))
        columns, properties = _partition_columns(manifest.partitions), _properties(manifest)
        # Partition columns are text.
        schema = Schema.from_arrow(pa.schema([*fields, *(pa.field(column, pa.string()) for column in columns)]))
        if table is None:
            more: dict[str, Any] = {"configuration": NO_STATISTICS, "commit_properties": properties}
            create_table_with_add_actions(self.location, schema, adds, partition_by=columns, **more)
            return
        # All files of partitions that are replaced or removed go, by any writer; those of unchanged partitions stay.
        kept = [_values(name) for name in manifest.partitions if name not in staged]
        if staged and schema != table.schema():  # the table's own schema changes only when all files are replaced
            if kept:
                found = f"found {len(kept)} partition(s) that keep the old ones"
                raise DataError(f"{self.location}: expected all partitions with the new columns, {found}; protect them all")
            table.create_write_transaction(adds, "overwrite", schema, columns, commit_properties=properties)
            return
        gone = [RemoveAction(path, True, 0, None, dict(v)) for path, v in self._adds().items() if dict(v) not in kept]
        table.create_write_transaction([*adds, *gone], "append", table.schema(), columns, commit_properties=properties)

    def _commits(self) -> dict[int, int]:
        """Version -> the table's own number of its commit."""
        table = self._table()
        history = reversed(table.history()) if table else ()
        return {entry["passVersion"]: entry["version"] for entry in history if entry.get("passVersion") is not None}

    def _table(self) -> "DeltaTable | None":
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(self.location)
        except TableNotFoundError:
            return None
        except OSError as error:  # its text may hold values of statistics
            found = f"cannot be read now ({type(error).__name__})"
            raise StorageError(f"{self.location}: {found}; check that it exists and access to it, then run again") from None

    def _adds(self) -> Mapping[str, Mapping[str, str | None]]:
        """The table's files now, with their partition values."""
        table = self._table()
        if table is None:
            return {}
        if self._seen[0] != table.version():
            rows = pa.table(table.get_add_actions(flatten=False)).to_pylist()
            # The log quotes paths; actions that add or remove a file take the plain ones.
            self._seen = (table.version(), {unquote(row["path"]): row.get("partition") or {} for row in rows})
        return self._seen[1]


def _fits(kind: pa.DataType) -> bool:
    """Whether readers of a Delta table find the values that a file of this type holds."""
    from deltalake import Schema

    nested = [kind.field(k).type for k in range(kind.num_fields)]
    if pa.types.is_unsigned_integer(kind) or pa.types.is_date64(kind):  # become signed ones, and days
        return False
    if pa.types.is_timestamp(kind) and kind.unit == "ns":  # a feature of tables that few readers have
        return False
    try:
        Schema.from_arrow(pa.schema([pa.field("column", kind)]))
    except Exception:  # noqa: BLE001 (an error of Rust, whose class is Exception itself)
        return False
    return all(map(_fits, nested))


def _partition_columns(partitions: Iterable[str]) -> list[str]:
    return list(_values(next(iter(partitions), ".")))


def _values(partition: str) -> dict[str, str | None]:
    """`day=2026-11-01/hour=7` -> the values of the columns."""
    pairs = [part.split("=", 1) for part in partition.split("/") if "=" in part]
    return {column: None if value == NO_VALUE else unquote(value) for column, value in pairs}


def _version_of(path: str) -> int:
    """The version whose run wrote a file; 0 for files of others."""
    number = path.partition("-")[0]
    return int(number) if number.isdecimal() else 0


def _properties(manifest: Manifest) -> Any:
    from deltalake import CommitProperties, Transaction

    nonce = int(manifest.place.rpartition("-")[2], 16)
    current = Transaction(APPLICATION, manifest.version << 32 | nonce)
    return CommitProperties({"passVersion": manifest.version}, max_commit_retries=0, app_transactions=[current])


@contextlib.contextmanager
def _one_line_errors(place: str) -> Iterator[None]:
    """Errors of the table in one line; their own text may hold values."""
    from deltalake.exceptions import CommitFailedError, DeltaError

    try:
        yield
    except CommitFailedError:
        raise StorageError(f"{place}: another run has changed the table meanwhile; run again") from None
    except DeltaError as error:
        raise StorageError(f"{place}: cannot be written as a Delta table now ({type(error).__name__}); run again") from None
