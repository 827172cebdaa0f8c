"""Encoded payloads of any kind: checked when read, stripped of metadata before publishing."""

from collections.abc import Mapping
from typing import TypeVar

from pass_core.errors import DataError
from tasks.payloads.images import decode_image, strip_image
from tasks.payloads.payload import PayloadKind
from tasks.payloads.quarantine import Quarantine
from tasks.payloads.raw_files import RawFiles
from tasks.payloads.sounds import decode_sound, strip_sound

Key = TypeVar("Key")


def check_encoded(kind: PayloadKind, data: bytes) -> None:
    """Raises a DataError for a file that cannot be decoded or stripped: later steps only see files that can be released."""
    (decode_image if kind == "image" else decode_sound)(data)
    strip_encoded(kind, data)


def strip_encoded(kind: PayloadKind, data: bytes) -> bytes:
    """The file without metadata: a donor's picture or sound, without place or time."""
    return strip_image(data) if kind == "image" else strip_sound(data)


def read_encoded(files: RawFiles, kind: PayloadKind, names: Mapping[Key, str], quarantine: Quarantine) -> dict[Key, bytes]:
    """Files of a data set, checked, without those that go to the quarantine."""
    found = {}
    for key, name in names.items():
        try:
            data = files.read(name)
            check_encoded(kind, data)
        except DataError as error:
            quarantine.add(name, str(error))
        else:
            found[key] = data
    return found
