"""The embedded data set: synthetic walkers written as files in MotionSense's published layout.

A person's gait is a sum of harmonics of their cadence. Activity sets cadence and strength, gender shifts the balance of
the harmonics, identity shifts all of it a little; every trial adds its own phone orientation, gain, cadence drift and
noise. So all three attributes can be inferred from the signals, and none from one number alone.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pass_core.checks import check_range
from pass_core.data import DoubleArray
from tasks.datasets.motionsense import SENSOR_COLUMNS, SUBJECTS, TRIALS, MotionSense, trial_file
from tasks.sections.dataset import DatasetConfig

SAMPLING_RATE = 50.0
HARMONICS = 3
# Cadence in Hz, then strength of the three harmonics of rotation rate (rad/s) and of user acceleration (g).
GAITS: dict[str, tuple[float, tuple[float, float, float], tuple[float, float, float]]] = {
    "dws": (1.75, (1.6, 0.7, 0.5), (0.45, 0.35, 0.20)),
    "ups": (1.40, (1.3, 0.8, 0.3), (0.30, 0.15, 0.10)),
    "wlk": (1.90, (1.9, 0.6, 0.3), (0.40, 0.20, 0.08)),
    "jog": (2.60, (2.8, 1.1, 0.6), (1.10, 0.50, 0.25)),
}
REST_TRIALS = {"sit": (5, 13), "std": (6, 14)}  # also published; the reader skips them
GENDER_SHIFT = np.array([0.0, 0.3, -0.3, 0.0, -0.3, 0.3])  # log strength, rotation then acceleration


@dataclass(frozen=True, slots=True)
class SyntheticMotionConfig(DatasetConfig):
    """Size of the generated data set."""

    subjects: int = 24
    points_per_trial: int = 480  # at 50 Hz, on average

    def __post_init__(self) -> None:
        DatasetConfig.__post_init__(self)  # slots=True makes a new class, which zero-argument super() does not know
        check_range(self, "subjects", at_least=2)
        check_range(self, "points_per_trial", at_least=200)


@dataclass(frozen=True, slots=True)
class _Walker:
    """A person's gait: log strengths of the harmonics, cadence, the lag between the two sensors, swing angles."""

    strengths: DoubleArray  # (2 * HARMONICS,)
    cadence: float
    lag: float
    angles: DoubleArray  # (2, HARMONICS) direction of every harmonic in the plane of motion


class SyntheticMotion(MotionSense):
    """Synthetic walkers."""

    summary: ClassVar[str] = "embedded: synthetic walkers in MotionSense's layout (gender, id, activity), no download"
    config_type: ClassVar[type[DatasetConfig]] = SyntheticMotionConfig

    def generate(self, raw: Path, config: SyntheticMotionConfig, rng: np.random.Generator) -> int:
        raw.mkdir(parents=True, exist_ok=True)
        genders = np.arange(config.subjects) % 2
        ranges = {"weight": (50, 100), "height": (155, 195), "age": (18, 65)}
        drawn = {name: rng.integers(*limits, config.subjects) for name, limits in ranges.items()}
        subjects = pl.DataFrame({"code": np.arange(1, config.subjects + 1), **drawn, "gender": genders})
        subjects.write_csv(raw / SUBJECTS)
        walkers = [_draw_walker(int(gender), rng) for gender in genders]
        n_files = 1
        for activity, trials in (TRIALS | REST_TRIALS).items():
            for trial in trials:
                for code, walker in enumerate(walkers, start=1):
                    path = raw / trial_file(activity, trial, str(code))
                    path.parent.mkdir(parents=True, exist_ok=True)
                    _recording(walker, activity, config.points_per_trial, rng).write_csv(path)
                    n_files += 1
        return n_files


def _draw_walker(gender: int, rng: np.random.Generator) -> _Walker:
    shift = GENDER_SHIFT if gender else -GENDER_SHIFT
    return _Walker(
        strengths=shift + rng.uniform(-0.25, 0.25, 2 * HARMONICS),
        cadence=float(rng.uniform(0.94, 1.06)),
        lag=float(rng.uniform(-np.pi, np.pi)),
        angles=rng.uniform(-0.6, 0.6, (2, HARMONICS)),
    )


def _recording(walker: _Walker, activity: str, points: int, rng: np.random.Generator) -> pl.DataFrame:
    """One trial of one person, with the twelve published columns and the unnamed index before them."""
    n = int(points * rng.uniform(0.85, 1.15))
    if activity in REST_TRIALS:
        n = points // 4
    motion = _gait(walker, activity, n, rng) if activity in GAITS else np.zeros((2, n, 3))
    motion += rng.normal(0, 1, motion.shape) * np.array([0.25, 0.06])[:, None, None]  # sensor noise
    motion = motion @ _random_rotation(rng)  # how the phone lies in the pocket
    attitude = rng.uniform(-1, 1, 3) + np.cumsum(rng.normal(0, 0.01, (n, 3)), axis=0)
    gravity = np.tile(_random_rotation(rng)[0], (n, 1))
    columns: dict[str, NDArray[Any]] = {"": np.arange(n)}
    columns |= {f"attitude.{name}": attitude[:, k] for k, name in enumerate(("roll", "pitch", "yaw"))}
    columns |= {f"gravity.{axis}": gravity[:, k] for k, axis in enumerate("xyz")}
    columns |= {name: motion[k // 3, :, k % 3] for k, name in enumerate(SENSOR_COLUMNS)}
    return pl.DataFrame(columns).with_columns(pl.col(pl.Float64).round(6))


def _gait(walker: _Walker, activity: str, n: int, rng: np.random.Generator) -> DoubleArray:
    """(2 sensors, n, 3 axes): harmonics of a cadence that drifts slowly, scaled by the trial's gain."""
    cadence, rotation, acceleration = GAITS[activity]
    drift = np.cumsum(rng.normal(0, 0.0015, n))
    speed = cadence * walker.cadence * rng.normal(1, 0.01) * (1 + drift - drift.mean())
    phase = 2 * np.pi * np.cumsum(speed) / SAMPLING_RATE + rng.uniform(0, 2 * np.pi)
    gain = rng.normal(1, 0.08)
    strengths = np.exp(walker.strengths).reshape(2, HARMONICS) * np.array([rotation, acceleration]) * gain
    motion = np.zeros((2, n, 3))
    for sensor in range(2):
        for k in range(HARMONICS):
            wave = strengths[sensor, k] * np.cos((k + 1) * phase + sensor * walker.lag + 0.7 * k)
            angle = walker.angles[sensor, k] + k
            motion[sensor] += wave[:, None] * np.array([np.cos(angle), np.sin(angle), 0.3 * (k + 1) / HARMONICS])
    return motion


def _random_rotation(rng: np.random.Generator) -> DoubleArray:
    q, r = np.linalg.qr(rng.normal(size=(3, 3)))
    rotation: DoubleArray = q * np.sign(np.diag(r))
    return rotation


DATASET = SyntheticMotion()
