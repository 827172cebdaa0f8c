"""The versions of a protected lake: which are kept, which is live, and going back to one.

A rollback publishes an earlier version again, under a new number: numbers only grow, readers switch in one step, and the next
protect run compares the source with the restored content and publishes on top. It deletes nothing; the next run does.
"""

import dataclasses
from pathlib import Path
from typing import Any, Literal

import pyarrow.fs as pafs

from pass_core.errors import ConfigError, DataError
from tasks.lakes.open import find_filesystem
from tasks.production.binding import bind, check_binding, note_decision, note_version, version_times
from tasks.production.delta import DeltaTarget
from tasks.production.erased import Erasures
from tasks.production.manifest import Manifest
from tasks.production.object_store import ObjectTarget
from tasks.production.options import state_of
from tasks.production.published import PublishedFiles
from tasks.production.versions import FolderTarget, Target
from tasks.production.writer_lock import Lease
from tasks.storage.files import storage_errors


def open_target(place: str, state: str | Path | None = None, form: Literal["parquet", "delta"] | None = None) -> Target:
    """The target at a path or URL, by default in the form that is there, or Parquet.

    `state` is its private folder, for a path on the same file system; default: beside the path.
    """
    folder = state_of(place, state)
    files, base = find_filesystem(place)  # looked up without deltalake, which a forked process cannot use
    if form is None and files.get_file_info(f"{base}/_delta_log").type == pafs.FileType.Directory:
        form = "delta"
    if form == "delta":
        return DeltaTarget(place, folder)
    return ObjectTarget(place, folder) if "://" in place else FolderTarget(place, folder)


def list_versions(target: Target) -> list[dict[str, Any]]:
    """All versions that are kept, the newest first, as plain values; `restores` is the version that a rollback repeats."""
    current, times = target.current(), version_times(target.state)
    kept = sorted(target.manifests().items(), reverse=True)
    live = current.version if current else None
    return [describe_version(manifest, times.get(number), live=number == live) for number, manifest in kept]


def describe_version(manifest: Manifest, published: str | None, *, live: bool) -> dict[str, Any]:
    """A version as plain values; `published` is UTC, None where the state folder has no record."""
    receipts = manifest.partitions.values()
    counts = {"partitions": len(receipts), "rows": sum(one.rows for one in receipts)}
    shown: dict[str, Any] = {"version": manifest.version, "live": live, "published": published, **counts}
    shown |= {f"{name}s": sorted({getattr(one.pins, name) for one in receipts}) for name in ("model", "pool", "key")}
    return shown | {"restores": manifest.restores}


def roll_back(target: Target, to: int | None = None) -> Manifest:
    """Publishes an earlier version again, under the writer lock; the manifest of the new version.

    `to` is a version that is kept, complete and not live; default: the last one before the one whose content is live.
    """
    current = target.current()
    if current is None:
        raise ConfigError(f"{target.location}: expected a protected lake with versions, found none; check TARGET")
    with storage_errors(target.state), target.lock() as held:
        current, kept = target.current() or current, target.manifests()
        check_binding(target.location, target.state, current)
        base = kept[_chosen(kept, current, to)]
        shown = {name: receipt.files for name, receipt in current.partitions.items()}
        other = [name for name, receipt in base.partitions.items() if receipt.files != shown.get(name)]
        Erasures(target.state).wait_for(other)  # they may show records that the live version does not
        return _publish_again(target, base, current, held)


def adopt(target: Target, reason: str) -> Manifest:
    """Publishes the live version again and binds the target to this state folder; the manifest of the new version."""
    current = target.current()
    if current is None:
        raise ConfigError(f"{target.location}: expected a protected lake with versions, found none; check TARGET")
    note_decision(target.state, "adopt", reason, version=current.version)
    with storage_errors(target.state), target.lock() as held:
        current = target.current() or current
        return _publish_again(target, current, current, held)


def _publish_again(target: Target, base: Manifest, current: Manifest, held: Lease) -> Manifest:
    """Publishes the content of a version under a new number, with this state folder's id."""
    missing = [name for name in base.partitions if not target.has_files(base, name)]
    if missing:
        lost = f"found none for {len(missing)} partition(s), such as {missing[0]}"
        raise DataError(f"version {base.version}: expected all files, {lost}; restore them, or choose another version")
    PublishedFiles(target).refuse_damaged(base, base.partitions, "restore them, or choose another version")
    number, binding = current.version + 1, bind(target.location, target.state, current)
    place = target.place(number, held)
    manifest = dataclasses.replace(
        base,
        version=number,
        token=held.token,
        target_id=binding.target,
        state_id=binding.state,
        place=place,
        previous=current.place,
        places=dict.fromkeys(base.partitions, place) if target.carries else base.places,
        restores=base.version,
        ledger=current.ledger,  # which has counted more since an earlier version
    )
    note_version(target.state, manifest)
    return target.publish(manifest, {}, held, base)


def _chosen(kept: dict[int, Manifest], current: Manifest, to: int | None) -> int:
    earlier = sorted(number for number in kept if number != current.version)
    if to is None:
        shown = current.restores or current.version
        to = max((number for number in earlier if number < shown), default=None)
    if to in earlier:
        return to
    found = "the live version" if to == current.version else "none before the live one" if to is None else f"version {to}"
    choice = f"one of {', '.join(map(str, earlier))} with --to" if earlier else "protect.keep_versions above 1"
    raise ConfigError(f"rollback: expected {choice}, found {found}; `lake versions` lists what is kept")
