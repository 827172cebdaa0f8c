"""Encoded payloads of any kind: checked when read, stripped of metadata before publishing."""

from pass_core.errors import DataError
from tasks.payloads.images import decode_image, strip_image
from tasks.payloads.payload import PayloadKind
from tasks.payloads.quarantine import Quarantine
from tasks.payloads.raw_files import RawFiles
from tasks.payloads.sounds import decode_sound, strip_sound


def check_encoded(kind: PayloadKind, data: bytes) -> None:
    """Raises a DataError for a file that cannot be decoded or stripped: later steps only see files that can be released."""
    (decode_image if kind == "image" else decode_sound)(data)
    strip_encoded(kind, data)


def strip_encoded(kind: PayloadKind, data: bytes) -> bytes:
    """The file without metadata: a donor's picture or sound, without place or time."""
    return strip_image(data) if kind == "image" else strip_sound(data)


def read_encoded(files: RawFiles, kind: PayloadKind, name: str, quarantine: Quarantine) -> bytes | None:
    """A file of a data set, checked; None when it goes to the quarantine."""
    try:
        data = files.read(name)
        check_encoded(kind, data)
    except DataError as error:
        quarantine.add(name, str(error))
        return None
    return data
