"""Partitions that are protected but not published: each in a private folder with its receipt, whole or absent."""

import contextlib
import dataclasses
import hashlib
import itertools
import os
import platform
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from pass_core.data import Attribute
from pass_core.errors import ConfigError, DataError, StorageError
from tasks.production.file_states import content_digests
from tasks.production.inputs import notes_of
from tasks.production.interfaces import Sample
from tasks.production.manifest import RECEIPT, Pins, Receipt, read_receipt, to_json
from tasks.production.source_files import Notes
from tasks.storage.files import file_digest, read_json, sync_file, sync_folder, write_json

DATA, INPUTS, PINNED = "data", "inputs.json", "pinned.json"
CARRIED = "carried."  # before the names of attributes among a sample's arrays


def _slug(partition: str) -> str:
    return hashlib.sha256(partition.encode()).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class Staged:
    """A partition in staging."""

    folder: Path
    receipt: Receipt
    source: str  # digest of the source partition when it was read
    working: Mapping[str, str]  # digests of the files that are not published

    def digests(self) -> Iterator[tuple[str, str]]:
        """Every file below the folder, except the receipt, with its digest when it was written."""
        yield from self.working.items()
        yield from ((f"{DATA}/{file.path}", file.digest) for file in self.receipt.files)

    def columns(self) -> str:
        """Columns and types, read from the written files."""
        tables = [self.folder / DATA / file.path for file in self.receipt.files if file.path.endswith(".parquet")]
        return " / ".join(sorted({str(pq.read_schema(path)) for path in tables}))

    def load(self, name: Literal["donors", "draws"]) -> np.ndarray:
        """How often each donor was drawn, or the ledger's pairs of hashes: record and payload, sorted by record."""
        with _whole(self.folder):
            return np.asarray(np.load(self.folder / f"{name}.npy", mmap_mode="r"))

    def inputs(self) -> tuple[Notes, Notes]:
        """Notes of the files that were read, of the table and of recordings."""
        with _whole(self.folder):
            return notes_of(read_json(self.folder / INPUTS))

    def sample(self) -> dict[str, np.ndarray]:
        """The records for the audit gate."""
        with _whole(self.folder), np.load(self.folder / "sample.npz") as arrays:
            return {name: arrays[name] for name in arrays.files}


class Staging:
    """A private folder of staged partitions, all made with the same pins and the same arithmetic."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def pin(self, pins: Pins, numerics: Mapping[str, Any], ledger: str, left_out: str) -> None:
        """Begins or resumes a run; deletes what was staged with other pins, rejects what was staged with other arithmetic.

        `ledger` is the id of the key that staged records are hashed with, `left_out` the digest of the erased ones.
        """
        now = {"pins": dataclasses.asdict(pins), "numerics": dict(numerics), "ledger": ledger, "left_out": left_out}
        path = self.folder / PINNED
        before = _readable(path)
        if {**before, "numerics": now["numerics"]} == now and before["numerics"] != now["numerics"] and self._folders():
            differ = sorted(name for name in numerics if before["numerics"].get(name) != numerics[name])
            found = f"an unfinished run computed with another {', '.join(differ)}, and its draws could differ"
            raise ConfigError(f"{self.folder}: {found}; finish it where it started, or delete the folder to start again")
        if before != now:
            self.clear()
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json(path, now, sync=True)
        sync_folder(self.folder)

    def finished(self) -> dict[str, Staged]:
        """The partitions that are whole; removes what a killed worker left half-written, and what has no readable receipt."""
        found = {}
        for folder in self._folders():
            staged = _staged_in(folder)
            if staged is None:
                shutil.rmtree(folder)
            else:
                found[staged.receipt.partition] = staged
        return found

    def forget_damaged(self) -> int:
        """Removes partitions whose files are not those that were written; their number."""
        staged = list(self.finished().values())
        found = content_digests(LocalFileSystem(), [f"{one.folder}/{path}" for one in staged for path, _ in one.digests()])
        damaged = [one for one in staged if any(found[f"{one.folder}/{path}"] != digest for path, digest in one.digests())]
        for one in damaged:
            shutil.rmtree(one.folder)
        return len(damaged)

    def refuse_damaged(self) -> None:
        """Rejects files that are not those that were staged, and removes their partitions."""
        if damaged := self.forget_damaged():
            found = f"expected the bytes that were staged, found others in {damaged} partition(s), which were removed"
            raise StorageError(f"{self.folder}: {found}. Nothing was published: check the disk, then run again")

    def check_room(self, needed: int) -> None:
        """Checks the free space (bytes) before hours of work, not after them."""
        place = self.folder.parent
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        free = shutil.disk_usage(place).free
        if free < needed:
            expected = f"expected about {needed // 2**20} MB of free space for the new version, found {free // 2**20} MB"
            raise StorageError(f"{place}: {expected}: free some, then run again")

    def in_work(self, partitions: Iterable[str]) -> list[str]:
        """Those of these partitions that dead workers have left half-written; removes what they left."""
        found = {name: left for name in partitions if (left := list(self.folder.glob(f"{_slug(name)}.*")))}
        for folder in itertools.chain.from_iterable(found.values()):
            shutil.rmtree(folder, ignore_errors=True)
        return list(found)

    def forget(self, partition: str) -> None:
        shutil.rmtree(self.folder / _slug(partition), ignore_errors=True)

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _folders(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("*") if path.is_dir())


@contextlib.contextmanager
def staged_folder(staging: Path, partition: str) -> Iterator[Path]:
    """An empty folder that gets the partition's name when the block succeeds and is deleted when it fails."""
    working, final = staging / f"{_slug(partition)}.{platform.node()}.{os.getpid()}", staging / _slug(partition)
    shutil.rmtree(working, ignore_errors=True)
    (working / DATA).mkdir(parents=True, mode=0o700)
    try:
        yield working
        for place in [path for path in working.rglob("*") if path.is_dir()] + [working]:
            sync_folder(place)
        if final.exists():
            shutil.rmtree(final)
        working.rename(final)
        sync_folder(staging)
    except BaseException:
        shutil.rmtree(working, ignore_errors=True)
        raise


@contextlib.contextmanager
def _whole(folder: Path) -> Iterator[None]:
    """Reports a damaged file of a staged partition, which the next run protects again."""
    try:
        yield
    except (DataError, KeyError, OSError, TypeError, ValueError, EOFError, zipfile.BadZipFile):
        raise StorageError(
            f"{folder}: expected a staged partition, found a damaged file; check the disk, then run again"
        ) from None


def write_receipt(folder: Path, receipt: Receipt, source: str) -> None:
    """Ends a staged partition: makes the files that are not published durable, and notes their digests with the receipt."""
    working = sorted(path for path in folder.iterdir() if path.is_file())
    for path in working:
        sync_file(path)
    digests = {path.name: file_digest(path) for path in working}
    write_json(folder / RECEIPT, {"receipt": to_json(receipt), "source": source, "working": digests}, sync=True)


def _staged_in(folder: Path) -> Staged | None:
    """What is staged in a folder; None where it is not whole: then the partition is protected again."""
    found = _readable(folder / RECEIPT)
    try:
        receipt, source, working = read_receipt(found["receipt"]), str(found["source"]), dict(found["working"])
        whole = all((folder / DATA / file.path).stat().st_size == file.bytes for file in receipt.files)
    except (DataError, FileNotFoundError, KeyError, TypeError, ValueError):
        return None
    return Staged(folder, receipt, source, working) if whole else None


def _readable(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty where there is none: a power cut can leave an empty file."""
    with contextlib.suppress(DataError):
        return dict(found) if isinstance(found := read_json(path), dict) else {}
    return {}


def joined_arrays(staged: Mapping[str, Staged], wanted: Mapping[str, int]) -> dict[str, np.ndarray]:
    """The first records in the shuffled order, as many of each partition as wanted."""
    parts = [(staged[name].sample(), wanted[name]) for name in sorted(staged) if wanted[name]]
    return {name: np.concatenate([part[name][:count] for part, count in parts]) for name in parts[0][0]}


def make_sample(
    new: Mapping[str, np.ndarray], recent: Mapping[str, np.ndarray], attributes: tuple[Attribute, ...], of: int
) -> Sample:
    """New records and, after them, recent ones, as one sample."""
    arrays = {name: np.concatenate([values, recent[name]]) if recent else values for name, values in new.items()}
    # Numbered as they appear: the hashes depend on the state folder's own key, and the gate's verdict must not.
    _, first, places = np.unique(arrays["persons"], return_index=True, return_inverse=True)
    labels = {a.name: arrays["labels"][:, k] for k, a in enumerate(attributes)} if arrays["labels"].shape[1] else {}
    return Sample(
        features=arrays["features"],
        donors=arrays["donors"],
        persons=np.argsort(np.argsort(first))[places].astype(np.int64),
        units=arrays["units"],
        labels=labels,
        carried={name.removeprefix(CARRIED): values for name, values in arrays.items() if name.startswith(CARRIED)},
        attributes=attributes if labels else (),
        of=of,
        recent=len(arrays["donors"]) - len(new["donors"]),
    )
