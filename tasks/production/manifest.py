"""The records of a protected lake: pins, receipts, manifest. They hold no times, so that a re-run writes the same bytes."""

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pass_core.data import IntArray
from pass_core.errors import DataError
from tasks.storage.files import json_digest, read_json, sync_folder, write_atomically, write_json

FORMAT = 2
RECEIPT = "receipt.json"  # of a staged partition
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # a missing partition value as hive writes it


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """What a release is made with, fixed when a run starts."""

    dataset: str
    model: str  # digest
    pool: str  # digest
    key: str  # the key's id
    recipe: str  # digest of what else a draw depends on: extractor, rule of excluded donors
    columns: str  # digest of the published columns

    def changes(self, now: "Pins") -> tuple[str, ...]:
        return tuple(f.name for f in dataclasses.fields(self) if getattr(self, f.name) != getattr(now, f.name))

    @property
    def draw(self) -> str:
        """Identifies the draw: records protected again under another one are drawn once more."""
        return json_digest([self.dataset, self.model, self.pool, self.key, self.recipe])[:16]


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A published file."""

    path: str  # below the version's root
    bytes: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What was done to one partition."""

    partition: str
    input_digest: str  # of the names and bytes of the files that were read, under the draw key
    pins: Pins
    numerics: str  # digest of the arithmetic it was made with
    rows_in: int
    rows: int
    quarantined: int
    files: tuple[OutputFile, ...]
    donors: int  # different ones in it
    sampled: int  # records kept for the audit gate
    draws: int = 1  # of the record that was drawn most often, this draw included

    @property
    def id(self) -> str:
        return json_digest(dataclasses.asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A version of a protected lake."""

    version: int
    token: int  # of the writer, for fencing
    target_id: str
    state_id: str  # of the only state folder that may publish the next version
    place: str  # folder below the target for the files that are new in this version
    previous: str | None  # `place` of the version before; a run that lost to another one is nobody's previous
    numerics: Mapping[str, Any]
    schema: Mapping[str, str]  # of the source at the first version: column -> type
    added: Mapping[str, str]  # columns accepted later; older files lack them
    partitions: Mapping[str, Receipt]
    places: Mapping[str, str]  # partition -> folder below the target that its files' paths start from
    audit: Mapping[str, Any]  # the gate's result for the partitions that are new in this version
    restores: int | None = None  # the version that a rollback published again
    croissant: OutputFile | None = None  # its description for catalogues; its path starts below the target
    ledger: Mapping[str, Any] | None = None  # the draw ledger's entry, and its epoch, that this version depends on
    format: int = FORMAT


class Receipts:
    """A private folder of published partitions' receipts, with how often each donor is shown, named by their content."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, receipt: Receipt, donors: IntArray) -> None:
        """Saves a receipt; a repetition changes nothing."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with write_atomically(self.folder / f"{receipt.id}.npy", sync=True) as temporary, temporary.open("wb") as file:
            np.save(file, donors)
        write_json(self.folder / f"{receipt.id}.json", to_json(receipt), sync=True)
        sync_folder(self.folder)

    def donors(self, receipt: Receipt) -> IntArray:
        """How often each donor of its pool is shown in a published partition; a lost or damaged receipt is a DataError."""
        path = self.folder / f"{receipt.id}.npy"
        with contextlib.suppress(OSError, ValueError, EOFError):
            counts = np.asarray(np.load(path))
            if int(counts.sum()) == receipt.rows and int(np.count_nonzero(counts)) == receipt.donors:
                return counts
        raise DataError(f"{path}: expected a partition's receipt, found none or a damaged one; restore it")

    def keep_only(self, receipts: Iterable[Receipt]) -> None:
        """Deletes all others: compared with that of a newer version, a partition's receipt shows the donors of erased records."""
        kept = {one.id for one in receipts}
        for path in self.folder.glob("*"):
            if path.stem not in kept:
                path.unlink()

    def showing(self, manifest: Manifest, pool: str, donors: Iterable[int]) -> list[str]:
        """Published partitions that were made from a pool and show any of these donors (numbers in that pool)."""
        wanted, receipts = np.array(sorted(donors), dtype=np.int64), manifest.partitions.items()
        return [name for name, one in receipts if one.pins.pool == pool and self.donors(one)[wanted].any()]


def to_json(value: Any) -> dict[str, Any]:
    """A dataclass as plain JSON values; the manifest of a version that is no rollback does not mention one."""
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(value), sort_keys=True))
    return {name: item for name, item in plain.items() if (name, item) != ("restores", None)}


def read_receipt(raw: Any) -> Receipt:
    try:
        files = tuple(OutputFile(**file) for file in raw["files"])
        return Receipt(**raw | {"pins": Pins(**raw["pins"]), "files": files})
    except (KeyError, TypeError):
        raise DataError("expected the receipt of a protected partition, found something else; restore it") from None


def load_manifest(path: Path) -> Manifest:
    return read_manifest(read_json(path), str(path))


def read_manifest(raw: Any, place: str) -> Manifest:
    """The manifest that `to_json` wrote; another format or damage is a DataError that names its place."""
    found = raw.get("format") if isinstance(raw, dict) else None
    if found != FORMAT:
        raise DataError(f"{place}: expected a manifest of format {FORMAT}, found {found}; restore it or choose another target")
    try:
        partitions = {name: read_receipt(entry) for name, entry in raw["partitions"].items()}
        described = OutputFile(**raw["croissant"]) if raw.get("croissant") else None
        return Manifest(**raw | {"partitions": partitions, "croissant": described})
    except (KeyError, TypeError, AttributeError, DataError):
        raise DataError(f"{place}: expected a manifest, found a damaged file; restore it or choose another target") from None
