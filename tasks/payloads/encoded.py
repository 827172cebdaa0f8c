"""Encoded payloads, whatever their kind: checked when they come, stripped of metadata when they leave."""

from tasks.payloads.images import decode_image, strip_image
from tasks.payloads.payload import PayloadKind
from tasks.payloads.sounds import decode_sound, strip_sound


def check_encoded(kind: PayloadKind, data: bytes) -> None:
    """Decodes and strips a file once, so that nothing later meets one that cannot be used or released.

    Raises:
        DataError: the file is damaged or past a cap.
    """
    if kind == "image":
        decode_image(data)
    else:
        decode_sound(data)
    strip_encoded(kind, data)


def strip_encoded(kind: PayloadKind, data: bytes) -> bytes:
    """The file without metadata: what a donor gives away is the picture or the sound, nothing about where or when."""
    return strip_image(data) if kind == "image" else strip_sound(data)
