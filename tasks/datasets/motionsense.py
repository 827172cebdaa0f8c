"""MotionSense: phone motion of people walking, jogging and climbing stairs, in its published folder layout.

    A_DeviceMotion_data/<activity>_<trial>/sub_<N>.csv   50 Hz, rotationRate.* and userAcceleration.* among the columns
    data_subjects_info.csv                                code, weight, height, age, gender (0 female, 1 male)

Preparation is that of the PASS paper: magnitudes of rotation rate and user acceleration, four activities, split by
trial, standardised with training statistics, windows of 128 points every 10.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import polars as pl

from pass_core.data import DoubleArray, FloatArray, IntArray
from pass_core.errors import DataError
from tasks.datasets.base import DatasetConfig, RawRecords

ACTIVITIES = ("dws", "ups", "wlk", "jog")  # label order; sitting and standing are not used
TRIALS = {"dws": (1, 2, 11), "ups": (3, 4, 12), "wlk": (7, 8, 15), "jog": (9, 16)}
LAST_TRAIN_TRIAL = 9
SENSORS = ("rotationRate", "userAcceleration")
SENSOR_COLUMNS = tuple(f"{sensor}.{axis}" for sensor in SENSORS for axis in "xyz")
GENDERS = ("female", "male")
WINDOW, STRIDE = 128, 10


@dataclass(frozen=True, slots=True)
class MotionSenseConfig(DatasetConfig):
    """The published data have no further choices."""


@dataclass(frozen=True, slots=True)
class _Series:
    """One split: all recordings one after the other, by subject, then trial, then time."""

    signal: DoubleArray  # (points, 2)
    subject: IntArray  # (points,) position in the list of subjects
    activity: IntArray  # (points,)
    trial: IntArray  # (points,)


class MotionSense:
    """The MotionSense data set."""

    summary: ClassVar[str] = "MotionSense: phone motion of 24 people (gender, id, activity), windows of 128 points"
    config_type: ClassVar[type[DatasetConfig]] = MotionSenseConfig
    attribute_names: ClassVar[tuple[str, ...]] = ("gender", "id", "activity")
    payload_range: ClassVar[tuple[float, float]] = (
        -5.0,
        50.0,
    )  # standardised magnitudes are bounded below by −mean/std
    min_class_share: ClassVar[float] = 0.005

    def read(self, raw: Path, config: DatasetConfig) -> RawRecords:
        del config
        return read_motion(raw)


def read_motion(raw: Path) -> RawRecords:
    """All windows of a folder in MotionSense's layout."""
    codes, genders = _read_subjects(raw / "data_subjects_info.csv")
    _check_files(raw, codes)
    series = {split: _read_split(raw, codes, split) for split in ("train", "test")}
    mean, std = series["train"].signal.mean(axis=0), series["train"].signal.std(axis=0)
    if not (std > 0).all():
        raise DataError(f"{raw}: a sensor is constant over all training recordings; check the files")
    columns: dict[str, list[str]] = {name: [] for name in ("ids", "splits", "persons", "blocks", "gender", "activity")}
    payloads: list[FloatArray] = []
    for split, part in series.items():
        starts = _window_starts(part, genders)
        standardised = ((part.signal - mean) / std).astype(np.float32)
        payloads.append(np.lib.stride_tricks.sliding_window_view(standardised, WINDOW, axis=0)[starts])
        subjects = part.subject[starts]
        columns["ids"] += [f"{split}-{start:07d}" for start in starts]
        columns["splits"] += [split] * len(starts)
        columns["persons"] += [codes[s] for s in subjects]
        columns["blocks"] += [f"{codes[s]}/{trial}" for s, trial in zip(subjects, part.trial[starts], strict=True)]
        columns["gender"] += [GENDERS[genders[s]] for s in subjects]
        columns["activity"] += [ACTIVITIES[a] for a in part.activity[starts]]
    return RawRecords(
        payloads=np.ascontiguousarray(np.concatenate(payloads)),
        record_ids=tuple(columns["ids"]),
        splits=tuple(columns["splits"]),
        persons=tuple(columns["persons"]),
        blocks=tuple(columns["blocks"]),
        labels={
            "gender": tuple(columns["gender"]),
            "id": tuple(columns["persons"]),
            "activity": tuple(columns["activity"]),
        },
        classes={"gender": GENDERS, "id": tuple(codes), "activity": ACTIVITIES},
    )


def trial_folder(raw: Path, activity: str, trial: int) -> Path:
    """Where the recordings of one trial lie."""
    return raw / "A_DeviceMotion_data" / f"{activity}_{trial}"


def _read_subjects(path: Path) -> tuple[list[str], IntArray]:
    """Subject codes and gender indices, in the file's order."""
    table = _read_csv(path, ("code", "gender"), pl.Int64)
    if table["code"].n_unique() != len(table):
        raise DataError(f"{path}: column 'code' must be unique; remove the repeated subjects")
    if not table["gender"].is_in([0, 1]).all():
        raise DataError(f"{path}: column 'gender' must hold 0 (female) or 1 (male) only")
    return [str(code) for code in table["code"]], table["gender"].to_numpy().astype(np.int64)


def _read_csv(path: Path, columns: tuple[str, ...], dtype: pl.DataType | type[pl.DataType]) -> pl.DataFrame:
    """The named columns as numbers; an error names the file and the columns, never a value in them."""
    try:
        header = pl.read_csv(path, n_rows=0).columns
        missing = [name for name in columns if name not in header]
        if missing:
            raise DataError(f"{path}: expected columns {', '.join(columns)}; missing: {', '.join(missing)}")
        table = pl.read_csv(path, columns=list(columns), schema_overrides=dict.fromkeys(columns, dtype))
    except FileNotFoundError:
        raise DataError(f"{path}: expected file is missing; restore it from the published data set") from None
    except (pl.exceptions.PolarsError, UnicodeDecodeError):
        raise DataError(f"{path}: is damaged: not a CSV table of numbers in {', '.join(columns)}; restore it") from None
    if table.is_empty():
        raise DataError(f"{path}: has no rows; restore it")
    whole = table.select(pl.all_horizontal(pl.all().is_not_null() & pl.all().cast(pl.Float64).is_finite()).all()).item()
    if not whole:
        raise DataError(f"{path}: is damaged: missing or non-finite numbers in {', '.join(columns)}; restore it")
    return table.select(columns)


def _check_files(raw: Path, codes: list[str]) -> None:
    """Fails before the long part when any recording is missing."""
    expected = [
        trial_folder(raw, activity, trial) / f"sub_{code}.csv"
        for activity, trials in TRIALS.items()
        for trial in trials
        for code in codes
    ]
    missing = [path for path in expected if not path.is_file()]
    if missing:
        raise DataError(
            f"{missing[0]}: expected file is missing ({len(missing)} of {len(expected)} recordings are); "
            "restore it or remove the subject from data_subjects_info.csv"
        )


def _read_split(raw: Path, codes: list[str], split: str) -> _Series:
    trials = sorted((trial, activity) for activity, numbers in TRIALS.items() for trial in numbers)
    chosen = [(trial, activity) for trial, activity in trials if (trial <= LAST_TRAIN_TRIAL) == (split == "train")]
    signals: list[DoubleArray] = []
    labels: list[tuple[int, int, int]] = []  # subject, activity, trial of every recording
    for subject, code in enumerate(codes):
        for trial, activity in chosen:
            path = trial_folder(raw, activity, trial) / f"sub_{code}.csv"
            axes = _read_csv(path, SENSOR_COLUMNS, pl.Float64).to_numpy()  # (points, 6)
            signals.append(np.stack([np.linalg.norm(axes[:, :3], axis=1), np.linalg.norm(axes[:, 3:], axis=1)], axis=1))
            labels.append((subject, ACTIVITIES.index(activity), trial))
    per_point = np.repeat(np.array(labels, dtype=np.int64), [len(s) for s in signals], axis=0)  # (points, 3)
    return _Series(np.concatenate(signals), per_point[:, 0], per_point[:, 1], per_point[:, 2])


def _window_starts(series: _Series, genders: IntArray) -> IntArray:
    """Starts of windows whose first and last point agree in gender, subject and activity.

    As published, windows are cut from the concatenated series and the trial is not compared, so a window may span two
    trials of one person and activity; their number follows from rounding (points − window)/stride.
    """
    room = len(series.signal) - WINDOW
    starts = np.arange(0, max(room, 0), STRIDE)[: round(room / STRIDE)]
    last = starts + WINDOW - 1
    same = (series.subject[starts] == series.subject[last]) & (series.activity[starts] == series.activity[last])
    same &= genders[series.subject[starts]] == genders[series.subject[last]]
    kept: IntArray = starts[same].astype(np.int64)
    return kept


DATASET = MotionSense()
