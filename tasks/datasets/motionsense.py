"""MotionSense: phone motion of people walking, jogging and climbing stairs, in its published folder layout.

    A_DeviceMotion_data/<activity>_<trial>/sub_<N>.csv   50 Hz, rotationRate.* and userAcceleration.* among the columns
    data_subjects_info.csv                                code, weight, height, age, gender (0 female, 1 male)

Preparation is that of the PASS paper: magnitudes of rotation rate and user acceleration, four activities, split by
trial, standardised with training statistics, windows of 128 points every 10.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import polars as pl

from pass_core.data import DoubleArray, IntArray
from pass_core.errors import DataError
from tasks.datasets.base import RawRecords, Reading
from tasks.payloads.payload import Payload
from tasks.payloads.quarantine import Quarantine
from tasks.payloads.raw_files import RawFiles
from tasks.sections.dataset import DatasetConfig

ACTIVITIES = ("dws", "ups", "wlk", "jog")  # label order; sitting and standing are not used
TRIALS = {"dws": (1, 2, 11), "ups": (3, 4, 12), "wlk": (7, 8, 15), "jog": (9, 16)}
LAST_TRAIN_TRIAL = 9
SENSORS = ("rotationRate", "userAcceleration")
SENSOR_COLUMNS = tuple(f"{sensor}.{axis}" for sensor in SENSORS for axis in "xyz")
SUBJECTS = "data_subjects_info.csv"
GENDERS = ("female", "male")
WINDOW, STRIDE = 128, 10
PAYLOAD = Payload("vector", (2, WINDOW), -5.0, 50.0)  # standardised magnitudes are bounded below by −mean/std


class MotionSense:
    """The MotionSense data set."""

    summary: ClassVar[str] = "MotionSense: phone motion of 24 people (gender, id, activity), windows of 128 points"
    config_type: ClassVar[type[DatasetConfig]] = DatasetConfig
    attribute_names: ClassVar[tuple[str, ...]] = ("gender", "id", "activity")

    def read(self, raw: Path, _config: DatasetConfig, quarantine: Quarantine) -> Reading:
        """All windows: one pass over the files to measure, one to cut."""
        with RawFiles(raw) as files:
            subjects = _read_subjects(files)
            recordings = _usable(files, subjects, quarantine)
            extent = _measure(files, recordings, quarantine)
        classes = {"gender": GENDERS, "id": tuple(subjects), "activity": ACTIVITIES}
        batches, expected = _windows(raw, recordings, extent), sum(extent.points.values()) // STRIDE
        return Reading(payload=PAYLOAD, classes=classes, batches=batches, expected=expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recording:
    """One CSV file: a subject doing one activity in one trial."""

    name: str
    code: str
    gender: str
    activity: str
    trial: int
    split: str


@dataclass(frozen=True, slots=True)
class _Extent:
    """What standardising and windowing need: points per split, and the training signal's scale."""

    points: dict[str, int]
    mean: DoubleArray  # (2,)
    std: DoubleArray  # (2,)


def trial_file(activity: str, trial: int, code: str) -> str:
    """The path of a recording in the published layout."""
    return f"A_DeviceMotion_data/{activity}_{trial}/sub_{code}.csv"


def _read_subjects(files: RawFiles) -> dict[str, str]:
    """Subject code -> gender, in the file's order."""
    try:
        table = _read_csv(files, SUBJECTS, ("code", "gender"), pl.Int64)
    except DataError as error:
        raise DataError(f"{files.path(SUBJECTS)}: {error}; restore it from the published data set") from None
    if table["code"].n_unique() != len(table):
        raise DataError(f"{files.path(SUBJECTS)}: column 'code' must be unique, found repeated subjects; remove them")
    if not table["gender"].is_in([0, 1]).all():
        raise DataError(f"{files.path(SUBJECTS)}: column 'gender' must be 0 (female) or 1 (male), found others; restore it")
    return {str(code): GENDERS[gender] for code, gender in table.iter_rows()}


def _usable(files: RawFiles, subjects: dict[str, str], quarantine: Quarantine) -> list[_Recording]:
    """The recordings that exist, in the order of the published series: by split, subject, trial.

    Missing ones go to the quarantine before the long part.
    """
    trials = sorted((trial, activity) for activity, numbers in TRIALS.items() for trial in numbers)
    found = []
    for split in ("train", "test"):
        for code, gender in subjects.items():
            for trial, activity in trials:
                if (trial <= LAST_TRAIN_TRIAL) != (split == "train"):
                    continue
                name = trial_file(activity, trial, code)
                if files.has(name):
                    found.append(_Recording(name=name, code=code, gender=gender, activity=activity, trial=trial, split=split))
                else:
                    quarantine.add(name, "expected file is missing")
    return found


def _measure(files: RawFiles, recordings: list[_Recording], quarantine: Quarantine) -> _Extent:
    """Reads each recording once; moves unreadable ones from `recordings` to the quarantine."""
    points = {"train": 0, "test": 0}
    mean, squares = np.zeros(2), np.zeros(2)
    for recording in list(recordings):
        try:
            signal = _magnitudes(files, recording.name)
        except DataError as error:
            quarantine.add(recording.name, str(error))
            recordings.remove(recording)
            continue
        before, added = points[recording.split], len(signal)
        points[recording.split] += added
        if recording.split == "train":  # mean and sum of squared deviations of two parts together
            difference = signal.mean(axis=0) - mean
            squares += ((signal - signal.mean(axis=0)) ** 2).sum(axis=0) + difference**2 * (before * added / (before + added))
            mean += difference * (added / (before + added))
    if not (squares > 0).all():
        raise DataError(f"{files.path('')}: a sensor is constant over all training recordings; check the files")
    return _Extent(points, mean, np.sqrt(squares / points["train"]))


def _windows(raw: Path, recordings: list[_Recording], extent: _Extent) -> Iterator[RawRecords]:
    """Windows whose first and last point agree in subject and activity, a recording at a time.

    As published, windows are cut from all recordings of a split put one after the other, and the trial is not compared, so
    a window may span two trials of one person and activity; their number follows from rounding (points − window)/stride.
    """
    with RawFiles(raw) as files:
        for split in ("train", "test"):
            room = extent.points[split] - WINDOW
            starts = np.arange(0, max(room, 0), STRIDE)[: max(round(room / STRIDE), 0)]
            of_split = [recording for recording in recordings if recording.split == split]
            tail, owners = np.empty((0, 2)), np.empty(0, dtype=np.int64)  # points not yet cut, and their recordings
            offset = done = 0  # where the tail starts in the split's series; windows given so far
            for number, recording in enumerate(of_split):
                signal = (_magnitudes(files, recording.name) - extent.mean) / extent.std
                tail = np.concatenate([tail, signal])
                owners = np.concatenate([owners, np.full(len(signal), number)])
                ready = starts[done:][starts[done:] + WINDOW <= offset + len(tail)]
                if len(ready):
                    yield _cut(tail, owners, ready, offset, of_split)
                    done += len(ready)
                    keep_from = int(ready[-1]) + STRIDE - offset
                    tail, owners, offset = tail[keep_from:], owners[keep_from:], offset + keep_from


def _cut(series: DoubleArray, owners: IntArray, starts: IntArray, offset: int, recordings: list[_Recording]) -> RawRecords:
    local = starts - offset
    first = [recordings[owner] for owner in owners[local]]
    last = [recordings[owner] for owner in owners[local + WINDOW - 1]]
    whole = np.array([(a.code, a.activity) == (b.code, b.activity) for a, b in zip(first, last, strict=True)], dtype=bool)
    kept = [recording for recording, keep in zip(first, whole, strict=True) if keep]
    windows = np.lib.stride_tricks.sliding_window_view(series.astype(np.float32), WINDOW, axis=0)[local[whole]]
    return RawRecords(
        payloads=np.ascontiguousarray(windows),
        record_ids=tuple(f"{recordings[0].split}-{start:07d}" for start in starts[whole]),
        splits=tuple(recording.split for recording in kept),
        persons=tuple(recording.code for recording in kept),
        blocks=tuple(f"{recording.code}/{recording.trial}" for recording in kept),
        labels={
            "gender": tuple(recording.gender for recording in kept),
            "id": tuple(recording.code for recording in kept),
            "activity": tuple(recording.activity for recording in kept),
        },
    )


def _magnitudes(files: RawFiles, name: str) -> DoubleArray:
    """Magnitudes (points, 2) of rotation rate and user acceleration."""
    axes = _read_csv(files, name, SENSOR_COLUMNS, pl.Float64).to_numpy()  # (points, 6)
    return np.stack([np.linalg.norm(axes[:, :3], axis=1), np.linalg.norm(axes[:, 3:], axis=1)], axis=1)


def _read_csv(files: RawFiles, name: str, columns: tuple[str, ...], dtype: pl.DataType | type[pl.DataType]) -> pl.DataFrame:
    """The named columns as numbers; errors never contain a value."""
    data = files.read(name)
    try:
        header = pl.read_csv(io.BytesIO(data), n_rows=0).columns
        missing = [column for column in columns if column not in header]
        if missing:
            raise DataError(f"expected columns {', '.join(columns)}; missing: {', '.join(missing)}")
        table = pl.read_csv(io.BytesIO(data), columns=list(columns), schema_overrides=dict.fromkeys(columns, dtype))
    except (pl.exceptions.PolarsError, UnicodeDecodeError):
        raise DataError(f"is damaged: not a CSV table of numbers in {', '.join(columns)}") from None
    if table.is_empty():
        raise DataError("has no rows")
    if not table.select(pl.all_horizontal(pl.all().is_not_null() & pl.all().cast(pl.Float64).is_finite()).all()).item():
        raise DataError(f"is damaged: missing or non-finite numbers in {', '.join(columns)}")
    return table.select(columns)


DATASET = MotionSense()
