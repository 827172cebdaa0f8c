"""CelebA: aligned photographs of faces with forty yes-or-no attributes, in its published layout.

    img_align_celeba/000001.jpg …    178×218 pixels; the folder, or the published img_align_celeba.zip
    list_attr_celeba.txt              number of images, names of the attributes, then name and ±1 forty times
    identity_CelebA.txt               name and number of the person
    list_eval_partition.txt           name and 0 (train), 1 (validation) or 2 (test); optional

With the official partition, validation and test together are the test part, as in the paper (162,770 and 39,829 images).
Without it people are split, seeded, four to one. The payload is the file; the centre crop of 160×160 is the extractor's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pass_core.errors import DataError
from tasks.datasets.base import RawRecords, Reading, split_of
from tasks.payloads.encoded import read_encoded
from tasks.payloads.payload import Payload
from tasks.payloads.quarantine import Quarantine
from tasks.payloads.raw_files import RawFiles
from tasks.sections.dataset import DatasetConfig

ATTRIBUTES = (
    "5_o_Clock_Shadow", "Arched_Eyebrows", "Attractive", "Bags_Under_Eyes", "Bald", "Bangs", "Big_Lips", "Big_Nose",
    "Black_Hair", "Blond_Hair", "Blurry", "Brown_Hair", "Bushy_Eyebrows", "Chubby", "Double_Chin", "Eyeglasses", "Goatee",
    "Gray_Hair", "Heavy_Makeup", "High_Cheekbones", "Male", "Mouth_Slightly_Open", "Mustache", "Narrow_Eyes", "No_Beard",
    "Oval_Face", "Pale_Skin", "Pointy_Nose", "Receding_Hairline", "Rosy_Cheeks", "Sideburns", "Smiling", "Straight_Hair",
    "Wavy_Hair", "Wearing_Earrings", "Wearing_Hat", "Wearing_Lipstick", "Wearing_Necklace", "Wearing_Necktie", "Young",
)  # fmt: skip
IMAGES, ATTRIBUTE_LIST = "img_align_celeba", "list_attr_celeba.txt"
IDENTITIES, PARTITION = "identity_CelebA.txt", "list_eval_partition.txt"
CLASSES = ("no", "yes")
IMAGES_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class CelebAConfig(DatasetConfig):
    """The seed of the split where there is no official one."""

    extractor: str = "facenet"
    split_seed: int = 0


@dataclass(frozen=True, slots=True)
class _Index:
    """What the text files declare about the images."""

    attributes: dict[str, dict[str, str]]  # image -> attribute -> class
    persons: dict[str, str]
    splits: dict[str, str]


class CelebA:
    """The CelebA data set."""

    summary: ClassVar[str] = "CelebA: aligned faces with 40 yes-or-no attributes (Male, Smiling, Young, …)"
    config_type: ClassVar[type[CelebAConfig]] = CelebAConfig
    attribute_names: ClassVar[tuple[str, ...]] = ATTRIBUTES

    def read(self, raw: Path, config: CelebAConfig, quarantine: Quarantine) -> Reading:
        names = config.attribute_names()
        with RawFiles(raw) as files:
            index = _read_index(files, names, config.split_seed)
        batches, classes = _images(raw, index, names, quarantine), dict.fromkeys(names, CLASSES)
        return Reading(payload=Payload("image"), classes=classes, batches=batches, expected=len(index.attributes))


def _read_index(files: RawFiles, names: tuple[str, ...], seed: int) -> _Index:
    attributes = _read_attributes(files, names)
    persons = dict(_read_pairs(files, IDENTITIES)) if files.has(IDENTITIES) else {}
    if files.has(PARTITION):
        parts = dict(_read_pairs(files, PARTITION))
        unknown = set(parts.values()) - {"0", "1", "2"}
        if unknown or attributes.keys() - parts.keys():
            raise DataError(f"{files.path(PARTITION)}: expected 0, 1 or 2 for every image of {ATTRIBUTE_LIST}; restore it")
        splits = {image: "train" if parts[image] == "0" else "test" for image in attributes}
    elif attributes.keys() - persons.keys():
        raise DataError(
            f"{files.path(IDENTITIES)}: expected the person of every image of {ATTRIBUTE_LIST}, to split by person; "
            f"restore it, or {PARTITION} for the official split"
        )
    else:
        splits = {image: split_of(seed, persons[image]) for image in attributes}
    return _Index(attributes, {image: persons.get(image, image) for image in attributes}, splits)


def _read_attributes(files: RawFiles, names: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Keeps only the attributes that the data set's section names."""
    lines = _read_lines(files, ATTRIBUTE_LIST)
    header = lines[1].split() if len(lines) > 1 else []
    missing = [name for name in names if name not in header]
    if missing or not lines[0].strip().isdigit():
        raise DataError(
            f"{files.path(ATTRIBUTE_LIST)}: expected the number of images, then the attributes' names; "
            f"missing: {', '.join(missing) or 'the number'}"
        )
    columns = {name: header.index(name) + 1 for name in names}
    attributes: dict[str, dict[str, str]] = {}
    for number, line in enumerate(lines[2:], start=3):
        image, *values = line.split()
        row = [image, *values]
        if len(values) != len(header) or any(row[column] not in ("1", "-1") for column in columns.values()):
            raise DataError(f"{files.path(ATTRIBUTE_LIST)}, line {number}: expected a name and {len(header)} times 1 or -1")
        if image in attributes or "/" in image or "\\" in image:
            raise DataError(f"{files.path(ATTRIBUTE_LIST)}, line {number}: expected a file name that occurs once")
        attributes[image] = {name: CLASSES[row[column] == "1"] for name, column in columns.items()}
    if len(attributes) != int(lines[0]):
        raise DataError(f"{files.path(ATTRIBUTE_LIST)}: declares {lines[0].strip()} images, found {len(attributes)}; restore it")
    return attributes


def _read_pairs(files: RawFiles, name: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(_read_lines(files, name), start=1):
        parts = line.split()
        if len(parts) != 2:
            raise DataError(f"{files.path(name)}, line {number}: expected a file name and a number")
        yield parts[0], parts[1]


def _read_lines(files: RawFiles, name: str) -> list[str]:
    try:
        return [line for line in files.read(name).decode().splitlines() if line.strip()]
    except (DataError, UnicodeDecodeError) as error:
        reason = error if isinstance(error, DataError) else "is damaged: not text"
        raise DataError(f"{files.path(name)}: {reason}; restore it from the published data set") from None


def _images(raw: Path, index: _Index, names: tuple[str, ...], quarantine: Quarantine) -> Iterator[RawRecords]:
    images = list(index.attributes)
    with RawFiles(raw) as files:
        for start in range(0, len(images), IMAGES_AT_ONCE):
            batch = images[start : start + IMAGES_AT_ONCE]
            found = {image: read_encoded(files, "image", f"{IMAGES}/{image}", quarantine) for image in batch}
            payloads = {image: data for image, data in found.items() if data is not None}
            persons = tuple(index.persons[image] for image in payloads)
            yield RawRecords(
                payloads=list(payloads.values()),
                record_ids=tuple(image.rsplit(".", 1)[0] for image in payloads),
                splits=tuple(index.splits[image] for image in payloads),
                persons=persons,
                blocks=persons,
                labels={name: tuple(index.attributes[image][name] for image in payloads) for name in names},
            )


DATASET = CelebA()
