"""Encoded images: JPEG and PNG only, decoded under limits, stripped of everything but the picture."""

import io
import struct

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from pass_core.errors import DataError

MAX_PIXELS = 50_000_000
START_OF_SCAN, END_OF_IMAGE = 0xDA, 0xD9
PNG_START = b"\x89PNG\r\n\x1a\n"
# Chunks that change how a PNG's pixels are read; text, times, EXIF and profiles are removed.
PNG_KEPT = {b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"gAMA", b"cHRM", b"sRGB"}


def decode_image(data: bytes) -> NDArray[np.uint8]:
    """Pixels (height, width, 3) as stored: a rotation in EXIF is not applied, since EXIF is not released."""
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as image:
            width, height = image.size  # from the header, before any pixel is decoded
            if width * height > MAX_PIXELS:
                raise Image.DecompressionBombError
            if image.mode.startswith("I"):  # 16-bit grey, which Pillow would clip at 255
                grey = (np.asarray(image) / 257).round().clip(0, 255).astype(np.uint8)
                return np.repeat(grey[..., None], 3, axis=2)
            return np.asarray(image.convert("RGB"))
    except Image.DecompressionBombError:
        raise DataError(f"has more than {MAX_PIXELS // 10**6} million pixels: store it smaller") from None
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, struct.error, EOFError):
        raise DataError("is damaged: not readable as a JPEG or PNG image") from None


def strip_image(data: bytes) -> bytes:
    """The same picture, bit for bit, without EXIF, comments, thumbnails, profiles or times."""
    return _strip_png(data) if data.startswith(PNG_START) else _strip_jpeg(data)


def _strip_jpeg(data: bytes) -> bytes:
    """Walks the segments up to the picture's own end: phones append whole second pictures, with EXIF of their own."""
    kept, position = bytearray(data[:2]), 2
    while position + 4 <= len(data) and data[position] == 0xFF:
        marker = data[position + 1]
        if marker == END_OF_IMAGE:
            break
        if marker == 0xFF:  # fill byte
            position += 1
            continue
        end = position + 2 + struct.unpack_from(">H", data, position + 2)[0]
        kept += _kept_segment(marker, data[position:end])
        if marker == START_OF_SCAN:
            scan, end = end, _scan_end(data, end)
            kept += data[scan:end]
        position = end
    if data[position : position + 2] == bytes([0xFF, END_OF_IMAGE]):
        return bytes(kept + data[position : position + 2])
    raise DataError("is damaged: not readable as a JPEG image")


def _kept_segment(marker: int, segment: bytes) -> bytes:
    """A segment as released: of application data only what is needed to read pixels, without thumbnails."""
    if marker == 0xE0:
        return b"\xff\xe0\x00\x10" + segment[4:16] + b"\0\0" if segment[4:9] == b"JFIF\0" and len(segment) >= 18 else b""
    if marker == 0xEE:
        return segment if segment[4:9] == b"Adobe" and len(segment) == 16 else b""  # the colour transform
    return b"" if 0xE1 <= marker <= 0xEF or marker == 0xFE else segment


def _scan_end(data: bytes, position: int) -> int:
    """Where entropy-coded data end: at the first marker that is neither an escaped byte nor a restart."""
    while True:
        position = data.find(b"\xff", position)
        if position < 0 or position + 1 >= len(data):
            raise DataError("is damaged: not readable as a JPEG image")
        if data[position + 1] != 0 and not 0xD0 <= data[position + 1] <= 0xD7:
            return position
        position += 2


def _strip_png(data: bytes) -> bytes:
    kept, position = bytearray(PNG_START), len(PNG_START)
    while position + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, position)
        end = position + 12 + length
        if kind in PNG_KEPT:
            kept += data[position:end]
        position = end
        if kind == b"IEND":
            return bytes(kept)
    raise DataError("is damaged: not readable as a PNG image")
