"""An object store as target: it has no rename, so the manifest says where files are, and a pointer names the live manifest."""

import contextlib
import functools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from pass_core.errors import DataError
from tasks.production.crash_points import crash_point
from tasks.production.manifest import Manifest, read_manifest, to_json
from tasks.production.pointer import Pointer, open_pointer
from tasks.production.versions import CURRENT, MANIFEST, VERSIONS, Target
from tasks.production.writer_lock import Lease
from tasks.storage.files import sync_file

CROISSANTS = "_croissant-"  # before the version in the names of descriptions


class ObjectTarget(Target):
    """Each version's files have a folder of their own; unchanged partitions stay where they are; the pointer object comes last.

    The pointer is replaced only while it is what this run started from, so of two writers anywhere one publishes. Each run's
    files have names of their own; those of runs that lost or died are deleted once their version can no longer be published.
    """

    def check(self, schema: pa.Schema, partitions: Sequence[str]) -> None:
        super().check(schema, partitions)
        self._pointer.read()  # also refuses a store without conditional writes

    @functools.cached_property
    def _pointer(self) -> Pointer:
        return open_pointer(f"{self.location}/{CURRENT}.json", self._files, f"{self._base}/{CURRENT}.json")

    def _check_writable(self) -> None:
        self._pointer.check()

    def current(self) -> Manifest | None:
        pointer, _ = self._pointer.read()
        return self._load(str(pointer["manifest"])) if pointer else None

    def manifests(self) -> dict[int, Manifest]:
        found: dict[int, Manifest] = {}
        one = self.current()
        while one is not None:
            found[one.version] = one
            path = self._manifest(one.previous) if one.previous else None
            one = self._load(path) if path and self._exists(path) else None
        return found

    def has_files(self, manifest: Manifest, partition: str) -> bool:
        paths = [f"{self._base}/{manifest.places[partition]}/{file.path}" for file in manifest.partitions[partition].files]
        return all(info.type == pafs.FileType.File for info in self._files.get_file_info(paths))

    def place(self, version: int, held: Lease) -> str:
        return f"{VERSIONS}/{version:06d}-{held.nonce}"

    def _croissant_place(self, place: str) -> tuple[str, str]:
        return f"{CROISSANTS}{place.rpartition('/')[2]}.json", ""  # in the root: its files are in several versions' folders

    def _publish(
        self, manifest: Manifest, croissant: bytes, staged: Mapping[str, Path], held: Lease, base: Manifest | None
    ) -> None:
        crash_point("version started")
        for name, folder in staged.items():
            for file in manifest.partitions[name].files:
                self._upload(folder / file.path, f"{manifest.place}/{file.path}")
            crash_point("version half linked")
        if manifest.croissant:
            self._write(manifest.croissant.path, croissant)
        self._write(self._manifest(manifest.place), _json(to_json(manifest)))
        crash_point("version named")
        held.check()
        self._make_live(manifest, staged, base)
        crash_point("pointer moved")

    def _make_live(self, manifest: Manifest, staged: Mapping[str, Path], base: Manifest | None) -> None:
        del staged, base  # their files are where they stay
        pointer, tag = self._pointer.read()
        found = pointer["manifest"] if pointer else None
        if found != (self._manifest(manifest.previous) if manifest.previous else None):
            raise self._overtaken()
        if not self._pointer.replace({"version": manifest.version, "manifest": self._manifest(manifest.place)}, tag):
            raise self._overtaken()

    def retire(self, keep: int) -> None:
        """Also removes what runs left that lost or died; the next version's files, if another run uploads them now, stay."""
        current, used = self.current(), set()
        if current is None:
            return
        for version, one in self.manifests().items():
            if current.version - keep < version:
                used.add(self._manifest(one.place))
                used |= {f"{one.places[name]}/{file.path}" for name, made in one.partitions.items() for file in made.files}
        old = [path for path in self._list(VERSIONS) if int(path.split("/")[1].split("-")[0]) <= current.version]
        self._delete(self._old_croissants(current.version, keep))
        self._delete(sorted(set(old) - used, key=lambda path: path.endswith(MANIFEST)))

    def _old_croissants(self, current: int, keep: int) -> list[str]:
        """The descriptions of versions that are no longer kept, and of runs that lost or died."""
        kept = {one.croissant.path for version, one in self.manifests().items() if current - keep < version and one.croissant}
        found = {path: path.split("-")[1] for path in self._list("", recursive=False) if path.startswith(CROISSANTS)}
        return [path for path, number in found.items() if path not in kept and number.isdecimal() and int(number) <= current]

    def _manifest(self, place: str) -> str:
        return f"{place}/{MANIFEST}"

    def _load(self, path: str) -> Manifest:
        return read_manifest(self._read(path), f"{self.location}/{path}")

    def _exists(self, path: str) -> bool:
        return bool(self._files.get_file_info(f"{self._base}/{path}").type == pafs.FileType.File)

    def _delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):  # a store's mark of a folder
                self._files.delete_file(f"{self._base}/{path}")
            crash_point("retired one")

    def _list(self, folder: str, *, recursive: bool = True) -> list[str]:
        """Files below a folder, by their path below the target."""
        place = f"{self._base}/{folder}".rstrip("/")
        found = self._files.get_file_info(pafs.FileSelector(place, recursive=recursive, allow_not_found=True))
        return [info.path.removeprefix(f"{self._base}/") for info in found if info.type == pafs.FileType.File]

    def _read(self, path: str) -> dict[str, Any] | None:
        try:
            with self._files.open_input_stream(f"{self._base}/{path}") as stream:
                return dict(json.loads(stream.read()))
        except FileNotFoundError:
            return None
        except (pa.ArrowException, ValueError):
            raise DataError(f"{self.location}/{path}: expected JSON, found a damaged file; restore it") from None

    def _write(self, path: str, data: bytes) -> None:
        with self._files.open_output_stream(self._created(path)) as stream:
            stream.write(data)
        self._settle(path)

    def _upload(self, local: Path, path: str) -> None:
        pafs.copy_files(str(local), self._created(path), pafs.LocalFileSystem(), self._files)
        self._settle(path)

    def _settle(self, path: str) -> None:
        """In a folder: writes a file to disk, and removes the time that would show when it was made."""
        if self.folder:
            sync_file(self.folder / path)
            os.utime(self.folder / path, (0, 0))

    def _created(self, path: str) -> str:
        """The whole path; object stores have no folders, file systems behind the same interface do."""
        with contextlib.suppress(OSError):
            self._files.create_dir(f"{self._base}/{path}".rsplit("/", 1)[0], recursive=True)
        return f"{self._base}/{path}"


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode()
