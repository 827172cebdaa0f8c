"""A Delta table as target: a version is one commit, which replaces partitions' old files by their new ones.

The files are those that workers staged, byte for byte; the log holds names, lengths and numbers of rows, and no other statistics.
Manifests are in the state folder. The commit itself records which one is current, as the version of our application.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from pass_core.errors import ConfigError, StorageError
from tasks.production.crash_points import crash_point
from tasks.production.manifest import Manifest, read_manifest, to_json
from tasks.production.versions import ObjectTarget
from tasks.production.writer_lock import Lease
from tasks.storage.files import read_json, sync_file, write_json

if TYPE_CHECKING:
    from deltalake import DeltaTable

APPLICATION = "pass-pipeline"
NO_STATISTICS = {"delta.dataSkippingNumIndexedCols": "0"}  # also when the table is compacted later
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


class DeltaTarget(ObjectTarget):
    """A Delta table in a folder or an object store.

    Files keep their hive folders: some readers (polars) take partition values from the folders alone.
    """

    plain_lists = True

    def __init__(self, place: str, state: Path) -> None:
        super().__init__(place, state)
        self._seen: tuple[int, dict[str, Mapping[str, str | None]]] = (-1, {})
        self.current()

    def current(self) -> Manifest | None:
        table = self._table()
        number = table.transaction_version(APPLICATION) if table else None
        if number is None:
            if table:
                raise ConfigError(
                    f"{self.location}: expected an empty folder or a protected lake, found another table; choose another target"
                )
            return None
        path = self._manifest(number >> 32, number & 0xFFFFFFFF)
        return read_manifest(read_json(path), str(path))

    def manifests(self) -> dict[int, Manifest]:
        # Of two with one number the later was published, with the larger token.
        paths = {int(path.stem.split("-")[0]): path for path in sorted((self.state / "manifests").glob("*.json"))}
        return {
            version: read_manifest(read_json(paths[version]), str(paths[version]))
            for version in self._commits()
            if version in paths
        }

    def place(self, version: int, token: int) -> str:
        return f"{version:06d}-{token:08x}"

    def holds(self, manifest: Manifest, partition: str) -> bool:
        paths = [f"{manifest.places[partition]}/{file.path}" for file in manifest.partitions[partition].files]
        return all(path in self._adds() for path in paths) and self.has_files(manifest, partition)

    def publish(self, manifest: Manifest, staged: Mapping[str, Path], held: Lease, base: Manifest | None) -> None:
        own = self.place(manifest.version, manifest.token)
        crash_point("version started")
        for name, folder in staged.items():
            for file in manifest.partitions[name].files:
                self._upload(folder / file.path, f"{own}/{file.path}")
            crash_point("version half linked")
        path = self._manifest(manifest.version, manifest.token)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json(path, to_json(manifest))
        sync_file(path)
        crash_point("version named")
        held.check()
        before = self.current()
        if before is not None and before.token > manifest.token:
            raise StorageError(f"{self.location}: another run has published meanwhile, so this one published nothing; run again")
        if manifest.restores is not None and base is not None:
            self._restore(manifest, base)
        else:
            self._commit(manifest, staged, own)
        crash_point("pointer moved")

    def retire(self, keep: int) -> None:
        """Vacuums files that the last `keep` versions do not contain; older versions of the table can no longer be read."""
        table, current = self._table(), self.current()
        if table is None or current is None:
            return
        wanted = sorted(
            commit for version, commit in self._commits().items() if current.version - keep < version <= current.version
        )
        with _one_line_errors(self.location):
            table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True, keep_versions=wanted)
        crash_point("retired one")
        for path in (self.state / "manifests").glob("*.json"):
            if int(path.stem.split("-")[0]) <= current.version - keep:
                path.unlink()

    def _commit(self, manifest: Manifest, staged: Mapping[str, Path], own: str) -> None:
        from deltalake import Schema
        from deltalake.transaction import create_table_with_add_actions

        adds = [
            _add(f"{own}/{file.path}", folder / file.path, name)
            for name, folder in staged.items()
            for file in manifest.partitions[name].files
        ]
        properties = _properties(manifest)
        columns, schema = self._columns(manifest, staged)
        table = self._table()
        with _one_line_errors(self.location):
            if table is None:
                create_table_with_add_actions(
                    self.location,
                    Schema.from_arrow(schema),
                    adds,
                    partition_by=columns,
                    configuration=NO_STATISTICS,
                    commit_properties=properties,
                )
            else:
                removed = self._removals(set(manifest.partitions) - set(staged))
                known = table.schema() if not staged else Schema.from_arrow(schema)
                table.create_write_transaction([*adds, *removed], "append", known, columns, commit_properties=properties)

    def _restore(self, manifest: Manifest, base: Manifest) -> None:
        table = self._table()
        if table is not None:
            with _one_line_errors(self.location):
                table.restore(self._commits()[base.version], commit_properties=_properties(manifest))

    def _commits(self) -> dict[int, int]:
        """Version -> the table's own number of its commit."""
        table = self._table()
        history = reversed(table.history()) if table else ()
        return {entry["passVersion"]: entry["version"] for entry in history if entry.get("passVersion") is not None}

    def _removals(self, unchanged: set[str]) -> list[Any]:
        """All files of partitions that are replaced or removed, by any writer; those of unchanged partitions stay."""
        from deltalake.transaction import RemoveAction

        kept = [_values(name) for name in unchanged]
        gone = {path: values for path, values in self._adds().items() if dict(values) not in kept}
        return [RemoveAction(path, True, 0, None, dict(values)) for path, values in gone.items()]

    def _columns(self, manifest: Manifest, staged: Mapping[str, Path]) -> tuple[list[str], pa.Schema]:
        """Partition columns, which are text, and all columns."""
        columns = list(_values(next(iter(manifest.partitions), ".")))
        fields: Sequence[pa.Field] = ()
        for name, folder in list(staged.items())[:1]:
            fields = list(pq.read_schema(folder / manifest.partitions[name].files[0].path))
        return columns, pa.schema([*fields, *(pa.field(column, pa.string()) for column in columns)])

    def _table(self) -> "DeltaTable | None":
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(self.location)
        except TableNotFoundError:
            return None

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

    def _upload(self, local: Path, path: str) -> None:
        super()._upload(local, path)
        if isinstance(self._files, pafs.LocalFileSystem):
            sync_file(Path(self._base) / path)
            os.utime(Path(self._base) / path, (0, 0))

    def _manifest(self, version: int, token: int) -> Path:
        return self.state / "manifests" / f"{self.place(version, token)}.json"


def _values(partition: str) -> dict[str, str | None]:
    """`day=2026-11-01/hour=7` -> the values of the columns."""
    pairs = [part.split("=", 1) for part in partition.split("/") if "=" in part]
    return {column: None if value == NO_VALUE else unquote(value) for column, value in pairs}


def _add(path: str, local: Path, partition: str) -> Any:
    from deltalake.transaction import AddAction

    rows = json.dumps({"numRecords": pq.read_metadata(local).num_rows})
    return AddAction(path, local.stat().st_size, _values(partition), 0, True, rows)


def _properties(manifest: Manifest) -> Any:
    from deltalake import CommitProperties, Transaction

    current = Transaction(APPLICATION, manifest.version << 32 | manifest.token)
    return CommitProperties({"passVersion": manifest.version}, max_commit_retries=0, app_transactions=[current])


@contextlib.contextmanager
def _one_line_errors(place: str) -> Iterator[None]:
    """Errors of the table in one line; their own text may hold values."""
    from deltalake.exceptions import CommitFailedError, DeltaError

    try:
        yield
    except CommitFailedError:
        raise StorageError(f"{place}: another writer has changed the table meanwhile; run again") from None
    except DeltaError as error:
        raise StorageError(f"{place}: cannot be written as a Delta table now ({type(error).__name__}); run again") from None
