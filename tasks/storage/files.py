"""Files that are complete or absent: digests, staging, publishing by rename, one writer per step."""

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError

from pass_core.errors import StorageError
from pass_core.storage.files import digest, file_digest, json_digest, read_json, rounded, sync_file, write_atomically, write_json

__all__ = [  # the part that pass_core shares, too
    "digest", "file_digest", "is_full", "json_digest", "publish", "read_json", "rounded", "staging_folder", "storage_errors",
    "sync_file", "sync_folder", "write_atomically", "write_json",
]  # fmt: skip

_STORAGE_ERRORS = {
    errno.ENOSPC: "no space left on the device: free some, then run again",
    errno.EDQUOT: "the disk quota is used up: free some space, then run again",
    errno.EROFS: "the file system is read-only: choose another root or remount it",
    errno.EACCES: "permission denied: choose another root or change its owner",
    errno.ENOTDIR: "a part of the path is a file, not a folder: choose another root",
    errno.EEXIST: "is a file where a folder is needed: choose another root",
    errno.EISDIR: "is a folder where a file is needed: choose another root",
    errno.EIO: "the device reports an input/output error: check it, then run again",
    errno.EPERM: "operation not permitted: choose another root or change its owner",
}


def publish(staged: Path, final: Path) -> None:
    """Moves a complete output to its final name; a half-written one never gets it."""
    for file in [staged] if staged.is_file() else [p for p in staged.rglob("*") if p.is_file()]:
        sync_file(file)
    final.parent.mkdir(parents=True, exist_ok=True)
    if final.exists():
        _exchange(staged, final)  # the old version is removed with the staging folder
    else:
        staged.rename(final)
    sync_folder(final.parent)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _exchange(staged: Path, final: Path) -> None:
    """Swaps two paths atomically, so that a version always exists; in two steps where the system cannot."""
    swap = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if swap is not None and swap(here, os.fsencode(staged), here, os.fsencode(final), exchange) == 0:
        return
    final.rename(staged.with_name(f"{staged.name}.retired"))
    staged.rename(final)


@contextlib.contextmanager
def storage_errors(root: Path) -> Iterator[None]:
    """Turns the errors of a full, read-only or forbidden disk into one line with advice."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        advice = _STORAGE_ERRORS.get(_error_number(error))
        if advice is None:
            raise
        raise StorageError(f"{getattr(error, 'filename', None) or root}: {advice}") from error


def is_full(error: BaseException) -> bool:
    """Whether a disk had no room left."""
    cause = error.__cause__ if isinstance(error, StorageError) else error
    return isinstance(cause, OSError | SafetensorError) and _error_number(cause) in {errno.ENOSPC, errno.EDQUOT}


def _error_number(error: Exception) -> int:
    """The system's error number; libraries written in Rust (polars, safetensors) have it only in their text."""
    found = re.search(r"os error (\d+)", str(error))
    return getattr(error, "errno", None) or (int(found[1]) if found else 0)


@contextlib.contextmanager
def staging_folder(staging: Path, name: str) -> Iterator[Path]:
    """An empty private folder for one step, removed afterwards; a second run of the same step is rejected.

    The lock ends with its process, so the next run removes what a killed one left in the folder.
    """
    folder = staging / name
    staging.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (staging / f"{name}.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            raise StorageError(f"{folder}: process {holder} is running this step; wait for it to finish") from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
