"""Targets: a local folder of whole versions with a link to the current one, and the same in an object store without rename."""

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.fs as pafs

from pass_core.errors import ConfigError, DataError, StorageError
from tasks.lakes.open import find_filesystem
from tasks.production.crash_points import crash_point
from tasks.production.interfaces import Held, Target
from tasks.production.manifest import Manifest, read_manifest, to_json
from tasks.production.writer_lock import only_writer
from tasks.storage.files import read_json, sync_file, sync_folder, write_json

CURRENT, VERSIONS, MANIFEST = "current", "versions", "_manifest.json"  # readers overlook files whose names begin with _
TargetFormat = Literal["parquet", "delta"]


def open_target(place: str, state: Path, form: TargetFormat | None = None) -> Target:
    """The target at a path or URL; `state` is its private folder, which for a path must be on the same file system.

    Args:
        form: None means what is there, and Parquet where nothing is.
    """
    if form == "delta" or (form is None and _holds_delta_log(place)):
        from tasks.production.delta import DeltaTarget

        return DeltaTarget(place, state)
    return ObjectTarget(place, state) if "://" in place else FolderTarget(Path(place), state)


def _holds_delta_log(place: str) -> bool:
    """Looked up without deltalake, whose threads a forked process cannot use, and which does not know every store."""
    files, base = find_filesystem(place)
    return bool(files.get_file_info(f"{base}/_delta_log").type == pafs.FileType.Directory)


def default_state(place: str) -> Path:
    """The private folder of a local target: beside it, so that files can be moved between them."""
    if "://" in place:
        raise ConfigError(f"{place}: expected --state, a local folder for staging, receipts and ledger")
    target = Path(place).resolve()
    return target.parent / f".{target.name}.state"


class FolderTarget:
    """`versions/000007/` is a plain hive lake; unchanged partitions are hard links; `current` is a link to the newest."""

    carries, plain_lists = True, False

    def __init__(self, root: Path, state: Path) -> None:
        self.root, self.state = root.resolve(), state.resolve()
        if self.state.is_relative_to(self.root):
            raise ConfigError(f"state {state}: expected a folder outside the target, which others may read")
        if self.root.exists() and any(self.root.iterdir()) and not (self.root / VERSIONS).is_dir():
            raise ConfigError(f"{root}: holds other files: expected an empty folder or a protected lake")

    def current(self) -> Manifest | None:
        link = self.root / CURRENT
        if not link.is_symlink():
            return None
        path = link / MANIFEST
        return read_manifest(read_json(path), str(path))

    def lock(self) -> AbstractContextManager[Held]:
        current = self.current()
        return only_writer(self.state, current.token if current else 0)

    def free_bytes(self) -> int | None:
        self.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        return shutil.disk_usage(self.state).free

    def holds(self, manifest: Manifest, partition: str) -> bool:
        folder = self.root / manifest.places[partition]
        return all((folder / file.path).is_file() for file in manifest.partitions[partition].files)

    def place(self, version: int, token: int) -> str:
        del token
        return f"{VERSIONS}/{version:06d}"

    def publish(self, manifest: Manifest, staged: Mapping[str, Path], held: Held) -> None:
        before, own = self.current(), self.place(manifest.version, manifest.token)
        working = self.state / "version"
        shutil.rmtree(working, ignore_errors=True)
        working.mkdir()
        crash_point("version started")
        for name, receipt in manifest.partitions.items():
            origin = staged[name] if name in staged else self.root / before.places[name] if before else working
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
        shutil.rmtree(self.root / own, ignore_errors=True)  # what a run left that died before the pointer moved
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

    def retire(self, keep: int) -> list[int]:
        current = self.current()
        numbers = sorted(int(path.name) for path in (self.root / VERSIONS).iterdir()) if current else []
        old = [number for number in numbers if current and number <= current.version - keep]
        for number in old:
            gone = self.state / "retired"
            shutil.rmtree(gone, ignore_errors=True)
            (self.root / self.place(number, 0)).rename(gone)  # out of sight first: nobody reads a version half deleted
            crash_point("retired one")
            shutil.rmtree(gone)
        return old


class ObjectTarget:
    """Files of a version under a name of its own; unchanged partitions stay where they are; the pointer object comes last.

    Stores without conditional writes cannot keep two machines apart: the lock is the state folder's. A writer that finds a larger
    token behind the pointer stops.
    """

    carries, plain_lists = False, False

    def __init__(self, place: str, state: Path) -> None:
        self._files, self._base = find_filesystem(place)
        self._place, self.state = place, state.resolve()

    def current(self) -> Manifest | None:
        pointer = self._read(f"{CURRENT}.json")
        if pointer is None:
            return None
        path = str(pointer["manifest"])
        return read_manifest(self._read(path), f"{self._place}/{path}")

    def lock(self) -> AbstractContextManager[Held]:
        current = self.current()
        return only_writer(self.state, current.token if current else 0)

    def free_bytes(self) -> int | None:
        self.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        return shutil.disk_usage(self.state).free  # staging is local

    def holds(self, manifest: Manifest, partition: str) -> bool:
        paths = [f"{self._base}/{manifest.places[partition]}/{file.path}" for file in manifest.partitions[partition].files]
        return all(info.type == pafs.FileType.File for info in self._files.get_file_info(paths))

    def place(self, version: int, token: int) -> str:
        return f"{VERSIONS}/{version:06d}-{token:08x}"

    def publish(self, manifest: Manifest, staged: Mapping[str, Path], held: Held) -> None:
        own = self.place(manifest.version, manifest.token)
        crash_point("version started")
        for name, folder in staged.items():
            for file in manifest.partitions[name].files:
                self._upload(folder / file.path, f"{own}/{file.path}")
            crash_point("version half linked")
        self._write(f"{own}/{MANIFEST}", to_json(manifest))
        crash_point("version named")
        held.check()
        before = self.current()
        if before is not None and before.token >= manifest.token:
            raise StorageError(f"{self._place}: a later writer has published; nothing was published here")
        self._write(f"{CURRENT}.json", {"version": manifest.version, "manifest": f"{own}/{MANIFEST}"})
        crash_point("pointer moved")

    def retire(self, keep: int) -> list[int]:
        """Also removes what runs left that died before the pointer moved."""
        current = self.current()
        if current is None:
            return []
        files = self._list(VERSIONS)
        manifests = {path: raw for path in files if path.endswith(f"/{MANIFEST}") and (raw := self._read(path))}
        # Of two with one number the later one was published: by token, which names end with.
        latest = {raw["version"]: path for path, raw in sorted(manifests.items())}
        kept = {path: manifests[path] for version, path in latest.items() if current.version - keep < version <= current.version}
        used = {
            f"{raw['places'][name]}/{file['path']}"
            for raw in kept.values()
            for name, receipt in raw["partitions"].items()
            for file in receipt["files"]
        }
        for path in sorted(set(files) - used - set(kept), key=lambda path: path.endswith(MANIFEST)):
            self._files.delete_file(f"{self._base}/{path}")
            crash_point("retired one")
        return sorted(version for version, path in latest.items() if path not in kept)

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
            raise DataError(f"{self._place}/{path}: is damaged: not JSON; restore it") from None

    def _write(self, path: str, value: dict[str, Any]) -> None:
        self._create(path)
        with self._files.open_output_stream(f"{self._base}/{path}") as stream:
            stream.write(json.dumps(value, indent=2, ensure_ascii=False).encode())

    def _upload(self, local: Path, path: str) -> None:
        self._create(path)
        pafs.copy_files(str(local), f"{self._base}/{path}", pafs.LocalFileSystem(), self._files)

    def _create(self, path: str) -> None:
        """Object stores know no folders; file systems behind the same interface do."""
        with contextlib.suppress(OSError):
            self._files.create_dir(f"{self._base}/{path}".rsplit("/", 1)[0], recursive=True)


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
    """Names and manifest on disk, and no time on them that tells when a partition was made."""
    sync_file(folder / MANIFEST)
    for path in _folders_below(folder):
        sync_folder(path)
        os.utime(path, (0, 0))
    os.utime(folder / MANIFEST, (0, 0))


def _folders_below(folder: Path) -> Iterable[Path]:
    return sorted([folder, *(path for path in folder.rglob("*") if path.is_dir())], reverse=True)
