"""Targets of whole versions, and the first one: a local folder with a link to the current version."""

import contextlib
import dataclasses
import errno
import hashlib
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from pass_core.errors import ConfigError, StorageError
from tasks.lakes.open import find_filesystem
from tasks.production.crash_points import crash_point
from tasks.production.croissant import croissant_of
from tasks.production.manifest import Manifest, OutputFile, load_manifest, to_json
from tasks.production.options import absolute
from tasks.production.writer_lock import LOCK, Lease, only_writer, only_writer_here
from tasks.storage.files import sync_file, sync_folder, write_json

CURRENT, VERSIONS = "current", "versions"
MANIFEST, CROISSANT = "_manifest.json", "_croissant.json"  # readers skip files whose names begin with _


class Target(ABC):
    """Where a protected lake is published."""

    carries = False  # a version holds unchanged partitions, too; False: they stay where an earlier version put them
    plain_lists = False  # the format supports lists of any length only

    def __init__(self, place: str, state: Path) -> None:
        self.location, self.state = absolute(place), state
        self._files, self._base = find_filesystem(self.location)
        self.folder = Path(self._base) if isinstance(self._files, pafs.LocalFileSystem) else None  # on this machine
        if self.folder and state.is_relative_to(self.folder):
            raise ConfigError(f"{state}: expected a state folder outside the target, which others may read; give another --state")

    def check(self, schema: pa.Schema, partitions: Sequence[str]) -> None:
        """Raises an error when this run could not publish these, before it works for hours; writes nothing to the target."""
        del schema, partitions  # files of a plain lake can hold all that the source's hold
        for path in filter(None, (self.folder, self.state)):
            if not os.access(_existing(path), os.W_OK):
                expected = "expected a folder that can be written to, found a read-only one"
                raise StorageError(f"{path}: {expected}; remount it, or change its owner")

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

    @contextlib.contextmanager
    def lock(self, broken: str | None = None) -> Iterator[Lease]:
        """Makes this the only writer; rejects a second one with a StorageError that names the owner.

        Writers of one state folder, and of one target folder, never work at the same time. Others may; the first one publishes.
        """
        current = self.current()
        here = only_writer_here(self.folder) if self.folder else contextlib.nullcontext()
        with only_writer(self.state, current.token if current else 0, broken) as held, here:
            self._check_writable()
            yield held

    @abstractmethod
    def _check_writable(self) -> None:
        """Raises an error when publishing would fail; called with the lock, so that it may try."""

    @abstractmethod
    def place(self, version: int, held: Lease) -> str:
        """The folder below the target for a new version's files."""

    def publish(self, manifest: Manifest, staged: Mapping[str, Path], held: Lease, base: Manifest | None) -> Manifest:
        """Publishes a version, all or nothing: first the `staged` folders of its new partitions, last what readers follow.

        `base` is the version that has the files of the other partitions. Raises a StorageError, and changes nothing that
        readers see, when the live version is no longer `manifest.previous`. The manifest as it is published.
        """
        described, croissant = self.describe(manifest, staged, base)
        self._publish(described, croissant, staged, held, base)
        return described

    @abstractmethod
    def _publish(
        self, manifest: Manifest, croissant: bytes, staged: Mapping[str, Path], held: Lease, base: Manifest | None
    ) -> None:
        """`publish`, with the version's description for catalogues."""

    @abstractmethod
    def _croissant_place(self, place: str) -> tuple[str, str]:
        """The path of a version's description below the target, and the folder that its own paths start from."""

    def describe(self, manifest: Manifest, staged: Mapping[str, Path], base: Manifest | None) -> tuple[Manifest, bytes]:
        """The description of a version for catalogues, and the manifest with its digest."""
        path, folder = self._croissant_place(manifest.place)
        made = croissant_of(manifest, self.published_schema(manifest, staged, base), folder)
        return dataclasses.replace(manifest, croissant=OutputFile(path, len(made), hashlib.sha256(made).hexdigest())), made

    def published_schema(self, manifest: Manifest, staged: Mapping[str, Path], base: Manifest | None) -> pa.Schema | None:
        """The schema of a table's file of a version, None where there is no partition."""
        for name in (*staged, *manifest.partitions):
            table = next(file.path for file in manifest.partitions[name].files if file.path.endswith(".parquet"))
            if name in staged:
                return pq.read_schema(staged[name] / table)
            return pq.read_schema(f"{self._base}/{(base or manifest).places[name]}/{table}", filesystem=self._files)
        return None

    def _overtaken(self) -> StorageError:
        return StorageError(f"{self.location}: another run has published meanwhile, so this one published nothing; run again")

    @abstractmethod
    def retire(self, keep: int) -> None:
        """Deletes all but the last `keep` versions, with the files that only they used."""


class FolderTarget(Target):
    """`versions/000007/` is a plain hive lake; unchanged partitions are hard links; `current` is a link to the newest."""

    carries = True

    def __init__(self, place: str, state: Path) -> None:
        super().__init__(place, state)
        self.root = Path(self.location)
        others = {path.name for path in self.root.iterdir()} - {LOCK} if self.root.exists() else set()
        if others and VERSIONS not in others:
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

    def check(self, schema: pa.Schema, partitions: Sequence[str]) -> None:
        super().check(schema, partitions)
        here, there = _existing(self.state).stat().st_dev, _existing(self.root).stat().st_dev
        if here != there:
            self._refuse_other_disk()

    def _check_writable(self) -> None:
        """Tries a rename: two mounts of one disk look like the same file system."""
        probe = self.state / "rename.check"
        probe.mkdir(exist_ok=True)
        try:
            probe.rename(self.root / ".rename.check").rmdir()
        except OSError as error:
            probe.rmdir()
            if error.errno != errno.EXDEV:
                raise
            self._refuse_other_disk()

    def _refuse_other_disk(self) -> NoReturn:
        expected = "expected a state folder on the target's file system, since files are moved from one to the other"
        raise ConfigError(f"{self.state}: {expected}, found another one; give --state a folder on that of {self.root}")

    def place(self, version: int, held: Lease) -> str:
        del held
        return f"{VERSIONS}/{version:06d}"

    def _croissant_place(self, place: str) -> tuple[str, str]:
        return f"{place}/{CROISSANT}", place

    def _publish(
        self, manifest: Manifest, croissant: bytes, staged: Mapping[str, Path], held: Lease, base: Manifest | None
    ) -> None:
        own, working = manifest.place, self.state / "version"
        shutil.rmtree(working, ignore_errors=True)
        working.mkdir()
        crash_point("version started")
        for name, receipt in manifest.partitions.items():
            origin = staged[name] if name in staged else self.root / base.places[name] if base else working
            for file in receipt.files:
                (working / file.path).parent.mkdir(parents=True, exist_ok=True)
                _link(origin / file.path, working / file.path)
            crash_point("version half linked")
        (working / CROISSANT).write_bytes(croissant)
        write_json(working / MANIFEST, to_json(manifest))
        crash_point("version linked")
        _settle(working)
        crash_point("version synced")
        held.check()
        before = self.current()  # nobody changes it from here on: this run holds the target's lock
        if (before.place if before else None) != manifest.previous:
            raise self._overtaken()
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
        for left in (gone, self.state / "version"):  # by runs that died: both hold published rows
            shutil.rmtree(left, ignore_errors=True)
        for folder in sorted((self.root / VERSIONS).iterdir()) if current else ():
            if current and int(folder.name) <= current.version - keep:
                folder.rename(gone)  # first out of sight: readers never see a half-deleted version
                crash_point("retired one")
                shutil.rmtree(gone)


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
    for path in (folder / MANIFEST, folder / CROISSANT):
        sync_file(path)
        os.utime(path, (0, 0))
    for path in sorted([folder, *(path for path in folder.rglob("*") if path.is_dir())], reverse=True):
        sync_folder(path)
        os.utime(path, (0, 0))


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that exists."""
    return path if path.exists() else _existing(path.parent)
