"""Looks after a draw ledger: verifies, backs up, restores, goes on after a loss, takes over the ledger of an earlier release."""

import dataclasses
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from pass_core.channel.draws import key_id
from pass_core.errors import ConfigError, DataError
from tasks.production.draw_counts import UNKNOWN
from tasks.production.draw_key import find_key
from tasks.production.draw_ledger import KEY_FILE, WAY_BACK, Entry, Ledger, Mark, epoch_of, heads
from tasks.production.manifest import Manifest
from tasks.storage.files import read_json, storage_errors, sync_folder, write_atomically, write_json

TAKEN_OVER = "taken_over.json"  # in an earlier release's ledger: the last entry that was made from it
ROWS_AT_ONCE = 2**22


def verify(ledger: Ledger) -> dict[str, Any]:
    """Reads the whole ledger and checks it; what it holds. Anything missing or damaged is an error."""
    entries = ledger.whole_entries()
    if not entries:
        raise DataError(f"{ledger.folder}: expected a draw ledger, found none; check the folder, --dataset and protect.ledger")
    ledger.key()
    return {
        "entries": len(entries),
        "draws": sum(entry.rows for entry in entries.values()),
        "draws_at_most": max(entry.limit for entry in entries.values()),
        "reasons": [entry.reason for entry in entries.values() if entry.reason],
        "restarts": len({entry.epoch for entry in entries.values()} - {1}),
    }


def back_up(ledger: Ledger, to: Path) -> dict[str, Any]:
    """Copies what the backup does not hold yet, with the key where it lies in the ledger; verifies the copy."""
    verify(ledger)
    with storage_errors(to), ledger.lock():
        _copy(ledger, Ledger(to))
    return verify(Ledger(to))


def restore(ledger: Ledger, backup: Path) -> dict[str, Any]:
    """Adds what the backup holds and the ledger has lost, and removes no entry; verifies the result."""
    source = Ledger(backup)
    verify(source)
    theirs, own = (find_key(one.key_path, {}) if one.key_path.exists() else None for one in (source, ledger))
    if theirs and own and theirs != own:
        raise ConfigError(f"{backup}: expected a backup under the key {key_id(own)}, found {key_id(theirs)}; give another one")
    with storage_errors(ledger.folder), ledger.lock():
        entries, damaged = ledger.read()
        for path in [*damaged, *(ledger.segment_path(entries[name]) for name in ledger.damaged_segments(entries))]:
            path.unlink(missing_ok=True)
        _copy(source, ledger)
    return verify(ledger)


def restart(ledger: Ledger, reason: str) -> dict[str, Any]:
    """Goes on without the draws that were lost and records why; what is whole still counts, the rest is put aside."""
    if not reason.strip():
        raise ConfigError("restart: expected a reason, found none; say why draws that were made are no longer counted")
    with storage_errors(ledger.folder), ledger.lock():
        entries, damaged = ledger.read()
        key = key_id(find_key(ledger.key_path, {})) if ledger.key_path.exists() else None
        gone = {*ledger.damaged_segments(entries), *(name for name, entry in entries.items() if entry.key != key)}
        for path in [*damaged, *(ledger.folder / f"{name}.json" for name in sorted(gone))]:
            (ledger.folder / "lost").mkdir(exist_ok=True, mode=0o700)
            path.replace(ledger.folder / "lost" / path.name)
        left = {name: entry for name, entry in entries.items() if name not in gone}
        missing = {name for entry in left.values() for name in entry.follows} - set(left)
        lost = tuple(sorted({*gone, *missing, *(path.stem for path in damaged)}))
        # Seconds, so that it is later than the epoch of any ledger that was lost as a whole.
        epoch = max(epoch_of(left) + 1, int(time.time()))
        made = Entry(follows=heads(left), key=key or "", epoch=epoch, reason=reason, lost=lost)
        if key:
            ledger.append(made)
    if not key:
        ledger.append(dataclasses.replace(made, key=key_id(ledger.key())))
    return verify(ledger) | {"lost": len(lost)}


def require_counted(manifest: Manifest | None, ledger: Ledger, old: Path) -> None:
    """Rejects a ledger that has lost draws of a published target; `old` is the target's own ledger of an earlier release."""
    if manifest is None or _is_waiting(old):
        return
    taken = read_json(old / TAKEN_OVER) if (old / TAKEN_OVER).exists() else None
    noted = manifest.ledger or taken
    ledger.require(Mark(**noted) if noted else None)


def take_over(old: Path, ledger: Ledger) -> None:
    """Adds the draws and reasons of an earlier release's ledger, which was one per target and knew no payloads.

    Under another key its hashes cannot be compared with the others': that is an error until somebody goes on with a reason.
    """
    if not _is_waiting(old):
        return
    entries, own = ledger.entries(), old / KEY_FILE
    if not ledger.key_path.exists() and own.exists() and not entries:
        with storage_errors(ledger.folder), ledger.lock():
            _copy_file(own, ledger.key_path)
    key = key_id(ledger.key())
    if own.exists() and key_id(find_key(own, {})) != key:
        if epoch_of(entries) > 1:
            return
        found = f"found the ledger of an earlier release under another key than that of {ledger.folder}"
        raise DataError(f"{old}: {found}, so its draws cannot be added; {WAY_BACK}")
    paths = _earlier_segments(old)
    if damaged := [path for path in paths if path.stat().st_size % 8]:
        raise DataError(f"{damaged[0]}: expected whole 64-bit hashes, found a damaged ledger; restore it from a backup")
    draws = len({path.name.split("-")[0] for path in paths})
    with storage_errors(ledger.folder), ledger.lock():
        mark = None
        for path in paths:
            hashes, decision = np.memmap(path, dtype="<u8", mode="r"), path.with_suffix(".json")
            with ledger.new_segment() as file:
                for start in range(0, len(hashes), ROWS_AT_ONCE):
                    part = hashes[start : start + ROWS_AT_ONCE]
                    file.write(np.stack([part, np.full_like(part, UNKNOWN)], axis=1).tobytes())
            segment, rows = ledger.keep_segment()
            reason = str(read_json(decision)["redraw"]) if decision.exists() else ""
            before, draw = ledger.entries(), path.name.split("-")[0]
            made = Entry(follows=heads(before), key=key, epoch=epoch_of(before), draw=draw, rows=rows, segment=segment)
            mark = ledger.append(dataclasses.replace(made, reason=reason, draws=draws if reason else 0))
    if mark:
        write_json(old / TAKEN_OVER, dataclasses.asdict(mark))
        sync_folder(old)


def _is_waiting(old: Path) -> bool:
    return bool(_earlier_segments(old)) and not (old / TAKEN_OVER).exists()


def _earlier_segments(old: Path) -> list[Path]:
    return sorted(path for path in old.glob("*-*.u64") if path.stat().st_size)


def _copy(source: Ledger, to: Ledger) -> None:
    """Segments first, so that an entry that is there has its segment."""
    to.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for pattern in (KEY_FILE, "*.draws", "*.json"):
        for path in sorted(source.folder.glob(pattern)):
            if not (to.folder / path.name).exists():
                _copy_file(path, to.folder / path.name)
    sync_folder(to.folder)


def _copy_file(path: Path, to: Path) -> None:
    with write_atomically(to, sync=True) as temporary:
        shutil.copy(path, temporary)  # with the key's mode
