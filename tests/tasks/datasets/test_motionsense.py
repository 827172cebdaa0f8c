"""The MotionSense reader on files in the published layout, on damaged ones, and on the real data where they are at hand."""

import os
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pass_core.errors import DataError
from pass_core.randomness import stream
from tasks.datasets.base import RawRecords
from tasks.datasets.motionsense import TRIALS, trial_file
from tasks.datasets.synthetic_motion import DATASET, SyntheticMotionConfig
from tests.readers import read_everything

ROLES = {"private": ("gender", "id"), "useful": ("activity",)}


def _read(raw: Path, budget: int = 0) -> RawRecords:
    return read_everything("motionsense", raw, budget, **ROLES)[0]


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """Three subjects, in the published layout."""
    DATASET.generate(tmp_path, SyntheticMotionConfig(**ROLES, subjects=3, points_per_trial=300), stream(1, "raw"))
    return tmp_path


def _slow_windows(raw: Path) -> dict[str, list[tuple[np.ndarray, str, str]]]:
    """The published preparation, written again as a plain loop."""
    subjects = pl.read_csv(raw / "data_subjects_info.csv")
    points: dict[str, list[tuple[float, float, str, str, str]]] = {"train": [], "test": []}
    for code, gender in zip(subjects["code"], subjects["gender"], strict=True):
        for trial, activity in sorted((t, a) for a, numbers in TRIALS.items() for t in numbers):
            frame = pl.read_csv(raw / trial_file(activity, trial, code))
            for row in frame.iter_rows(named=True):
                c0 = sum(row[f"rotationRate.{axis}"] ** 2 for axis in "xyz") ** 0.5
                c1 = sum(row[f"userAcceleration.{axis}"] ** 2 for axis in "xyz") ** 0.5
                points["train" if trial <= 9 else "test"].append((c0, c1, str(code), activity, str(gender)))
    signal = np.array([p[:2] for p in points["train"]])
    mean, std = signal.mean(axis=0), signal.std(axis=0)
    windows: dict[str, list[tuple[np.ndarray, str, str]]] = {}
    for split, series in points.items():
        windows[split] = []
        start = 0
        while start < len(series) - 128 and start / 10 < round((len(series) - 128) / 10):
            window = series[start : start + 128]
            if window[0][2:] == window[-1][2:]:
                values = (np.array([p[:2] for p in window]) - mean) / std
                windows[split].append((values.T, window[0][2], window[0][3]))
            start += 10
    return windows


def test_reader_equals_a_plain_loop(raw: Path) -> None:
    records, expected = _read(raw), _slow_windows(raw)
    position = 0
    for split in ("train", "test"):
        assert records.splits.count(split) == len(expected[split]) > 0
        for values, code, activity in expected[split]:
            assert records.payloads[position] == pytest.approx(values, abs=1e-5)
            assert (records.labels["id"][position], records.labels["activity"][position]) == (code, activity)
            position += 1
    assert records.payloads.shape == (position, 2, 128)
    assert len(set(records.record_ids)) == position
    assert set(records.labels["activity"]) == {"dws", "ups", "wlk", "jog"}


def test_published_byte_order_mark_and_missing_columns_are_read(raw: Path) -> None:
    """The published table of subjects starts with a byte order mark; attitude and gravity are not needed."""
    before = _read(raw)
    subjects = raw / "data_subjects_info.csv"
    subjects.write_bytes(b"\xef\xbb\xbf" + subjects.read_bytes())
    path = raw / trial_file("wlk", 7, "1")
    pl.read_csv(path).select(pl.exclude("^gravity.*$", "^attitude.*$")).write_csv(path)
    assert (_read(raw).payloads == before.payloads).all()


def _damage(path: Path, how: str) -> None:
    text = path.read_text()
    lines = text.splitlines()
    if how == "truncated":
        path.write_text(text[: len(text) * 2 // 3 - 5])
    elif how == "binary":
        path.write_bytes(bytes(range(256)) * 20)
    elif how == "empty":
        path.write_text("")
    elif how == "header only":
        path.write_text(lines[0] + "\n")
    elif how == "words":
        path.write_text("\n".join([*lines[:5], lines[5].replace(lines[5].split(",")[-1], "CANARY"), *lines[6:]]))
    elif how == "not a number":
        path.write_text("\n".join([*lines[:5], lines[5].replace(lines[5].split(",")[-1], "NaN"), *lines[6:]]))
    elif how == "column gone":
        pl.read_csv(path).drop("rotationRate.x").write_csv(path)


@pytest.mark.parametrize("how", ["truncated", "binary", "empty", "header only", "words", "not a number", "column gone"])
def test_damaged_recording_is_named_and_its_values_are_not(raw: Path, how: str) -> None:
    path = raw / trial_file("ups", 3, "2")
    _damage(path, how)
    with pytest.raises(DataError, match=r"ups_3/sub_2\.csv: .*1 file\(s\) cannot be used, 0 may be skipped") as error:
        _read(raw)
    assert "CANARY" not in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_recording_is_named(raw: Path) -> None:
    (raw / trial_file("jog", 16, "3")).unlink()
    with pytest.raises(DataError, match=r"jog_16/sub_3\.csv: expected file is missing\. 1 file\(s\) cannot be used"):
        _read(raw)


def test_damaged_and_missing_recordings_within_the_budget_are_left_out(raw: Path) -> None:
    whole = _read(raw)
    (raw / trial_file("jog", 16, "3")).unlink()
    _damage(raw / trial_file("ups", 3, "2"), "truncated")
    records, _, quarantine = read_everything("motionsense", raw, budget=2, **ROLES)
    assert [entry["file"] for entry in quarantine.entries] == [trial_file("jog", 16, "3"), trial_file("ups", 3, "2")]
    assert set(whole.blocks) - set(records.blocks) == {"3/16", "2/3"}
    with pytest.raises(DataError, match=r"2 file\(s\) cannot be used, 1 may be skipped"):
        _read(raw, budget=1)


def test_published_zip_is_read_like_the_folder(raw: Path) -> None:
    """MotionSense is published with its recordings inside A_DeviceMotion_data.zip."""
    before = _read(raw)
    shutil.make_archive(str(raw / "A_DeviceMotion_data"), "zip", raw, "A_DeviceMotion_data")
    shutil.rmtree(raw / "A_DeviceMotion_data")
    assert (_read(raw).payloads == before.payloads).all()


def test_missing_or_wrong_table_of_subjects(raw: Path) -> None:
    subjects = raw / "data_subjects_info.csv"
    subjects.write_text(subjects.read_text().replace("code,", "number,"))
    with pytest.raises(DataError, match="missing: code"):
        _read(raw)
    subjects.write_text("code,gender\n1,0\n1,1\n")
    with pytest.raises(DataError, match="must be unique"):
        _read(raw)
    subjects.write_text("code,gender\n1,0\n2,7\n")
    with pytest.raises(DataError, match="0 \\(female\\) or 1 \\(male\\)"):
        _read(raw)
    subjects.unlink()
    with pytest.raises(DataError, match="expected file is missing"):
        _read(raw)


def test_generator_repeats_by_seed(tmp_path: Path) -> None:
    config = SyntheticMotionConfig(**ROLES, subjects=2, points_per_trial=200)
    contents = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        DATASET.generate(tmp_path / name, config, stream(seed, "raw"))
        contents.append((tmp_path / name / "A_DeviceMotion_data" / "dws_1" / "sub_1.csv").read_bytes())
    assert contents[0] == contents[1] != contents[2]


def test_real_motionsense_has_the_published_number_of_windows() -> None:
    folder = Path(os.environ.get("PASS_RAW_DATA", "")) / "motionsense"
    if "PASS_RAW_DATA" not in os.environ or not folder.is_dir():
        pytest.skip("needs the real MotionSense data: set PASS_RAW_DATA to the folder that holds motionsense/")
    records = _read(folder)
    assert (records.splits.count("train"), records.splits.count("test")) == (60_980, 13_344)
    assert records.payloads[0, 0, :4] == pytest.approx([-0.58986, -0.75086, -1.29193, -0.81559], abs=2e-4)
    assert records.payloads[0, 1, :4] == pytest.approx([-0.35827, -0.77464, -0.82968, -0.90678], abs=2e-4)
