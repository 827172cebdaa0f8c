"""A Delta table as target: a version is one commit, which replaces partitions' old files by their new ones.

The files are those that workers staged, byte for byte; the log holds names, lengths and numbers of rows, and no other statistics.
Manifests are in the state folder. The commit itself records which one is current, as the version of our application.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from pass_core.errors import ConfigError, StorageError
from tasks.production.crash_points import crash_point
from tasks.production.manifest import NO_VALUE, Manifest, load_manifest, to_json
from tasks.production.versions import ObjectTarget
from tasks.storage.files import sync_file, write_json

if TYPE_CHECKING:
    from deltalake import DeltaTable

APPLICATION = "pass-pipeline"
NO_STATISTICS = {"delta.dataSkippingNumIndexedCols": "0"}  # also when the table is compacted later


class DeltaTarget(ObjectTarget):
    """A Delta table; files keep their hive folders, since some readers (polars) take partition values from those alone."""

    plain_lists = True

    def __init__(self, place: str, state: Path) -> None:
        super().__init__(place, state)
        self._seen: tuple[int, dict[str, Mapping[str, str | None]]] = (-1, {})
        self.current()

    def current(self) -> Manifest | None:
        table = self._table()
        if table is None:
            return None
        number = table.transaction_version(APPLICATION)
        if number is None:
            raise ConfigError(f"{self.location}: expected a protected lake or none, found another table; choose another target")
        return load_manifest(self._manifest(number >> 32, number & 0xFFFFFFFF))

    def manifests(self) -> dict[int, Manifest]:
        # Of two with one number the later was published, with the larger token.
        paths = {int(path.stem.split("-")[0]): path for path in sorted((self.state / "manifests").glob("*.json"))}
        return {version: load_manifest(paths[version]) for version in self._commits() if version in paths}

    def place(self, version: int, token: int) -> str:
        return f"{version:06d}-{token:08x}"

    def holds(self, manifest: Manifest, partition: str) -> bool:
        paths = [f"{manifest.places[partition]}/{file.path}" for file in manifest.partitions[partition].files]
        return all(path in self._adds() for path in paths) and self.has_files(manifest, partition)

    def _save(self, manifest: Manifest) -> None:
        path = self._manifest(manifest.version, manifest.token)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json(path, to_json(manifest))
        sync_file(path)

    def _make_live(self, manifest: Manifest, staged: Mapping[str, Path], base: Manifest | None) -> None:
        table = self._table()
        with _one_line_errors(self.location):
            if table is not None and base is not None and manifest.restores is not None:
                table.restore(self._commits()[base.version], commit_properties=_properties(manifest))
            else:
                self._commit(table, manifest, staged)

    def retire(self, keep: int) -> None:
        """Vacuums files that the last `keep` versions do not contain; older versions of the table can no longer be read."""
        table, current = self._table(), self.current()
        if table is None or current is None:
            return
        commits, oldest = self._commits().items(), current.version - keep + 1
        wanted = sorted(commit for version, commit in commits if oldest <= version <= current.version)
        with _one_line_errors(self.location):
            table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True, keep_versions=wanted)
        crash_point("retired one")
        for path in (self.state / "manifests").glob("*.json"):
            if int(path.stem.split("-")[0]) < oldest:
                path.unlink()

    def _commit(self, table: "DeltaTable | None", manifest: Manifest, staged: Mapping[str, Path]) -> None:
        from deltalake import Schema
        from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

        own, adds = self.place(manifest.version, manifest.token), []
        fields: list[pa.Field] = []
        for name, folder in staged.items():
            for file in manifest.partitions[name].files:
                rows = json.dumps({"numRecords": pq.read_metadata(folder / file.path).num_rows})
                adds.append(AddAction(f"{own}/{file.path}", file.bytes, _values(name), 0, True, rows))
            fields = fields or list(pq.read_schema(folder / manifest.partitions[name].files[0].path))
        columns, properties = list(_values(next(iter(manifest.partitions), "."))), _properties(manifest)
        # Partition columns are text.
        schema = Schema.from_arrow(pa.schema([*fields, *(pa.field(column, pa.string()) for column in columns)]))
        if table is None:
            more: dict[str, Any] = {"configuration": NO_STATISTICS, "commit_properties": properties}
            create_table_with_add_actions(self.location, schema, adds, partition_by=columns, **more)
            return
        # All files of partitions that are replaced or removed go, by any writer; those of unchanged partitions stay.
        kept = [_values(name) for name in manifest.partitions if name not in staged]
        gone = [RemoveAction(path, True, 0, None, dict(v)) for path, v in self._adds().items() if dict(v) not in kept]
        known = schema if staged else table.schema()
        table.create_write_transaction([*adds, *gone], "append", known, columns, commit_properties=properties)

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
