"""Images and sounds: decoded whole or refused, and released without the place and time that a file records."""

import contextlib
import io
import struct

import hypothesis.strategies as st
import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from pass_core.errors import DataError
from tasks.payloads.encoded import check_encoded, strip_encoded
from tasks.payloads.images import decode_image
from tasks.payloads.sounds import decode_sound, resampled, sound_seconds
from tests.media import picture, sound

CANARY = b"CANARY"


def _exif() -> Image.Exif:
    exif = Image.Exif()
    exif[0x010E] = "CANARY description"
    exif[0x8825] = {1: "N", 2: (47.0, 22.0, 0.0)}  # where it was taken
    return exif


def test_jpeg_loses_exif_comment_and_trailing_bytes_but_no_pixel() -> None:
    data = picture(exif=_exif(), comment=CANARY, icc_profile=b"CANARY profile") + b"CANARY after the end"
    assert data.count(CANARY) == 4  # the control: it was all there
    stripped = strip_encoded("image", data)
    assert CANARY not in stripped
    assert not Image.open(io.BytesIO(stripped)).getexif()
    assert (decode_image(stripped) == decode_image(data)).all()


@pytest.mark.parametrize("progressive", [False, True])
def test_second_picture_after_the_end_does_not_leave(progressive: bool) -> None:
    """Phones append a whole second JPEG, with EXIF of its own; progressive pictures have several scans."""
    data = picture(progressive=progressive) + picture(1, exif=_exif())
    assert CANARY in data
    stripped = strip_encoded("image", data)
    assert CANARY not in stripped
    assert stripped.count(b"\xff\xd8\xff") == 1
    assert (decode_image(stripped) == decode_image(picture(progressive=progressive))).all()


def test_thumbnail_in_the_header_does_not_leave() -> None:
    data = picture()
    jfif = data[2:20]
    assert jfif[4:9] == b"JFIF\0"
    thumbnail = CANARY + bytes(6)  # 2 × 2 pixels
    length = struct.pack(">H", 16 + len(thumbnail))
    with_thumbnail = data[:2] + jfif[:2] + length + jfif[4:16] + bytes([2, 2]) + thumbnail + data[20:]
    assert (decode_image(with_thumbnail) == decode_image(data)).all()
    assert strip_encoded("image", with_thumbnail) == strip_encoded("image", data)


def test_png_loses_text_and_times_but_no_pixel() -> None:
    info = PngInfo()
    info.add_text("Comment", "CANARY text")
    data = picture(form="PNG", pnginfo=info, exif=_exif()) + CANARY
    assert data.count(CANARY) == 3
    stripped = strip_encoded("image", data)
    assert CANARY not in stripped
    assert (decode_image(stripped) == decode_image(data)).all()


def test_grey_and_palette_images_come_out_as_colour() -> None:
    for mode in ("L", "P", "CMYK"):
        buffer = io.BytesIO()
        Image.open(io.BytesIO(picture())).convert(mode).save(buffer, "PNG" if mode == "P" else "JPEG")
        assert decode_image(buffer.getvalue()).shape == (218, 178, 3)
        assert (decode_image(strip_encoded("image", buffer.getvalue())) == decode_image(buffer.getvalue())).all()


@pytest.mark.parametrize("form", ["WAV", "FLAC"])
def test_sound_loses_tags_but_no_sample(form: str) -> None:
    buffer = io.BytesIO()
    samples = np.sin(np.arange(1601) / 9)  # an odd number of bytes of 8-bit samples would need padding
    with soundfile.SoundFile(buffer, "w", 16_000, 1, format=form, subtype="PCM_16") as file:
        file.title, file.comment = "CANARY title", "CANARY comment"
        file.write(samples)
    data = buffer.getvalue()
    data += struct.pack("<4sI", b"LIST", 6) + CANARY if form == "WAV" else b"APETAGEX" + CANARY
    assert CANARY in data
    stripped = strip_encoded("audio", data)
    assert CANARY not in stripped
    assert (decode_sound(stripped)[0] == decode_sound(data)[0]).all()
    assert len(decode_sound(stripped)[0]) == 1601


def test_first_channel_is_taken_and_numbers_are_checked() -> None:
    stereo = np.stack([np.full(100, 0.5), np.full(100, -0.5)], axis=1)
    buffer = io.BytesIO()
    soundfile.write(buffer, stereo, 8_000, format="WAV", subtype="FLOAT")
    samples, rate = decode_sound(buffer.getvalue())
    assert (samples == 0.5).all()
    assert rate == 8_000
    stereo[7, 0] = np.nan
    buffer = io.BytesIO()
    soundfile.write(buffer, stereo, 8_000, format="WAV", subtype="FLOAT")
    with pytest.raises(DataError, match="samples that are not numbers"):
        decode_sound(buffer.getvalue())


def test_endless_and_empty_sounds_are_refused() -> None:
    with pytest.raises(DataError, match="is longer than 600 seconds"):
        decode_sound(sound(601, rate=4_000))
    with pytest.raises(DataError, match="has a sampling rate of 44101: expected a usual one"):
        decode_sound(sound(0.01, rate=44_101))  # whose resampling filter would take gigabytes
    buffer = io.BytesIO()
    soundfile.write(buffer, np.zeros((8_000 * 500, 16), dtype=np.int16), 8_000, format="WAV")
    with pytest.raises(DataError, match="or 60 million samples"):
        decode_sound(buffer.getvalue())
    with pytest.raises(DataError, match="expected at least one sample, found none"):
        decode_sound(sound(0))
    buffer = io.BytesIO()
    soundfile.write(buffer, np.zeros(100), 8_000, format="AIFF")
    with pytest.raises(DataError, match="is AIFF PCM_16: expected WAV or FLAC of plain samples"):
        decode_sound(buffer.getvalue())


def test_header_that_contradicts_itself_is_refused() -> None:
    data = bytearray(sound(0.1))
    data[32:34] = struct.pack("<H", 8)  # four times the bytes per sample
    with pytest.raises(DataError):
        decode_sound(bytes(data))
    for form in ("WAV", "FLAC"):
        assert sound_seconds(sound(0.1, form=form)) == pytest.approx(0.1)


def test_sixteen_bit_grey_keeps_its_shades() -> None:
    ramp = np.linspace(0, 65_535, 256).astype(np.uint16).reshape(16, 16)
    buffer = io.BytesIO()
    Image.fromarray(ramp).save(buffer, "PNG")
    decoded = decode_image(buffer.getvalue())
    assert len(np.unique(decoded)) == 256
    assert decoded.max() == 255


def test_resampling_keeps_the_tone() -> None:
    samples, rate = decode_sound(sound(0.5, 48_000, pitch=1000))
    lower = resampled(samples, rate, 16_000)
    assert len(lower) == 8_000
    assert np.abs(np.fft.rfft(lower)).argmax() * 2 == pytest.approx(1000, abs=4)


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from([("image", picture(width=40, height=40)), ("image", picture(form="PNG", width=40, height=40)),
                     ("audio", sound(0.05)), ("audio", sound(0.05, form="FLAC"))]),
    st.data(),
)  # fmt: skip
def test_fuzzed_files_decode_or_are_refused(kind_and_data: tuple[str, bytes], draw: st.DataObject) -> None:
    """Whatever the bytes, the answer is a decoded file or a DataError."""
    kind, data = kind_and_data
    damaged = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 8))):
        damaged[draw.draw(st.integers(0, len(damaged) - 1))] = draw.draw(st.integers(0, 255))
    damaged = damaged[: draw.draw(st.integers(0, len(damaged)))]
    for work in (check_encoded, strip_encoded):
        with contextlib.suppress(DataError):
            work(kind, bytes(damaged))
