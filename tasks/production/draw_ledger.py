"""The draw ledger of a data set: how often each record was drawn, across models, pools, keys and targets (docs/adr/0008).

An attacker can average several draws of one record. The ledger is a log that only grows: a run appends an entry, a small JSON
file, and a segment with the draws that are new. Both are named by a digest of their own content, and each entry names those it
follows, so that a flipped bit and a lost file are found. Records and payloads are 64-bit hashes under a key of the ledger's own:
a new draw key's draws of the same records count, and without the ledger's key it reveals no id.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import io
import json
import os
import platform
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pass_core.channel.draws import key_id
from pass_core.errors import ConfigError, DataError, DrawsRefused
from tasks.production.crash_points import crash_point
from tasks.production.draw_counts import PairArray, count_draws
from tasks.production.draw_key import find_key, new_key
from tasks.storage.files import file_digest, storage_errors, sync_folder, write_atomically

LEDGER_KEY = "PASS_LEDGER_KEY_FILE"  # environment: a key file elsewhere than in the ledger
KEY_FILE, NAME_DIGITS, PAIR_BYTES, FORMAT = "ledger.key", 32, 16, 2
WAY_BACK = "`pass-pipeline lake ledger restore` a backup, or `lake ledger restart` with a reason"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What a run, or a person who decided something, appended."""

    follows: tuple[str, ...]  # entries that no other one followed
    key: str  # id of the key of the hashes
    epoch: int = 1  # grows when somebody goes on although draws were lost
    draw: str = ""  # what was drawn with: a digest of model, pool, key and recipe
    rows: int = 0  # of the segment
    segment: str = ""  # SHA-256
    limit: int = 1  # protect.draws_at_most at that time
    reason: str = ""  # for exceeding or raising the limit, or for going on; free text, so it stays here
    draws: int = 0  # of a record: as many are allowed to all records under this `draw`, for this reason
    lost: tuple[str, ...] = ()  # entries that were given up
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class Mark:
    """An entry that a target depends on. The target's manifest keeps it: a ledger that does not hold it has lost draws."""

    epoch: int
    entry: str


class Ledger:
    """A private folder of entries and segments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def key_path(self) -> Path:
        elsewhere = os.environ.get(LEDGER_KEY)
        return Path(elsewhere) if elsewhere else self.folder / KEY_FILE

    def key(self) -> bytes:
        """The ledger's own key, made at the first run; a ledger whose key is lost is an error, since it cannot count any more."""
        path, entries = self.key_path, self.entries()
        if path.parent == self.folder and not path.exists():
            if entries:
                raise ConfigError(f"{path}: expected the ledger's key, found none: draws cannot be counted; {WAY_BACK}")
            with storage_errors(self.folder), self.lock(), contextlib.suppress(ConfigError):  # another run has just made it
                new_key(path)
            sync_folder(self.folder)
        key = find_key(path, {})
        if other := {entry.key for entry in entries.values()} - {key_id(key)}:
            raise ConfigError(f"{path}: expected the ledger's key {other.pop()}, found {key_id(key)}; give the right one")
        return key

    def entries(self) -> dict[str, Entry]:
        """All entries by name; a damaged or missing one is an error. Segments are not read."""
        found, damaged = self.read()
        given_up = {name for entry in found.values() for name in entry.lost}
        lost = {name for entry in found.values() for name in entry.follows} - set(found) - given_up
        if damaged or lost:
            what = f"{len(damaged)} damaged and {len(lost)} missing entries"
            raise DataError(f"{self.folder}: expected a whole ledger, found {what}: draws cannot be counted; {WAY_BACK}")
        return found

    def whole_entries(self, known: Collection[str] = ()) -> dict[str, Entry]:
        """All entries by name, after the segments of all but the known ones have been read and compared with their digests."""
        entries = self.entries()
        if damaged := self.damaged_segments({name: entry for name, entry in entries.items() if name not in known}):
            found = f"{len(damaged)} missing or damaged segments"
            raise DataError(f"{self.folder}: expected a whole ledger, found {found}: draws cannot be counted; {WAY_BACK}")
        return entries

    def read(self) -> tuple[dict[str, Entry], list[Path]]:
        """The entries whose content fits their name, and the files of the others."""
        found, damaged = {}, []
        for path in sorted(self.folder.glob("*.json")):
            raw = path.read_bytes()
            if hashlib.sha256(raw).hexdigest()[:NAME_DIGITS] != path.stem:
                damaged.append(path)
                continue
            value: dict[str, Any] = json.loads(raw)
            if value["format"] != FORMAT:
                raise DataError(f"{path}: expected format {FORMAT}, found {value['format']}; use the release that wrote it")
            found[path.stem] = Entry(**value | {name: tuple(value[name]) for name in ("follows", "lost")})
        return found, damaged

    def damaged_segments(self, entries: Mapping[str, Entry]) -> list[str]:
        """The entries whose segment is missing or not as it was written; reads all of them."""
        return [name for name, entry in entries.items() if entry.rows and not self._is_whole(entry)]

    def require(self, mark: Mark | None) -> None:
        """Rejects a ledger without the draws of a published target, unless somebody decided to go on without them."""
        entries = self.entries()
        holds = mark is not None and mark.entry in entries
        if not holds and epoch_of(entries) <= (mark.epoch if mark else 1):
            raise DataError(f"{self.folder}: expected the draws of what the target shows, found none of the last run; {WAY_BACK}")

    def require_limit(self, limit: int, reason: str | None) -> None:
        """Rejects a limit above the highest one that was used, or 1, without a reason; `record` writes both down."""
        used = max((entry.limit for entry in self.entries().values()), default=1)
        if limit > used and not reason:
            found = f"protect.draws_at_most: expected at most {used} as before, found {limit}"
            raise DrawsRefused(f"{found}: more draws of a record reveal more. Lower it, or give --redraw 'reason' once")

    def refuse_early(self, draw: str, redraws: Mapping[str, int], limit: int, reason: str | None) -> None:
        """Rejects, before any work, a raised limit and a new `draw` of what was drawn before; `record` counts exactly."""
        self.require_limit(limit, reason)
        if not reason and not any(entry.draw == draw and entry.rows for entry in self.entries().values()):
            refuse_past(limit, redraws)

    def record(self, draw: str, staged: Mapping[str, PairArray], limit: int, reason: str | None) -> tuple[dict[str, int], Mark]:
        """Appends what these partitions (sorted pairs of hashes) draw for the first time, durably, before they are published.

        Returns the draws of each partition's most often drawn record, and the mark for the manifest. A repetition after a
        crash finds its draws counted. A new draw past the limit needs a reason, or one that was given for this `draw` before.
        """
        key = key_id(self.key())
        with storage_errors(self.folder), self.lock():
            entries = self.whole_entries()
            self.require_limit(limit, reason)
            with self.new_segment() as file:
                draws, past = self._count(draw, staged, entries, limit=limit, file=file)
            if not reason:
                refuse_past(limit, past)
            segment, rows = self.keep_segment()
            made = Entry(follows=heads(entries), key=key, epoch=epoch_of(entries), draw=draw, rows=rows, segment=segment)
            allowed = max(draws.values(), default=0) if reason else 0
            mark = self.append(dataclasses.replace(made, limit=limit, reason=reason or "", draws=allowed))
            others = {name: entry for name, entry in self.whole_entries(entries).items() if name != mark.entry}
            if others != entries and not reason:  # of a machine that does not share our locks: both count, neither publishes
                refuse_past(limit, self._count(draw, staged, others, limit=limit, file=io.BytesIO())[1])
            return draws, mark

    def rows_of(self, mark: Mark) -> int:
        """The draws that an entry added."""
        return self.entries()[mark.entry].rows

    def append(self, entry: Entry) -> Mark:
        """Writes an entry to disk under the name that its content gives it."""
        raw = (json.dumps(dataclasses.asdict(entry), indent=2, ensure_ascii=False) + "\n").encode()
        name = hashlib.sha256(raw).hexdigest()[:NAME_DIGITS]
        with write_atomically(self.folder / f"{name}.json", sync=True) as temporary:
            temporary.write_bytes(raw)
        sync_folder(self.folder)
        return Mark(entry.epoch, name)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """One writer at a time, of those that share the file system's locks; the others wait."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def new_segment(self) -> Iterator[BinaryIO]:
        """A file for the pairs of a new segment; needs the lock."""
        with self._unfinished.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())

    def keep_segment(self) -> tuple[str, int]:
        """Gives the new segment its name; its digest and number of rows, or none where it is empty."""
        path = self._unfinished
        rows, digest = path.stat().st_size // PAIR_BYTES, file_digest(path)
        path.replace(self.folder / f"{digest[:NAME_DIGITS]}.draws") if rows else path.unlink()
        return digest if rows else "", rows

    def segment_path(self, entry: Entry) -> Path:
        return self.folder / f"{entry.segment[:NAME_DIGITS]}.draws"

    @property
    def _unfinished(self) -> Path:
        return self.folder / f"new-{platform.node()}.part"  # this machine's: two that do not share locks may be at work

    def _is_whole(self, entry: Entry) -> bool:
        path = self.segment_path(entry)
        return path.exists() and path.stat().st_size == entry.rows * PAIR_BYTES and file_digest(path) == entry.segment

    def _count(
        self, draw: str, staged: Mapping[str, PairArray], entries: Mapping[str, Entry], *, limit: int, file: BinaryIO
    ) -> tuple[dict[str, int], dict[str, int]]:
        """Per partition, the draws of its most often drawn record, and of one past the limit; writes what is new."""
        segments: dict[str, list[PairArray]] = {}
        for entry in (one for one in entries.values() if one.rows):
            pairs = np.memmap(self.segment_path(entry), dtype="<u8", mode="r", shape=(entry.rows, 2))
            segments.setdefault(entry.draw, []).append(pairs)
        # Somebody who approved a new key approved it for all records, also for those that come late; not for changed ones.
        approved = max((one.draws for one in entries.values() if one.reason and one.draw == draw), default=0)
        draws, past = dict.fromkeys(staged, 0), dict.fromkeys(staged, 0)
        for found in count_draws(list(staged.values()), segments, draw) if staged else ():
            for name, counts, fresh, first in zip(staged, found.draws, found.fresh, found.first, strict=True):
                over = counts[fresh & (counts > np.where(first, max(limit, approved), limit))]
                draws[name] = max(draws[name], int(counts.max(initial=0)))
                past[name] = max(past[name], int(over.max(initial=0)))
            file.write(found.new.astype("<u8").tobytes())
            crash_point("ledger half written")
        return draws, {name: count for name, count in past.items() if count}


def epoch_of(entries: Mapping[str, Entry]) -> int:
    return max((entry.epoch for entry in entries.values()), default=1)


def heads(entries: Mapping[str, Entry]) -> tuple[str, ...]:
    """The entries that no other one follows."""
    return tuple(sorted(set(entries) - {name for entry in entries.values() for name in entry.follows}))


def refuse_past(limit: int, draws: Mapping[str, int]) -> None:
    """Rejects a run that would draw records of these partitions more often than the limit."""
    over = {name: count for name, count in draws.items() if count > limit}
    if over:
        drawn = f"such as {next(iter(over))}, hold records that would be drawn {max(over.values())} times"
        why = f"protect.draws_at_most is {limit}: an attacker can average several draws of one record"
        advice = "Keep model, pool, key and payloads, or give --redraw 'reason'"
        raise DrawsRefused(f"{len(over)} partition(s), {drawn}, {why}. {advice}")
