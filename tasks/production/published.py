"""Published files against their recorded digests: before they are kept for the next version, and for `lake verify`."""

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from pass_core.errors import ChecksumMismatch, DataError, StorageError
from tasks.lakes.open import find_filesystem
from tasks.production.file_states import State, content_digest, content_digests, file_states
from tasks.production.manifest import Manifest
from tasks.production.versions import Target
from tasks.storage.files import read_json, storage_errors, sync_file, sync_folder, write_json

FILE = "published.json"  # in the private state folder


@dataclass(frozen=True, slots=True)
class Damage:
    """A partition of the live version whose files are not those that were published, or its description for catalogues."""

    # of the partition, counted in the manifest's order, since names may hold private values; 0 for the description
    number: int
    differing: int  # files with other bytes than were published
    missing: int
    restored: bool = False  # from an intact copy in another version

    def name(self, of: int) -> str:
        """What is damaged, without the partition's name."""
        return f"partition {self.number} of {of}" if self.number else "croissant.json"


class PublishedFiles:
    """The files of a target; those whose state is the same as when their digest was last verified are not read again."""

    def __init__(self, target: Target) -> None:
        self._target, self._path = target, target.state / FILE
        self._files, self._base = find_filesystem(target.location)
        self._known: dict[str, tuple[State, str]] = {}  # path below the target -> state and digest when it was read
        with contextlib.suppress(DataError, TypeError, AttributeError, ValueError):  # lost or damaged: the files are read again
            self._known = {path: (state, digest) for path, (state, digest) in read_json(self._path).items()}

    def damaged(self, manifest: Manifest, *, reread: bool = False) -> dict[str, dict[str, bool]]:
        """Partition -> its files (by their path below the target) that differ, and whether each is missing."""
        expected = _files_of(manifest)
        states = file_states(self._files, map(self._whole, expected))
        unread = [p for p in expected if (s := states[self._whole(p)]) and (reread or self._known.get(p, ([], ""))[0] != s)]
        found = content_digests(self._files, map(self._whole, unread))
        for path in unread:
            state, digest = states[self._whole(path)], found[self._whole(path)]
            if state is not None and digest is not None:
                self._known[path] = (state, digest)
        damage: dict[str, dict[str, bool]] = {}
        for path, (partition, digest) in expected.items():
            missing = states[self._whole(path)] is None
            if missing or self._known[path][1] != digest:
                damage.setdefault(partition, {})[path] = missing
        return damage

    def refuse_damaged(
        self, manifest: Manifest, kept: Collection[str], advice: str = "run `lake protect`, which protects them again"
    ) -> None:
        """Rejects partitions that are to be kept for the next version, but are not what was published."""
        if broken := self.damaged(manifest).keys() & set(kept):
            found = f"expected the bytes that were published, found others or none in {len(broken)} partition(s)"
            raise ChecksumMismatch(f"{self._target.location}: {found}. Nothing was published; {advice}")

    def settle(self, manifest: Manifest) -> None:
        """Notes the states of a version's files, which were verified before it was published."""
        expected = _files_of(manifest)
        local = isinstance(self._files, pafs.LocalFileSystem)
        # Links of local files change their states; objects of earlier versions stay as they are.
        unknown = [path for path in expected if local or path not in self._known]
        states = file_states(self._files, map(self._whole, unknown))
        for path in unknown:
            state = states[self._whole(path)]
            if state is None or (local and state[1] != 0):  # written since: we publish files without a time
                self._known.pop(path, None)
            else:
                self._known[path] = (state, expected[path][1])
        self._known = {path: known for path, known in self._known.items() if path in expected}
        self._save()

    def repair(self, manifest: Manifest, damage: dict[str, dict[str, bool]]) -> set[str]:
        """Restores partitions from intact copies in other versions; notes what was found in the others, for the next run."""
        copies: dict[str, list[str]] = {}
        others = [one for version, one in self._target.manifests().items() if version != manifest.version]
        for path, (_, digest) in ((path, entry) for one in others for path, entry in _files_of(one).items()):
            copies.setdefault(digest, []).append(path)
        expected, restored = _files_of(manifest), set()
        for partition, paths in damage.items():
            found = {path: self._intact(copies.get(expected[path][1], ()), expected[path][1]) for path in paths}
            origins = {path: origin for path, origin in found.items() if origin}
            if len(origins) == len(paths):
                for path, origin in origins.items():
                    self._copy(origin, path)
                    self._known.pop(path, None)
                restored.add(partition)
        self._save()
        return restored

    def damaged_croissant(self, manifest: Manifest) -> Damage | None:
        """What is wrong with the live version's description; None if it is as published, or has none, as of earlier releases."""
        described = manifest.croissant
        found = content_digest(self._files, self._whole(described.path)) if described else None
        if described is None or found == described.digest:
            return None
        return Damage(0, int(found is not None), int(found is None))

    def repair_croissant(self, manifest: Manifest) -> bool:
        """Makes the description again, byte for byte; False where another release made it, or its table cannot be read."""
        with contextlib.suppress(OSError, pa.ArrowException):
            described, data = self._target.describe(manifest, {}, manifest)
            if described.croissant and described.croissant == manifest.croissant:
                if isinstance(self._files, pafs.LocalFileSystem):
                    self._replace(described.croissant.path, lambda working: working.write_bytes(data))
                else:
                    with self._files.open_output_stream(self._whole(described.croissant.path)) as stream:
                        stream.write(data)
                return True
        return False

    def _intact(self, copies: Iterable[str], digest: str) -> str | None:
        return next((path for path in copies if content_digest(self._files, self._whole(path)) == digest), None)

    def _copy(self, origin: str, path: str) -> None:
        if not isinstance(self._files, pafs.LocalFileSystem):
            self._files.copy_file(self._whole(origin), self._whole(path))
            return
        self._replace(path, lambda working: shutil.copyfile(self._whole(origin), working))

    def _replace(self, path: str, write: Callable[[Path], object]) -> None:
        """Replaces a local file at once, and leaves no time that shows it."""
        final = Path(self._whole(path))
        final.parent.mkdir(parents=True, exist_ok=True)
        working = final.with_name(f".{final.name}")  # readers skip it
        write(working)
        sync_file(working)
        for place in (working, final.parent):
            os.utime(place, (0, 0))
        working.replace(final)
        sync_folder(final.parent)
        os.utime(final.parent, (0, 0))

    def _whole(self, path: str) -> str:
        return f"{self._base}/{path}"

    def _save(self) -> None:
        self._target.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json(self._path, {path: list(known) for path, known in sorted(self._known.items())})


def verify(target: Target, *, repair: bool = False) -> tuple[Manifest, list[Damage]]:
    """Reads every file of the live version; what differs from its recorded digest.

    `repair` restores what an intact copy exists of; the next protect run protects the other damaged partitions again.
    """
    if target.current() is None:
        raise DataError(f"{target.location}: expected a protected lake, found no published version; check TARGET and --state")
    with storage_errors(target.state), target.lock() if repair else contextlib.nullcontext():
        manifest = target.current()
        assert manifest is not None  # noqa: S101 (versions are never withdrawn)
        files = PublishedFiles(target)
        damage, croissant = files.damaged(manifest, reread=True), files.damaged_croissant(manifest)
        if (now := target.current()) != manifest:
            found = f"found version {now.version if now else 'none'}"
            raise StorageError(
                f"{target.location}: expected version {manifest.version} to stay live meanwhile, {found}; run again"
            )
        restored = files.repair(manifest, damage) if repair else set()
        if croissant and repair:
            croissant = dataclasses.replace(croissant, restored=files.repair_croissant(manifest))
    numbers = {name: number for number, name in enumerate(manifest.partitions, 1)}
    report = [croissant] if croissant else []
    for name, paths in damage.items():
        missing = sum(paths.values())
        report.append(Damage(numbers[name], len(paths) - missing, missing, name in restored))
    return manifest, sorted(report, key=lambda one: one.number)


def _files_of(manifest: Manifest) -> dict[str, tuple[str, str]]:
    """Path below the target -> partition and digest of its recorded bytes."""
    return {
        f"{manifest.places[name]}/{file.path}": (name, file.digest)
        for name, receipt in manifest.partitions.items()
        for file in receipt.files
    }
