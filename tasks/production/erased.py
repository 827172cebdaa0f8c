"""Erased records of a target: a receipt for each erasure, with keyed hashes of ids and never the ids.

Runs leave the records of all receipts out, as long as the source holds them. An erasure is finished when no published partition
and no older version can show its records any more; until then runs rewrite the partitions that may.
"""

import dataclasses
import datetime
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pass_core.channel.draws import key_id, keyed_words
from pass_core.errors import ConfigError, DataError
from tasks.production.draw_key import find_key, new_key
from tasks.storage.files import json_digest, read_json, storage_errors, sync_folder, write_json

if TYPE_CHECKING:  # `lake status` reads the receipts without opening a lake
    import pyarrow as pa

FOLDER, KEY_FILE = "erasures", "erasures.key"  # in the private state folder


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What no run reads: hashes of records and of persons, under the key of the erasures."""

    key: bytes = field(default=b"", repr=False)
    records: frozenset[int] = frozenset()
    persons: frozenset[int] = frozenset()

    @property
    def digest(self) -> str:
        return json_digest([sorted(self.records), sorted(self.persons)])

    def kept(self, records: "pa.Array", persons: "pa.Array | None") -> Iterator[tuple[int, int]]:
        """The ranges of rows, first and length, between those that were erased; ids and persons are text."""
        gone = _among(self.key, "record", records, self.records)
        if persons is not None:
            gone |= _among(self.key, "person", persons, self.persons)
        edges = np.flatnonzero(np.diff(np.concatenate([[True], gone, [True]])))
        for first, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            yield first, stop - first


def _hashes(key: bytes, kind: str, ids: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{word:016x}" for word in sorted(keyed_words(key, f"erased {kind}", (), ids).tolist()))


def _among(key: bytes, kind: str, values: "pa.Array", hashes: frozenset[int]) -> NDArray[np.bool_]:
    if not hashes:
        return np.zeros(len(values), dtype=bool)
    return np.isin(keyed_words(key, f"erased {kind}", (), values.to_pylist()), np.array(sorted(hashes), dtype=np.uint64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """A receipt; it stays when the erasure is finished."""

    number: int
    key: str  # id of the key of the hashes
    records: tuple[str, ...]  # hashes under the key of the erasures
    persons: tuple[str, ...]
    reason: str  # free text, so it stays in the private folder
    requested: str  # UTC
    rows: int  # in the source, when it was requested
    evidence: int  # audited records that were removed from the private folder
    partitions: int  # published ones that could show the records
    waiting: tuple[str, ...]  # those of them that are still published as they were
    finished: str | None = None  # UTC
    version: int | None = None  # the first one without the records; all older ones were deleted


class Erasures:
    """A private folder of receipts and their key."""

    def __init__(self, state: Path) -> None:
        self.folder = state / FOLDER

    def all(self) -> list[Erasure]:
        found = []
        for path in sorted(self.folder.glob("*.json")):
            try:
                raw = read_json(path)
                found.append(Erasure(**raw | {name: tuple(raw[name]) for name in ("records", "persons", "waiting")}))
            except (KeyError, TypeError, DataError):
                wanted = "expected the receipt of an erasure, found a damaged file; without it erased records would come back"
                raise DataError(f"{path}: {wanted}: restore it, or repeat the erasure and then delete it") from None
        return found

    def unfinished(self) -> list[Erasure]:
        return [one for one in self.all() if one.finished is None]

    def waiting(self) -> set[str]:
        """Published partitions that may still show erased records."""
        return {name for one in self.unfinished() for name in one.waiting}

    def left_out(self) -> LeftOut:
        """The records and persons of all receipts."""
        receipts = self.all()
        records, persons = (frozenset(int(h, 16) for one in receipts for h in getattr(one, n)) for n in ("records", "persons"))
        return LeftOut(self._key(receipts), records, persons) if receipts else LeftOut()

    def add(self, records: Sequence[str], persons: Sequence[str], **found: Any) -> Erasure:
        """Writes the receipt of a new erasure of these ids, durably."""
        with storage_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            receipts = self.all()
            if not receipts and not (self.folder / KEY_FILE).exists():
                new_key(self.folder / KEY_FILE)
            key = self._key(receipts)
            number = max((one.number for one in receipts), default=0) + 1
            hashes = (_hashes(key, "record", records), _hashes(key, "person", persons))
            made = Erasure(number=number, key=key_id(key), requested=_now(), records=hashes[0], persons=hashes[1], **found)
            self._save(made)
            return made

    def wait_for(self, partitions: Collection[str]) -> None:
        """Makes unfinished erasures wait for these partitions, too, whose older content is about to be published again."""
        for one in self.unfinished():
            if added := sorted(set(partitions) - set(one.waiting)):
                self._save(dataclasses.replace(one, waiting=(*one.waiting, *added)))

    def settle(self, version: int, published: Collection[str], rewritten: Collection[str]) -> None:
        """Notes partitions that were rewritten or are no longer published; what waits for no other one is finished.

        Call this when older versions have been deleted.
        """
        for one in self.unfinished():
            left = tuple(name for name in one.waiting if name in published and name not in rewritten)
            end: dict[str, Any] = {} if left else {"finished": _now(), "version": version}
            if left != one.waiting or end:
                self._save(dataclasses.replace(one, waiting=left, **end))

    def _key(self, receipts: Sequence[Erasure]) -> bytes:
        path = self.folder / KEY_FILE
        key = find_key(path, {}) if path.exists() else None
        if key is None or {one.key for one in receipts} - {key_id(key)}:
            found = "found another one" if key else "found none"
            wanted = f"expected the key of the erasures, {found}; without it erased records would come back"
            raise ConfigError(f"{path}: {wanted}: restore it from a backup of the state folder")
        return key

    def _save(self, erasure: Erasure) -> None:
        write_json(self.folder / f"{erasure.number:06d}.json", dataclasses.asdict(erasure), sync=True)
        sync_folder(self.folder)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
