"""Files that are complete or absent: digests, staging, publishing by rename, one writer per step."""

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from pass_core.errors import DataError, StorageError

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


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(path: Path) -> str:
    """SHA-256 of a file, or of the sorted names and digests of all files below a folder."""
    if path.is_file():
        return file_digest(path)
    whole = hashlib.sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        whole.update(f"{file.relative_to(path).as_posix()}\0{file_digest(file)}\n".encode())
    return whole.hexdigest()


def json_digest(value: Any) -> str:
    """SHA-256 of a JSON value; the order of keys makes no difference."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


@contextlib.contextmanager
def write_atomically(path: Path, *, temporary: Path | None = None, sync: bool = False) -> Iterator[Path]:
    """Yields a temporary path and renames it to `path` when the block succeeds, so that `path` is complete or absent.

    Args:
        temporary: its name, where a later run must find and overwrite it; the default is unique to this process.
        sync: makes the bytes survive a power cut before the rename.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary or path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        if sync:
            sync_file(temporary)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def write_json(path: Path, value: Any) -> None:
    """Writes JSON with a fixed layout, atomically."""
    with write_atomically(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """The value of one of our JSON files; a damaged or missing file is a DataError that names it."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise DataError(f"{path}: expected file is missing; run the step that writes it again") from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise DataError(f"{path}: is damaged: not JSON; run the step that writes it again") from None


def rounded(value: Any, digits: int = 6) -> Any:
    """`value` with all floats rounded, so that compared figures do not differ in the last bits."""
    if isinstance(value, float):
        return round(value, digits) + 0.0  # no negative zero
    if isinstance(value, dict):
        return {key: rounded(item, digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item, digits) for item in value]
    return value


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


def sync_file(path: Path) -> None:
    """Makes a file's bytes survive a power cut."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _exchange(staged: Path, final: Path) -> None:
    """Swaps two paths atomically, so that a version always exists; in two steps where the system cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    swap = getattr(libc, "renameat2", None)
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if swap is not None and swap(here, os.fsencode(staged), here, os.fsencode(final), exchange) == 0:
        return
    retired = staged.with_name(f"{staged.name}.retired")
    final.rename(retired)
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
    staging.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (staging / f"{name}.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            raise StorageError(f"{staging / name}: process {holder} is running this step; wait for it to finish") from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        folder = staging / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
