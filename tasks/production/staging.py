"""Partitions that are protected but not published: each in a private folder with its receipt, whole or absent."""

import contextlib
import dataclasses
import hashlib
import os
import platform
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow.parquet as pq

from pass_core.data import Attribute
from pass_core.errors import ConfigError
from tasks.production.interfaces import Sample
from tasks.production.manifest import RECEIPT, Pins, Receipt, read_receipt
from tasks.storage.files import read_json, sync_folder, write_json

DATA, PINNED = "data", "pinned.json"
CARRIED = "carried."  # before the names of attributes among a sample's arrays


def _slug(partition: str) -> str:
    return hashlib.sha256(partition.encode()).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class Staged:
    """A partition in staging."""

    folder: Path
    receipt: Receipt

    def columns(self) -> str:
        """Columns and types, read from the written files."""
        tables = [self.folder / DATA / file.path for file in self.receipt.files if file.path.endswith(".parquet")]
        return " / ".join(sorted({str(pq.read_schema(path)) for path in tables}))

    def load(self, name: Literal["donors", "hashes"]) -> np.ndarray:
        """How often each donor was drawn, or the records' keyed hashes for the ledger, sorted."""
        return np.asarray(np.load(self.folder / f"{name}.npy", mmap_mode="r"))

    def sample(self) -> dict[str, np.ndarray]:
        """The records for the audit gate."""
        with np.load(self.folder / "sample.npz") as arrays:
            return {name: arrays[name] for name in arrays.files}


class Staging:
    """A private folder of staged partitions, all made with the same pins and the same arithmetic."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def pin(self, pins: Pins, numerics: Mapping[str, Any]) -> None:
        """Begins or resumes a run; deletes what was staged with other pins, rejects what was staged with other arithmetic."""
        now, path = {"pins": dataclasses.asdict(pins), "numerics": dict(numerics)}, self.folder / PINNED
        before = read_json(path) if path.exists() else None
        if before is not None and before["pins"] == now["pins"] and before["numerics"] != now["numerics"] and self._folders():
            differ = sorted(name for name in numerics if before["numerics"].get(name) != numerics[name])
            found = f"an unfinished run computed with another {', '.join(differ)}, and its draws could differ"
            raise ConfigError(f"{self.folder}: {found}; finish it where it started, or delete the folder to start again")
        if before != now:
            self.clear()
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json(path, now)

    def finished(self) -> dict[str, Staged]:
        """The partitions that are whole; removes what a killed worker left half-written."""
        found = {}
        for folder in self._folders():
            if not (folder / RECEIPT).exists():
                shutil.rmtree(folder)
                continue
            receipt = read_receipt(read_json(folder / RECEIPT))
            if all((folder / DATA / file.path).stat().st_size == file.bytes for file in receipt.files):
                found[receipt.partition] = Staged(folder, receipt)
        return found

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
        if final.exists():
            shutil.rmtree(final)
        working.rename(final)
        sync_folder(staging)
    except BaseException:
        shutil.rmtree(working, ignore_errors=True)
        raise


def joined_sample(staged: Mapping[str, Staged], wanted: Mapping[str, int], attributes: tuple[Attribute, ...]) -> Sample:
    """The first records in the shuffled order, as many of each partition as wanted, as one sample."""
    parts = [(staged[name].sample(), wanted[name]) for name in sorted(staged)]
    arrays = {name: np.concatenate([part[name][:count] for part, count in parts]) for name in parts[0][0]}
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
        of=sum(one.receipt.rows for one in staged.values()),
    )
