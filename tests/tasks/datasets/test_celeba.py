"""The CelebA reader on files in the published layout, and on hostile ones."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from pass_core.errors import DataError
from tasks.datasets.celeba import ATTRIBUTES
from tests.media import picture
from tests.readers import read_everything

ROLES: dict[str, Any] = {"private": ("Male",), "useful": ("Smiling", "Young"), "general": ("Bald",)}
N = 30


def _value(image: int, attribute: int) -> str:
    return "1" if (image * 7 + attribute) % 3 == 0 else "-1"


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """Thirty images of fifteen people, with all forty attributes, as published."""
    (tmp_path / "img_align_celeba").mkdir()
    names = [f"{k:06d}.jpg" for k in range(1, N + 1)]
    for k, name in enumerate(names):
        (tmp_path / "img_align_celeba" / name).write_bytes(picture(k))
    rows = [f"{name} {' '.join(f'{_value(k, a):>2}' for a in range(40))}" for k, name in enumerate(names)]
    (tmp_path / "list_attr_celeba.txt").write_text(f"{N}\n{' '.join(ATTRIBUTES)} \n" + "\n".join(rows) + "\n")
    (tmp_path / "identity_CelebA.txt").write_text("\n".join(f"{name} {k // 2}" for k, name in enumerate(names)) + "\n")
    return tmp_path


def test_split_by_identity_and_any_attribute_by_name(raw: Path) -> None:
    records, reading, _ = read_everything("celeba", raw, **ROLES)
    assert len(records) == N
    assert tuple(reading.classes) == ("Male", "Smiling", "Young", "Bald")  # what has no role is not even read
    for name in reading.classes:
        column = ATTRIBUTES.index(name)
        assert records.labels[name] == tuple("yes" if _value(k, column) == "1" else "no" for k in range(N))
    of = {split: {p for p, s in zip(records.persons, records.splits, strict=True) if s == split} for split in ("train", "test")}
    assert not of["train"] & of["test"]
    assert len(of["train"]) > len(of["test"]) > 0
    kept, _, _ = read_everything("celeba", raw, **ROLES, kept=("Blurry",))
    assert tuple(kept.labels) == ("Male", "Smiling", "Young", "Bald", "Blurry")
    again, _, _ = read_everything("celeba", raw, **ROLES)
    other, _, _ = read_everything("celeba", raw, **ROLES, split_seed=5)
    assert again.splits == records.splits != other.splits


def test_official_partition_joins_validation_and_test(raw: Path) -> None:
    parts = ["0"] * 20 + ["1"] * 4 + ["2"] * 6
    lines = [f"{k:06d}.jpg {part}" for k, part in enumerate(parts, start=1)]
    (raw / "list_eval_partition.txt").write_text("\n".join(lines) + "\n")
    records, _, _ = read_everything("celeba", raw, **ROLES)
    assert records.splits == ("train",) * 20 + ("test",) * 10
    (raw / "identity_CelebA.txt").unlink()  # not needed then
    assert read_everything("celeba", raw, **ROLES)[0].splits == records.splits
    (raw / "list_eval_partition.txt").write_text("\n".join(lines[:-1]) + "\n")
    with pytest.raises(DataError, match=r"list_eval_partition\.txt: expected 0, 1 or 2 for every image"):
        read_everything("celeba", raw, **ROLES)


def test_split_by_person_needs_to_know_the_persons(raw: Path) -> None:
    (raw / "identity_CelebA.txt").unlink()
    with pytest.raises(DataError, match=r"identity_CelebA\.txt: expected the person of every image"):
        read_everything("celeba", raw, **ROLES)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not readable as a JPEG or PNG"),
        (picture(1)[:2000], "not readable as a JPEG or PNG"),
        (b"\xff\xd8\xff\xe0" + bytes(500), "not readable as a JPEG or PNG"),
        (b"GIF89a" + bytes(500), "not readable as a JPEG or PNG"),
        (None, "expected file is missing"),
    ],
)
def test_damaged_image_is_named_and_counted(raw: Path, content: bytes | None, reason: str) -> None:
    path = raw / "img_align_celeba" / "000007.jpg"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(DataError, match=rf"img_align_celeba/000007\.jpg: .*{reason}"):
        read_everything("celeba", raw, **ROLES)
    records, _, quarantine = read_everything("celeba", raw, budget=1, **ROLES)
    assert "000007" not in records.record_ids
    assert len(quarantine.entries) == N - len(records) == 1


def test_huge_image_is_refused_by_its_header(raw: Path) -> None:
    """A few kilobytes that would be 20,000 × 20,000 pixels."""
    import struct
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(10_000))) + chunk(b"IEND", b"")
    (raw / "img_align_celeba" / "000003.jpg").write_bytes(bomb)
    with pytest.raises(DataError, match=r"000003\.jpg: has more than 50 million pixels"):
        read_everything("celeba", raw, **ROLES)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text.replace("Male", "Mole"), "missing: Male"),
        (lambda text: text.replace("000002.jpg", "000001.jpg"), "line 4: expected a file name that occurs once"),
        (lambda text: text.replace("000002.jpg", "../../etc/passwd"), "line 4: expected a file name"),
        (lambda text: text.replace(f"{N}\n", "31\n", 1), "declares 31 images, found 30"),
        (lambda text: text.replace("-1", " 0"), "expected a name and 40 times 1 or -1"),
        (lambda _: "", "expected the number of images"),
    ],
)
def test_wrong_list_of_attributes(raw: Path, change: Any, reason: str) -> None:
    path = raw / "list_attr_celeba.txt"
    path.write_text(change(path.read_text()))
    with pytest.raises(DataError, match=rf"list_attr_celeba\.txt.*{reason}"):
        read_everything("celeba", raw, **ROLES)


def test_published_zip_is_read_like_the_folder(raw: Path) -> None:
    before, _, _ = read_everything("celeba", raw, **ROLES)
    shutil.make_archive(str(raw / "img_align_celeba"), "zip", raw, "img_align_celeba")
    shutil.rmtree(raw / "img_align_celeba")
    after, _, _ = read_everything("celeba", raw, **ROLES)
    assert after == before


def test_real_celeba_reads_whole() -> None:
    folder = Path(os.environ.get("PASS_RAW_DATA", "")) / "celeba"
    if "PASS_RAW_DATA" not in os.environ or not folder.is_dir():
        pytest.skip("needs the real CelebA data: set PASS_RAW_DATA to the folder that holds celeba/")
    records, reading, quarantine = read_everything("celeba", folder, **ROLES)
    assert len(records) == reading.expected
    assert not quarantine.entries
