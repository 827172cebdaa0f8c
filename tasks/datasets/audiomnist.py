"""AudioMNIST: sixty people saying digits, in its published folder layout.

    data/<speaker 01..60>/<digit>_<speaker>_<take>.wav    48 kHz as published; .flac of any rate is read too
    data/audioMNIST_meta.txt                               JSON: speaker -> accent, age, gender, …

The paper's classes: accents that differ only in case are one, and the age 1234 of one speaker, surely a slip, stays a class of
its own. Its split: within each (speaker, digit) cell a seeded choice of takes, four to one. `split: speakers` is harder and
more honest: test speakers do not occur in training.
"""

import json
import logging
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pass_core.errors import ConfigError, DataError
from pass_core.randomness import stream
from tasks.datasets.base import TEST_SHARE, RawRecords, Reading
from tasks.payloads.encoded import read_encoded
from tasks.payloads.payload import Payload
from tasks.payloads.quarantine import Quarantine
from tasks.payloads.raw_files import RawFiles
from tasks.sections.dataset import DatasetConfig

logger = logging.getLogger(__name__)

META = "data/audioMNIST_meta.txt"
GENDERS = ("female", "male")
DIGITS = tuple("0123456789")
OLDEST = 120
CLIP_NAME = re.compile(r"(?P<digit>\d)_(?P<speaker>\d\d)_(?P<take>\d+)\.(wav|flac)")


@dataclass(frozen=True, slots=True)
class AudioMnistConfig(DatasetConfig):
    """How takes or speakers are split."""

    extractor: str = "logmel"
    split: Literal["takes", "speakers"] = "takes"
    split_seed: int = 0

    def __post_init__(self) -> None:
        DatasetConfig.__post_init__(self)
        if self.split == "speakers" and "id" in self.roles():
            raise ConfigError("split: with `speakers`, test speakers are not in training: choose `takes`, or no role for `id`")


class AudioMnist:
    """The AudioMNIST data set."""

    summary: ClassVar[str] = "AudioMNIST: 60 people saying digits (gender, accent, age, id, digit), WAV or FLAC"
    config_type: ClassVar[type[AudioMnistConfig]] = AudioMnistConfig
    attribute_names: ClassVar[tuple[str, ...]] = ("gender", "accent", "age", "id", "digit")

    def read(self, raw: Path, config: AudioMnistConfig, quarantine: Quarantine) -> Reading:
        with RawFiles(raw) as files:
            speakers = _read_speakers(files)
            clips = sum(len(files.names(f"data/{code}")) for code in speakers)
        accents, ages = ({speaker[name] for speaker in speakers.values()} for name in ("accent", "age"))
        people = {"gender": GENDERS, "accent": tuple(sorted(accents)), "age": tuple(sorted(ages, key=int)), "id": tuple(speakers)}
        impossible = sum(int(speaker["age"]) > OLDEST for speaker in speakers.values())
        if impossible:
            logger.warning("%s: %d speaker(s) with an age above %d: kept as a class of their own", raw / META, impossible, OLDEST)
        return Reading(
            payload=Payload("audio"),
            classes=people | {"digit": DIGITS},
            batches=_clips(raw, speakers, config, quarantine),
            expected=clips,
            flags={"impossible ages": impossible},
        )


def _read_speakers(files: RawFiles) -> dict[str, dict[str, str]]:
    """Speaker code -> attribute -> class, by code."""
    try:
        entries = json.loads(files.read(META))
        speakers = {code: (str(entry["gender"]), str(entry["accent"]), int(entry["age"])) for code, entry in entries.items()}
    except DataError as error:
        raise DataError(f"{files.path(META)}: {error}; restore it from the published data set") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DataError(f"{files.path(META)}: expected JSON with gender, accent and age of every speaker; restore it") from None
    if not speakers or any(gender not in GENDERS for gender, _, _ in speakers.values()):
        raise DataError(f"{files.path(META)}: expected speakers whose gender is one of {', '.join(GENDERS)}; restore it")
    # "german" and "German" are one accent, written the way most speakers' is.
    spellings = Counter(accent for _, accent, _ in speakers.values())
    usual: dict[str, str] = {}
    for spelling, _ in sorted(spellings.items(), key=lambda item: (-item[1], item[0])):
        usual.setdefault(spelling.casefold(), spelling)
    return {
        code: {"gender": gender, "accent": usual[accent.casefold()], "age": str(age)}
        for code, (gender, accent, age) in sorted(speakers.items())
    }


def _clips(
    raw: Path, speakers: dict[str, dict[str, str]], config: AudioMnistConfig, quarantine: Quarantine
) -> Iterator[RawRecords]:
    """The clips of one speaker and digit at a time."""
    test_speakers = _test_speakers(speakers, config.split_seed)
    with RawFiles(raw) as files:
        for code, speaker in speakers.items():
            for digit, takes in _takes(files, code, quarantine).items():
                payloads = read_encoded(files, "audio", takes, quarantine)
                if config.split == "takes":  # a fifth of a cell's takes, to the nearest whole number
                    order = stream(config.split_seed, "audiomnist takes", code, digit).permutation(len(takes))
                    held_out = {list(takes)[position] for position in order[: round(len(takes) * TEST_SHARE)]}
                else:
                    held_out = set(takes) if code in test_speakers else set()
                labels, n = {**speaker, "id": code, "digit": digit}, len(payloads)
                yield RawRecords(
                    payloads=list(payloads.values()),
                    record_ids=tuple(f"{code}-{digit}-{take:02d}" for take in payloads),
                    splits=tuple("test" if take in held_out else "train" for take in payloads),
                    persons=(code,) * n,
                    blocks=(f"{code}/{digit}",) * n,  # takes of one digit were spoken one after the other
                    labels={name: (value,) * n for name, value in labels.items()},
                )


def _takes(files: RawFiles, code: str, quarantine: Quarantine) -> dict[str, dict[int, str]]:
    """Digit -> take -> file of one speaker."""
    cells: dict[str, dict[int, str]] = {}
    folder = f"data/{code}"
    for name in files.names(folder):
        if not name.endswith((".wav", ".flac")):
            continue
        parts = CLIP_NAME.fullmatch(name.rsplit("/", 1)[-1])
        if parts is None or parts["speaker"] != code:
            quarantine.add(name, "expected a name like <digit>_<speaker>_<take>.wav with the folder's speaker")
            continue
        takes, take = cells.setdefault(parts["digit"], {}), int(parts["take"])
        if takes.setdefault(take, name) != name:
            raise DataError(f"{files.path(name)}: found this take twice, also as {takes[take]}; remove one")
    if not cells:
        quarantine.add(folder, "expected folder of a speaker is missing or has no clips")
    return {digit: dict(sorted(takes.items())) for digit, takes in sorted(cells.items())}


def _test_speakers(speakers: dict[str, dict[str, str]], seed: int) -> set[str]:
    """A fifth of the speakers of each gender, at least one."""
    chosen: set[str] = set()
    for gender in GENDERS:
        codes = [code for code, speaker in speakers.items() if speaker["gender"] == gender]
        order = stream(seed, "audiomnist speakers", gender).permutation(len(codes))
        chosen |= {codes[position] for position in order[: max(1, round(len(codes) * TEST_SHARE))]}
    return chosen


DATASET = AudioMnist()
