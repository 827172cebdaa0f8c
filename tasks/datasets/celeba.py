"""CelebA: aligned photographs of faces with forty yes-or-no attributes, in its published layout.

    img_align_celeba/000001.jpg …    178×218 pixels; the folder, or the published img_align_celeba.zip
    list_attr_celeba.txt              number of images, names of the attributes, then name and ±1 forty times
    identity_CelebA.txt               name and number of the person
    list_eval_partition.txt           name and 0 (train), 1 (validation) or 2 (test); optional

With the official partition, validation and test together are the test part, as in the paper (162,770 and 39,829 images).
Without it people are split, seeded, four to one. The payload is the file; the centre crop of 160×160 is the extractor's.
"""

from collections.abc import Iterator, Set
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


class CelebA:
    """The CelebA data set."""

    summary: ClassVar[str] = "CelebA: aligned faces with 40 yes-or-no attributes (Male, Smiling, Young, …)"
    config_type: ClassVar[type[CelebAConfig]] = CelebAConfig
    attribute_names: ClassVar[tuple[str, ...]] = ATTRIBUTES

    def read(self, raw: Path, config: CelebAConfig, quarantine: Quarantine) -> Reading:
        names = config.attribute_names()
        with RawFiles(raw) as files:
            attributes = _read_attributes(files, names)
            persons = _read_pairs(files, IDENTITIES) if files.has(IDENTITIES) else {}
            splits = _read_splits(files, attributes.keys(), persons, config.split_seed)
        batches, classes = _images(raw, attributes, persons, splits, quarantine), dict.fromkeys(names, CLASSES)
        return Reading(payload=Payload("image"), classes=classes, batches=batches, expected=len(attributes))


def _read_splits(files: RawFiles, images: Set[str], persons: dict[str, str], seed: int) -> dict[str, str]:
    """The official partition, or else a seeded split of people."""
    if files.has(PARTITION):
        parts = _read_pairs(files, PARTITION)
        if set(parts.values()) - {"0", "1", "2"} or images - parts.keys():
            raise DataError(f"{files.path(PARTITION)}: expected 0, 1 or 2 for every image of {ATTRIBUTE_LIST}; restore it")
        return {image: "train" if parts[image] == "0" else "test" for image in images}
    if images - persons.keys():
        expected = f"expected the person of every image of {ATTRIBUTE_LIST}, to split by person"
        raise DataError(f"{files.path(IDENTITIES)}: {expected}; restore it, or {PARTITION} for the official split")
    return {image: split_of(seed, persons[image]) for image in images}


def _read_attributes(files: RawFiles, names: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Keeps only the attributes that the data set's section names."""
    lines = _read_lines(files, ATTRIBUTE_LIST)
    header = lines[1].split() if len(lines) > 1 else []
    missing = [name for name in names if name not in header]
    if missing or not lines[0].strip().isdigit():
        found = f"expected the number of images, then the attributes' names; missing: {', '.join(missing) or 'the number'}"
        raise DataError(f"{files.path(ATTRIBUTE_LIST)}: {found}; restore it")
    columns = {name: header.index(name) + 1 for name in names}
    attributes: dict[str, dict[str, str]] = {}
    for number, line in enumerate(lines[2:], start=3):
        row, place = line.split(), f"{files.path(ATTRIBUTE_LIST)}, line {number}"
        if len(row) != len(header) + 1 or any(row[column] not in ("1", "-1") for column in columns.values()):
            raise DataError(f"{place}: expected a name and {len(header)} times 1 or -1; restore it")
        image = row[0]
        if image in attributes or "/" in image or "\\" in image:
            raise DataError(f"{place}: expected a file name that occurs once; restore it")
        attributes[image] = {name: CLASSES[row[column] == "1"] for name, column in columns.items()}
    if len(attributes) != int(lines[0]):
        raise DataError(f"{files.path(ATTRIBUTE_LIST)}: declares {lines[0].strip()} images, found {len(attributes)}; restore it")
    return attributes


def _read_pairs(files: RawFiles, name: str) -> dict[str, str]:
    pairs = [line.split() for line in _read_lines(files, name)]
    wrong = next((number for number, parts in enumerate(pairs, start=1) if len(parts) != 2), None)
    if wrong is not None:
        raise DataError(f"{files.path(name)}, line {wrong}: expected a file name and a number; restore it")
    return dict(pairs)


def _read_lines(files: RawFiles, name: str) -> list[str]:
    try:
        return [line for line in files.read(name).decode().splitlines() if line.strip()]
    except (DataError, UnicodeDecodeError) as error:
        reason = error if isinstance(error, DataError) else "is damaged: not text"
        raise DataError(f"{files.path(name)}: {reason}; restore it from the published data set") from None


def _images(
    raw: Path,
    attributes: dict[str, dict[str, str]],
    persons: dict[str, str],
    splits: dict[str, str],
    quarantine: Quarantine,
) -> Iterator[RawRecords]:
    images = list(attributes)
    with RawFiles(raw) as files:
        for start in range(0, len(images), IMAGES_AT_ONCE):
            batch = {image: f"{IMAGES}/{image}" for image in images[start : start + IMAGES_AT_ONCE]}
            payloads = read_encoded(files, "image", batch, quarantine)
            shown = tuple(persons.get(image, image) for image in payloads)
            labels = [attributes[image] for image in payloads]
            yield RawRecords(
                payloads=list(payloads.values()),
                record_ids=tuple(image.rsplit(".", 1)[0] for image in payloads),
                splits=tuple(splits[image] for image in payloads),
                persons=shown,
                blocks=shown,
                labels={name: tuple(label[name] for label in labels) for name in attributes[images[0]]},
            )


DATASET = CelebA()
