"""Counts how often each record was drawn, across models, pools and keys: an attacker can average several draws of one record.

A record is a 64-bit keyed hash of data set and id, under a key of the ledger's own: it stays when the draw key rotates, so that
a new key's draws of the same records count. Without that key the ledger reveals no id. A segment holds the sorted hashes of one
run and one draw (model, pool, key, recipe); it is read through the page cache, so memory does not grow with the ledger.
"""

import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pass_core.channel.draws import WordArray
from pass_core.data import IntArray
from pass_core.errors import ConfigError, DataError, DrawsRefused
from tasks.production.crash_points import crash_point
from tasks.production.draw_key import find_key, new_key
from tasks.storage.files import sync_folder, write_atomically, write_json

LEDGER_KEY = "PASS_LEDGER_KEY_FILE"  # environment: a key file elsewhere than beside the ledger
BUCKET_ROWS = 2**24  # hashes that are merged at once


class Ledger:
    """A private folder of segments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def key(self) -> bytes:
        """The ledger's own key, made at the first run; a ledger whose key is lost is an error, since it cannot count any more."""
        elsewhere = os.environ.get(LEDGER_KEY)
        path = Path(elsewhere) if elsewhere else self.folder / "ledger.key"
        if not path.exists() and not elsewhere:
            if self._segments():
                raise ConfigError(f"{path}: expected the ledger's key, found none: draws cannot be counted; restore it")
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            new_key(path)
        return find_key(path, {})

    def draws(self, hashes: WordArray, draw: str) -> int:
        """Number of draws of the record that was drawn most often, once these are drawn under `draw`."""
        if not len(hashes):
            return 0
        counts: IntArray = np.ones(len(hashes), dtype=np.int64)
        for other, segments in itertools.groupby(self._segments(), key=lambda one: one[0]):
            if other != draw:
                counts += np.logical_or.reduce([_among(hashes, segment) for _, segment in segments])
        return int(counts.max())

    def record(self, draw: str, version: int, hashes: Sequence[WordArray], decision: str | None = None) -> None:
        """Records that these records (sorted hashes per partition) are drawn; a repetition writes the same file.

        `decision` is the reason for exceeding the limit; free text, so it stays in the private ledger.
        """
        path = self.folder / f"{draw}-{version:06d}.u64"
        if decision is not None:
            write_json(path.with_suffix(".json"), {"redraw": decision})
        buckets = max(1, -(-sum(map(len, hashes)) // BUCKET_ROWS))
        edges = np.array([2**64 * k // buckets for k in range(1, buckets)], dtype=np.uint64)
        cuts = [[0, *np.searchsorted(one, edges).tolist(), len(one)] for one in hashes]
        with write_atomically(path, temporary=path.with_suffix(".part"), sync=True) as part, part.open("wb") as file:
            for k in range(buckets):
                bucket = [one[cut[k] : cut[k + 1]] for one, cut in zip(hashes, cuts, strict=True)]
                file.write(np.unique(np.concatenate(bucket)).astype("<u8").tobytes())
                crash_point("ledger half written")
        sync_folder(self.folder)

    def _segments(self) -> list[tuple[str, WordArray]]:
        paths = [path for path in sorted(self.folder.glob("*-*.u64")) if path.stat().st_size]
        if damaged := [path for path in paths if path.stat().st_size % 8]:
            raise DataError(f"{damaged[0]}: expected whole 64-bit hashes, found a damaged ledger; restore it from a backup")
        return [(path.stem.split("-")[0], np.memmap(path, dtype="<u8", mode="r")) for path in paths]


def refuse_past(limit: int, draws: Mapping[str, int], override: str | None) -> None:
    """Rejects a run that would draw a partition's records more often than the limit, unless a reason is given."""
    over = {name: count for name, count in draws.items() if count > limit}
    if over and not override:
        drawn = f"such as {next(iter(over))}, hold records that would be drawn {max(over.values())} times"
        why = f"protect.draws_at_most is {limit}: an attacker can average several draws of one record"
        raise DrawsRefused(f"{len(over)} partition(s), {drawn}, {why}. Keep model, pool and key, or give --redraw 'reason'")


def _among(hashes: WordArray, segment: WordArray) -> np.ndarray:
    return np.asarray(segment[np.minimum(np.searchsorted(segment, hashes), len(segment) - 1)] == hashes)
