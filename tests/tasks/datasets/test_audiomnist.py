"""The AudioMNIST reader on files in the published layout, on damaged ones, and on the real data where they are at hand."""

import json
import os
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pass_core.errors import ConfigError, DataError
from tasks.datasets.audiomnist import AudioMnistConfig
from tests.media import sound
from tests.readers import read_everything

ROLES: dict[str, Any] = {"private": ("gender",), "useful": ("digit",), "general": ("accent", "age", "id")}
META = {
    "01": {"accent": "german", "age": 30, "gender": "male"},
    "02": {"accent": "German", "age": "25", "gender": "female"},
    "03": {"accent": "German", "age": "1234", "gender": "male"},
    "04": {"accent": "Spanish", "age": "25", "gender": "female"},
}


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """Four speakers saying two digits five times: some as published (48-kHz WAV), some as 16-kHz FLAC."""
    for code in META:
        (tmp_path / "data" / code).mkdir(parents=True)
        form, rate = ("WAV", 48_000) if code < "03" else ("FLAC", 16_000)
        for digit in (0, 7):
            for take in range(5):
                clip = sound(0.1 + take / 100, rate, pitch=100 * int(code) + digit, form=form)
                (tmp_path / "data" / code / f"{digit}_{code}_{take}.{form.lower()}").write_bytes(clip)
    (tmp_path / "data" / "audioMNIST_meta.txt").write_text(json.dumps(META))
    return tmp_path


def test_labels_classes_and_split(raw: Path, caplog: pytest.LogCaptureFixture) -> None:
    records, reading, quarantine = read_everything("audiomnist", raw, **ROLES)
    assert len(records) == 40
    assert not quarantine.entries
    assert reading.classes["accent"] == ("German", "Spanish")  # case variants merged
    assert reading.classes["age"] == ("25", "30", "1234")
    assert reading.flags == {"impossible ages": 1}
    assert "age above 120" in caplog.text
    assert reading.classes["id"] == ("01", "02", "03", "04")
    cells = Counter(zip(records.persons, records.labels["digit"], records.splits, strict=True))
    assert set(cells.values()) == {4, 1}  # four to one within every speaker and digit
    assert all(cells[code, digit, "test"] == 1 for code in META for digit in "07")
    row = records.record_ids.index("02-7-03")
    assert {name: values[row] for name, values in records.labels.items()} == {
        "gender": "female", "accent": "German", "age": "25", "id": "02", "digit": "7",
    }  # fmt: skip
    assert records.payloads[row] == (raw / "data/02/7_02_3.wav").read_bytes()


def test_split_repeats_by_seed_and_moves_with_it(raw: Path) -> None:
    def test_part(seed: int) -> set[str]:
        records, _, _ = read_everything("audiomnist", raw, **ROLES, split_seed=seed)
        return {i for i, split in zip(records.record_ids, records.splits, strict=True) if split == "test"}

    assert test_part(1) == test_part(1)
    assert test_part(1) != test_part(2)


def test_split_by_speaker_keeps_people_apart(raw: Path) -> None:
    roles = ROLES | {"general": ("accent",)}
    records, _, _ = read_everything("audiomnist", raw, **roles, split="speakers")
    of = {split: {p for p, s in zip(records.persons, records.splits, strict=True) if s == split} for split in ("train", "test")}
    assert not of["train"] & of["test"]
    genders = {META[code]["gender"] for code in of["test"]}
    assert genders == {"male", "female"}
    with pytest.raises(ConfigError, match="no role for `id`"):
        AudioMnistConfig(**ROLES, split="speakers")


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-400])


@pytest.mark.parametrize(
    ("damage", "name", "reason"),
    [
        (_truncate, "01/0_01_2.wav", "ends before its last sample"),
        (_truncate, "04/0_04_2.flac", "damaged"),
        (lambda path: path.write_bytes(b""), "01/0_01_2.wav", "not readable as a WAV or FLAC"),
        (lambda path: path.write_bytes(b"RIFF" + bytes(range(256))), "01/0_01_2.wav", "not readable as a WAV or FLAC"),
    ],
)
def test_damaged_clip_is_named_and_counted(raw: Path, damage: Any, name: str, reason: str) -> None:
    damage(raw / "data" / name)
    with pytest.raises(DataError, match=rf"data/{name}: .*{reason}.* 1 file\(s\) cannot be used"):
        read_everything("audiomnist", raw, **ROLES)
    records, _, quarantine = read_everything("audiomnist", raw, budget=1, **ROLES)
    assert len(records) == 39
    assert [entry["file"] for entry in quarantine.entries] == [f"data/{name}"]


def test_unknown_digit_wrong_folder_and_missing_speaker_are_quarantined(raw: Path) -> None:
    folder = raw / "data"
    (folder / "01" / "0_01_0.wav").rename(folder / "01" / "12_01_0.wav")
    (folder / "01" / "0_01_1.wav").rename(folder / "01" / "0_02_1.wav")
    for path in (folder / "04").iterdir():
        path.unlink()
    (folder / "02" / "notes.txt").write_text("not a clip")  # published folders hold such files: not counted
    records, _, quarantine = read_everything("audiomnist", raw, budget=3, **ROLES)
    assert len(records) == 28
    assert [entry["file"] for entry in quarantine.entries] == ["data/01/0_02_1.wav", "data/01/12_01_0.wav", "data/04"]


def test_take_found_twice_is_refused(raw: Path) -> None:
    (raw / "data/03/0_03_1.wav").write_bytes(sound())
    with pytest.raises(DataError, match=r"found this take twice"):
        read_everything("audiomnist", raw, **ROLES)


@pytest.mark.parametrize("text", ["", "{", '{"01": {}}', '{"01": {"gender": "CANARY", "accent": "x", "age": 3}}', "[]"])
def test_wrong_table_of_speakers(raw: Path, text: str) -> None:
    (raw / "data/audioMNIST_meta.txt").write_text(text)
    with pytest.raises(DataError, match=r"audioMNIST_meta\.txt: expected") as error:
        read_everything("audiomnist", raw, **ROLES)
    assert "CANARY" not in str(error.value)


def test_archive_is_read_like_the_folder(raw: Path, tmp_path: Path) -> None:
    before, _, _ = read_everything("audiomnist", raw, **ROLES)
    packed = tmp_path / "packed"
    packed.mkdir()
    with tarfile.open(packed / "clips.tar", "w") as archive:
        archive.add(raw / "data", "data")
    after, _, _ = read_everything("audiomnist", packed, **ROLES)
    assert after == before


def test_real_audiomnist_has_the_published_classes() -> None:
    folder = Path(os.environ.get("PASS_RAW_DATA", "")) / "audiomnist"
    if "PASS_RAW_DATA" not in os.environ or not folder.is_dir():
        pytest.skip("needs the real AudioMNIST data: set PASS_RAW_DATA to the folder that holds audiomnist/")
    records, reading, _ = read_everything("audiomnist", folder, **ROLES)
    assert {name: len(classes) for name, classes in reading.classes.items()} == {
        "gender": 2, "accent": 16, "age": 18, "id": 60, "digit": 10,
    }  # fmt: skip
    speakers = dict(zip(records.persons, zip(*records.labels.values(), strict=True), strict=True))
    assert Counter(labels[0] for labels in speakers.values()) == {"male": 48, "female": 12}
    assert Counter(labels[1] for labels in speakers.values())["German"] == 41
    assert Counter(labels[2] for labels in speakers.values())["26"] == 10
