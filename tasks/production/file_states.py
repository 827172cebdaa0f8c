"""States of files: what changes whenever a file is written, so that its bytes are read again only when it may have changed."""

import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pyarrow.fs as pafs

State = list[int | str]  # plain JSON values
AT_ONCE = 32  # requests to an object store; on a disk hashing uses the cores
CHUNK = 2**20


def file_state(files: pafs.FileSystem, path: str) -> State | None:
    """Size, times and inode of a local file; size, time and ETag of an object; None where there is none.

    The time of the last change of the inode is included: tools that keep a file's time (rsync, cp -p) cannot keep that one.
    """
    try:
        if isinstance(files, pafs.LocalFileSystem):
            found = os.stat(path)  # noqa: PTH116 (ten thousands of them: no Path for each)
            return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]
        with files.open_input_file(path) as file:
            known = {name.lower(): value for name, value in file.metadata().items()}
            time, tag = (bytes(known.get(name, b"")).decode() for name in ("last-modified", "etag"))
            return [file.size(), time or int(files.get_file_info(path).mtime_ns or 0), tag]
    except (FileNotFoundError, NotADirectoryError):
        return None


def content_digest(files: pafs.FileSystem, path: str) -> str | None:
    """SHA-256 of a file's bytes; None where there is none."""
    whole = hashlib.sha256()
    try:
        with files.open_input_stream(path, compression=None) as stream:
            while chunk := stream.read(CHUNK):
                whole.update(chunk)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return whole.hexdigest()


def file_states(files: pafs.FileSystem, paths: Iterable[str]) -> dict[str, State | None]:
    """The states of many files."""
    paths = list(paths)
    if isinstance(files, pafs.LocalFileSystem):
        return {path: file_state(files, path) for path in paths}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(paths, pool.map(lambda path: file_state(files, path), paths), strict=True))


def content_digests(files: pafs.FileSystem, paths: Iterable[str]) -> dict[str, str | None]:
    """SHA-256 of many files."""
    paths = list(paths)
    if not paths:  # as for nearly every partition of a run: no threads for nothing
        return {}
    with ThreadPoolExecutor(min(AT_ONCE, len(paths))) as pool:
        return dict(zip(paths, pool.map(lambda path: content_digest(files, path), paths), strict=True))
