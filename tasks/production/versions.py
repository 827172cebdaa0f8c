"""Targets of whole versions: a local folder with a link to the current one, and an object store, which has no rename."""

import contextlib
import errno
import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from pass_core.errors import ConfigError, DataError, StorageError
from tasks.lakes.open import find_filesystem
from tasks.production.crash_points import crash_point
from tasks.production.manifest import Manifest, load_manifest, read_manifest, to_json
from tasks.production.options import absolute
from tasks.production.writer_lock import Lease, only_writer
from tasks.storage.files import sync_file, sync_folder, write_json

CURRENT, VERSIONS, MANIFEST = "current", "versions", "_manifest.json"  # readers skip files whose names begin with _


class Target(ABC):
    """Where a protected lake is published."""

    carries = False  # a version holds unchanged partitions, too; False: they stay where an earlier version put them
    plain_lists = False  # the format supports lists of any length only

    def __init__(self, place: str, state: Path) -> None:
        self.location, self.state = absolute(place), state
        if "://" not in place and state.is_relative_to(self.location):
            raise ConfigError(f"{state}: expected a state folder outside the target, which others may read; give another --state")

    @abstractmethod
    def current(self) -> Manifest | None:
        """The manifest that readers see; None before the first version."""

    @abstractmethod
    def manifests(self) -> dict[int, Manifest]:
        """The manifests of all published versions that are kept, by version."""

    @abstractmethod
    def has_files(self, manifest: Manifest, partition: str) -> bool:
        """Whether the files of a version's partition exist."""

    def holds(self, manifest: Manifest, partition: str) -> bool:
        """Whether readers find the files of a partition of the current version."""
        return self.has_files(manifest, partition)

    def lock(self) -> AbstractContextManager[Lease]:
        """Makes this the only writer; rejects a second one with a StorageError that names the owner."""
        current = self.current()
        return only_writer(self.state, current.token if current else 0)

    @abstractmethod
    def place(self, version: int, token: int) -> str:
        """The folder below the target for a new version's files."""

    @abstractmethod
    def publish(self, manifest: Manifest, staged: Mapping[str, Path], held: Lease, base: Manifest | None) -> None:
        """Publishes a version, all or nothing: first the `staged` folders of its new partitions, last what readers follow.

        `base` is the version that has the files of the other partitions.
        """

    @abstractmethod
    def retire(self, keep: int) -> None:
        """Deletes all but the last `keep` versions, with the files that only they used."""


class FolderTarget(Target):
    """`versions/000007/` is a plain hive lake; unchanged partitions are hard links; `current` is a link to the newest."""

    carries = True

    def __init__(self, place: str, state: Path) -> None:
        super().__init__(place, state)
        self.root = Path(self.location)
        if self.root.exists() and any(self.root.iterdir()) and not (self.root / VERSIONS).is_dir():
            raise ConfigError(f"{place}: expected an empty folder or a protected lake, found other files; choose another target")

    def current(self) -> Manifest | None:
        link = self.root / CURRENT
        return load_manifest(link / MANIFEST) if link.is_symlink() else None

    def manifests(self) -> dict[int, Manifest]:
        current = self.current()
        found = map(load_manifest, sorted(self.root.glob(f"{VERSIONS}/*/{MANIFEST}")))
        return {one.version: one for one in found if current and one.version <= current.version}

    def has_files(self, manifest: Manifest, partition: str) -> bool:
        folder = self.root / manifest.places[partition]
        return all((folder / file.path).is_file() for file in manifest.partitions[partition].files)

    def place(self, version: int, token: int) -> str:
        del token
        return f"{VERSIONS}/{version:06d}"

    def publish(self, manifest: Manifest, staged: Mapping[str, Path], held: Lease, base: Manifest | None) -> None:
        own, working = self.place(manifest.version, manifest.token), self.state / "version"
        shutil.rmtree(working, ignore_errors=True)
        working.mkdir()
        crash_point("version started")
        for name, receipt in manifest.partitions.items():
            origin = staged[name] if name in staged else self.root / base.places[name] if base else working
            for file in receipt.files:
                (working / file.path).parent.mkdir(parents=True, exist_ok=True)
                _link(origin / file.path, working / file.path)
            crash_point("version half linked")
        write_json(working / MANIFEST, to_json(manifest))
        crash_point("version linked")
        _settle(working)
        crash_point("version synced")
        held.check()
        versions = self.root / VERSIONS
        versions.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.root / own, ignore_errors=True)  # left by a run that died before the pointer moved
        working.rename(self.root / own)
        sync_folder(versions)
        crash_point("version named")
        link = self.root / f".{CURRENT}"
        link.unlink(missing_ok=True)
        link.symlink_to(own)
        crash_point("pointer made")
        held.check()
        link.replace(self.root / CURRENT)
        sync_folder(self.root)
        crash_point("pointer moved")

    def retire(self, keep: int) -> None:
        current, gone = self.current(), self.state / "retired"
        for folder in sorted((self.root / VERSIONS).iterdir()) if current else ():
            if current and int(folder.name) <= current.version - keep:
                shutil.rmtree(gone, ignore_errors=True)
                folder.rename(gone)  # first out of sight: readers never see a half-deleted version
                crash_point("retired one")
                shutil.rmtree(gone)


class ObjectTarget(Target):
    """Each version's files have a folder of their own; unchanged partitions stay where they are; the pointer object comes last.

    Stores without conditional writes cannot keep two machines apart: the lock is in the state folder. A writer that finds a
    larger token behind the pointer stops.
    """

    def __init__(self, place: str, state: Path) -> None:
        super().__init__(place, state)
        self._files, self._base = find_filesystem(self.location)

    def current(self) -> Manifest | None:
        pointer = self._read(f"{CURRENT}.json")
        if pointer is None:
            return None
        path = str(pointer["manifest"])
        return read_manifest(self._read(path), f"{self.location}/{path}")

    def manifests(self) -> dict[int, Manifest]:
        current, found = self.current(), self._latest(self._list(VERSIONS))
        return {version: one for version, one in found.items() if current and version <= current.version}

    def has_files(self, manifest: Manifest, partition: str) -> bool:
        paths = [f"{self._base}/{manifest.places[partition]}/{file.path}" for file in manifest.partitions[partition].files]
        return all(info.type == pafs.FileType.File for info in self._files.get_file_info(paths))

    def place(self, version: int, token: int) -> str:
        return f"{VERSIONS}/{version:06d}-{token:08x}"

    def publish(self, manifest: Manifest, staged: Mapping[str, Path], held: Lease, base: Manifest | None) -> None:
        own = self.place(manifest.version, manifest.token)
        crash_point("version started")
        for name, folder in staged.items():
            for file in manifest.partitions[name].files:
                self._upload(folder / file.path, f"{own}/{file.path}")
            crash_point("version half linked")
        self._save(manifest)
        crash_point("version named")
        held.check()
        before = self.current()
        if before is not None and before.token >= manifest.token:
            raise StorageError(f"{self.location}: a later writer has published, so this run published nothing; run again")
        self._make_live(manifest, staged, base)
        crash_point("pointer moved")

    def _save(self, manifest: Manifest) -> None:
        self._write(f"{self.place(manifest.version, manifest.token)}/{MANIFEST}", to_json(manifest))

    def _make_live(self, manifest: Manifest, staged: Mapping[str, Path], base: Manifest | None) -> None:
        del staged, base  # their files are where they stay
        path = f"{self.place(manifest.version, manifest.token)}/{MANIFEST}"
        self._write(f"{CURRENT}.json", {"version": manifest.version, "manifest": path})

    def retire(self, keep: int) -> None:
        """Also removes what runs left that died before the pointer moved."""
        current = self.current()
        if current is None:
            return
        files, used = self._list(VERSIONS), set()
        for version, one in self._latest(files).items():
            if current.version - keep < version <= current.version:
                used.add(f"{self.place(version, one.token)}/{MANIFEST}")
                used |= {f"{one.places[name]}/{file.path}" for name, made in one.partitions.items() for file in made.files}
        for path in sorted(set(files) - used, key=lambda path: path.endswith(MANIFEST)):
            self._files.delete_file(f"{self._base}/{path}")
            crash_point("retired one")

    def _latest(self, files: list[str]) -> dict[int, Manifest]:
        """Version -> its manifest; of two with one number the later was published, with the larger token."""
        paths = [path for path in sorted(files) if path.endswith(f"/{MANIFEST}")]
        manifests = [read_manifest(raw, f"{self.location}/{path}") for path in paths if (raw := self._read(path))]
        return {one.version: one for one in manifests}

    def _list(self, folder: str) -> list[str]:
        """Files below a folder, by their path below the target."""
        found = self._files.get_file_info(pafs.FileSelector(f"{self._base}/{folder}", recursive=True, allow_not_found=True))
        return [info.path.removeprefix(f"{self._base}/") for info in found if info.type == pafs.FileType.File]

    def _read(self, path: str) -> dict[str, Any] | None:
        try:
            with self._files.open_input_stream(f"{self._base}/{path}") as stream:
                return dict(json.loads(stream.read()))
        except FileNotFoundError:
            return None
        except (pa.ArrowException, ValueError):
            raise DataError(f"{self.location}/{path}: expected JSON, found a damaged file; restore it") from None

    def _write(self, path: str, value: dict[str, Any]) -> None:
        with self._files.open_output_stream(self._created(path)) as stream:
            stream.write(json.dumps(value, indent=2, ensure_ascii=False).encode())

    def _upload(self, local: Path, path: str) -> None:
        pafs.copy_files(str(local), self._created(path), pafs.LocalFileSystem(), self._files)

    def _created(self, path: str) -> str:
        """The whole path; object stores have no folders, file systems behind the same interface do."""
        with contextlib.suppress(OSError):
            self._files.create_dir(f"{self._base}/{path}".rsplit("/", 1)[0], recursive=True)
        return f"{self._base}/{path}"


def _link(origin: Path, path: Path) -> None:
    """The same file under a second name; a copy where the file system has no hard links."""
    try:
        os.link(origin, path)
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EXDEV}:
            raise
        shutil.copyfile(origin, path)
        os.utime(path, (0, 0))
        sync_file(path)


def _settle(folder: Path) -> None:
    """Writes names and manifest to disk, and removes the times that would show when a partition was made."""
    sync_file(folder / MANIFEST)
    for path in sorted([folder, *(path for path in folder.rglob("*") if path.is_dir())], reverse=True):
        sync_folder(path)
        os.utime(path, (0, 0))
    os.utime(folder / MANIFEST, (0, 0))
