"""Files that are complete or absent, JSON with a fixed layout, and digests."""

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pass_core.errors import DataError

AnyPath = str | os.PathLike[str]


def as_path(path: AnyPath) -> Path:
    """A path as callers write it, with ~ for the home folder."""
    return Path(path).expanduser()


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


def write_json(path: Path, value: Any, *, sync: bool = False) -> None:
    """Writes JSON with a fixed layout, atomically; with `sync` its bytes survive a power cut."""
    with write_atomically(path, sync=sync) as temporary:
        temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """The value in a JSON file of ours; a damaged or missing file is a DataError that names it."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise DataError(f"{path}: expected file is missing; run the step that writes it again") from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise DataError(f"{path}: is damaged: not JSON; run the step that writes it again") from None


def rounded(value: Any, digits: int = 6) -> Any:
    """`value` as JSON types with every float rounded: figures people compare carry no noise of the last bits."""
    if isinstance(value, float):
        return round(value, digits) + 0.0  # no negative zero
    if dataclasses.is_dataclass(value):
        return {field.name: rounded(getattr(value, field.name), digits) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: rounded(item, digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item, digits) for item in value]
    return value


def sync_file(path: Path) -> None:
    """Makes a file's bytes outlive a power cut."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
