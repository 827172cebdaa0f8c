"""Raw files of a data set, read in place: the files below a folder and inside its .tar and .zip archives.

Archives are never unpacked, so that a hostile one cannot write anywhere. Names outside the folder, links, devices, encrypted
members and repeated names are rejected before anything is read; a member is read up to a limit of actual bytes.
"""

import contextlib
import functools
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO

from pass_core.errors import DataError, StorageError
from tasks.payloads.payload import MAX_FILE_BYTES

MAX_MEMBERS = 5_000_000
# Raised while reading a damaged archive.
DAMAGE = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError, ValueError,
)  # fmt: skip
COMPRESSED_TAR = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")


class RawFiles(contextlib.ExitStack):
    """The files of a folder by their names relative to it; an archive's members count as files of the archive's folder."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root
        self._members: dict[str, Callable[[], IO[bytes] | None]] = {}  # name -> opens the member
        self._by_folder: dict[str, list[str]] = {}
        try:
            for path in sorted([*root.glob("*"), *root.glob("*/*")]):
                if path.name.lower().endswith(COMPRESSED_TAR):
                    raise DataError(f"{path}: a compressed tar cannot be read in place: unpack it, or store it as .tar or .zip")
                if path.suffix.lower() in (".zip", ".tar") and path.is_file():
                    self._index(path)
        except BaseException:
            self.close()
            raise

    def path(self, name: str) -> Path:
        """The path of a file, for messages."""
        return self._root / name

    def names(self, folder: str) -> list[str]:
        """Names of the files directly in `folder`, sorted."""
        unpacked = [f"{folder}/{path.name}" for path in (self._root / folder).glob("*") if path.is_file()]
        return sorted({*unpacked, *self._by_folder.get(folder, [])})

    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        return name in self._members or (self._root / name).is_file()

    def read(self, name: str) -> bytes:
        """A file's bytes; a DataError for a missing, damaged or too large file does not name it."""
        try:
            stream = self._members[name]() if name in self._members else (self._root / name).open("rb")
            if stream is None:  # what tarfile answers for a member without content
                raise tarfile.TarError
            with stream:
                data = stream.read(MAX_FILE_BYTES + 1)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise DataError("expected file is missing") from None
        except DAMAGE:
            raise DataError("is damaged inside its archive") from None
        except OSError as error:
            raise StorageError(f"{self.path(name)}: cannot be read now ({error.strerror}); check the disk, run again") from None
        if len(data) > MAX_FILE_BYTES:
            raise DataError(f"is larger than {MAX_FILE_BYTES // 2**20} MB")
        return data

    def _index(self, path: Path) -> None:
        """Adds an archive's members to the index after checking every one."""
        try:
            members: list[tuple[str, Callable[[], IO[bytes] | None], str | None]]
            if path.suffix.lower() == ".zip":
                zipped = self.enter_context(zipfile.ZipFile(path))
                found = [info for info in zipped.infolist() if not info.is_dir()]
                members = [(info.filename, functools.partial(zipped.open, info), _zip_fault(info)) for info in found]
            else:
                tar = self.enter_context(tarfile.open(path, "r:"))  # noqa: SIM115 (closed with the stack)
                inside = [info for info in tar.getmembers() if not info.isdir()]
                members = [(info.name, functools.partial(tar.extractfile, info), _tar_fault(info)) for info in inside]
        except DAMAGE:
            raise DataError(f"{path}: is damaged: not readable as an archive; restore it") from None
        if len(members) > MAX_MEMBERS:
            raise DataError(f"{path}: has {len(members)} members, more than {MAX_MEMBERS}; split it")
        for member, opener, its_fault in members:
            pure = PurePosixPath(member)
            outside = pure.is_absolute() or not pure.parts or ".." in pure.parts or any(sign in member for sign in "\\:\0")
            fault = its_fault or ("has a name outside the folder" if outside else None)
            if fault:
                raise DataError(f"{path}: rejected: a member {fault}; nothing was read from it, get a clean archive")
            name = (path.parent.relative_to(self._root) / pure).as_posix()
            if name in self._members or (self._root / name).exists():
                raise DataError(f"{path}: rejected: {name} occurs twice; remove one")
            self._members[name] = opener
            self._by_folder.setdefault(str(PurePosixPath(name).parent), []).append(name)


def _zip_fault(info: zipfile.ZipInfo) -> str | None:
    if info.external_attr >> 28 not in (0, 0o10):  # the Unix file type, where one is recorded
        return "is a link or a device"
    return "is encrypted" if info.flag_bits & 1 else None


def _tar_fault(info: tarfile.TarInfo) -> str | None:
    return None if info.isreg() and not info.issparse() else "is a link, a device or a sparse file"
