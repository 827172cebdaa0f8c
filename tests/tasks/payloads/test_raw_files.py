"""Raw files and archives: read in place, refused when hostile."""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

import tasks.payloads.raw_files
from pass_core.errors import DataError
from pass_core.randomness import stream
from tasks.payloads.raw_files import RawFiles


def _tar(path: Path, *members: tarfile.TarInfo) -> None:
    with tarfile.open(path, "w") as archive:
        for member in members:
            data = b"x" * member.size
            archive.addfile(member, io.BytesIO(data) if member.isreg() else None)


def _member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", length: int = 3) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.size = kind, target, length if kind == tarfile.REGTYPE else 0
    return member


def test_files_and_members_are_one_namespace(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "plain.txt").write_bytes(b"plain")
    with zipfile.ZipFile(tmp_path / "more.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/zipped.txt", b"zipped")
        archive.writestr("b/other.txt", b"other")
    _tar(tmp_path / "a" / "rest.tar", _member("tarred.txt"), _member("deep", tarfile.DIRTYPE), _member("deep/one.txt"))
    with RawFiles(tmp_path) as files:
        assert files.names("a") == ["a/plain.txt", "a/rest.tar", "a/tarred.txt", "a/zipped.txt"]
        assert [files.read(f"a/{name}.txt") for name in ("plain", "zipped", "tarred")] == [b"plain", b"zipped", b"xxx"]
        assert files.has("a/deep/one.txt")
        assert not files.has("a/deep/two.txt")
        with pytest.raises(DataError, match="expected file is missing"):
            files.read("a/deep/two.txt")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a", "more.zip", "plain.txt", "rest.tar"]  # nothing was unpacked


@pytest.mark.parametrize("name", ["../evil.txt", "/etc/evil.txt", "a/../../evil.txt", "a\\..\\evil.txt", "C:/evil.txt"])
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_names_that_leave_the_folder_are_refused(tmp_path: Path, kind: str, name: str) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    if kind == "tar":
        _tar(raw / "hostile.tar", _member("good.txt"), _member(name))
    else:
        with zipfile.ZipFile(raw / "hostile.zip", "w") as archive:
            archive.writestr("good.txt", "good")
            archive.writestr(name, "evil")
    with pytest.raises(DataError, match=rf"hostile\.{kind}: rejected: a member has a name outside the folder"):
        RawFiles(raw)
    assert [p.name for p in tmp_path.rglob("*")] == ["raw", f"hostile.{kind}"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    _tar(tmp_path / "hostile.tar", _member("link.txt", kind, "/etc/passwd"))
    with pytest.raises(DataError, match="is a link, a device or a sparse file"):
        RawFiles(tmp_path)


def test_zipped_link_is_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("link.txt")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "hostile.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(DataError, match="is a link or a device"):
        RawFiles(tmp_path)


def test_bomb_is_stopped_on_actual_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks.payloads.raw_files, "MAX_FILE_BYTES", 2**20)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("fits.bin", bytes(2**20))
        archive.writestr("bomb.bin", bytes(30 * 2**20))
    assert (tmp_path / "bomb.zip").stat().st_size < 2**17
    with RawFiles(tmp_path) as files:
        assert len(files.read("fits.bin")) == 2**20
        with pytest.raises(DataError, match="is larger than 1 MB"):
            files.read("bomb.bin")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.zip", b"PK\x03\x04 but nothing more", "not readable as an archive"),
        ("a.tar", b"not a tar at all" * 99, "not readable as an archive"),
        ("a.tar.gz", b"", "a compressed tar cannot be read in place"),
    ],
)
def test_damaged_or_other_archive_is_named(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{name}: .*{reason}"):
        RawFiles(tmp_path)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_damaged_member_is_an_error_of_that_member(tmp_path: Path, method: int) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("one.txt", stream(1, "member").bytes(300))
        archive.writestr("two.txt", b"TWO" * 100)
    data = bytearray(path.read_bytes())
    data[80:120] = bytes(40)  # inside the first member
    path.write_bytes(data)
    with RawFiles(tmp_path) as files:
        assert files.read("two.txt") == b"TWO" * 100
        with pytest.raises(DataError, match="damaged inside its archive"):
            files.read("one.txt")


def test_same_name_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("mine")
    _tar(tmp_path / "a.tar", _member("one.txt"))
    with pytest.raises(DataError, match=r"a\.tar: rejected: one\.txt occurs twice"):
        RawFiles(tmp_path)
