"""Encoded audio: WAV and FLAC only, decoded under limits, stripped of everything but the sound."""

import contextlib
import io
import math
import os
import struct
from collections.abc import Iterator

import numpy as np
import soundfile
import torch

from pass_core.data import FloatArray
from pass_core.errors import DataError
from tasks.payloads.torch_repair import repair

MAX_SECONDS = 600
MAX_SAMPLES = 60_000_000  # over all channels: a small file can declare any number
UNKNOWN_LENGTH = 2**40  # libsndfile's answer for a stream of unknown length is larger
ODDEST_RATE = 1_000  # a resampling filter grows with rate / gcd(rate, 16,000): 441 for CDs, 44,101 for a hostile file
PLAIN = ("PCM_U8", "PCM_S8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE")
WAV_KEPT = {b"fmt ", b"fact", b"data"}  # names, dates, positions and other metadata are in other chunks


def decode_sound(data: bytes) -> tuple[FloatArray, int]:
    """The first channel in [-1, 1] and its sampling rate; a DataError for what is no complete WAV or FLAC file within limits."""
    with _damage_as_error(), _opened(data) as file:
        frames = _checked_frames(file, data)
        samples = file.read(frames, dtype="float32", always_2d=True)[:, 0]
        rate = int(file.samplerate)
    if len(samples) != frames:
        raise DataError("is damaged: ends before its last sample")
    if not np.isfinite(samples).all():
        raise DataError("is damaged: holds samples that are not numbers")
    return np.ascontiguousarray(samples), rate


def sound_seconds(data: bytes) -> float:
    """The duration of a checked file, from its header: a hundred times faster than opening it."""
    if data.startswith(b"fLaC"):
        packed = int.from_bytes(data[18:26], "big")  # 20 bits of rate, 8 of channels and depth, 36 of samples
        return (packed & (2**36 - 1)) / (packed >> 44)
    chunks = {kind: (start, length) for kind, start, length in _wav_chunks(data)}
    rate, _, bytes_per_frame = struct.unpack_from("<IIH", data, chunks[b"fmt "][0] + 4)
    return float(chunks[b"data"][1] / (bytes_per_frame * rate))


def resampled(samples: FloatArray, rate: int, wanted: int) -> FloatArray:
    """A clip at another sampling rate."""
    if rate == wanted:
        return samples
    repair()
    from torchaudio.functional import resample

    changed: FloatArray = resample(torch.from_numpy(samples), rate, wanted).numpy()
    return changed


def strip_sound(data: bytes) -> bytes:
    """The same sound, bit for bit, without tags, pictures, dates or positions."""
    with _damage_as_error():
        return _strip_flac(data) if data.startswith(b"fLaC") else _strip_wav(data)


@contextlib.contextmanager
def _damage_as_error() -> Iterator[None]:
    """Turns what the decoder or our header parser raises for a damaged file into one error."""
    try:
        yield
    except (soundfile.LibsndfileError, RuntimeError, struct.error, KeyError, ZeroDivisionError, IndexError):
        raise DataError("is damaged: not readable as a WAV or FLAC file") from None


@contextlib.contextmanager
def _opened(data: bytes) -> Iterator[soundfile.SoundFile]:
    """Opens bytes through a file in memory, so that libsndfile reads without Python, whose lock the other workers wait for."""
    in_memory = hasattr(os, "memfd_create")  # not on every system
    with os.fdopen(os.memfd_create("sound"), "w+b") if in_memory else io.BytesIO() as memory:
        memory.write(data)
        memory.seek(0)
        with soundfile.SoundFile(memory.fileno() if in_memory else memory, closefd=False) as file:
            yield file


def _checked_frames(file: soundfile.SoundFile, data: bytes) -> int:
    """The number of samples per channel, checked before any of them is decoded."""
    if file.format not in ("WAV", "WAVEX", "FLAC") or file.subtype not in PLAIN:
        raise DataError(f"is {file.format} {file.subtype}: expected WAV or FLAC of plain samples; convert it")
    if file.frames == 0:
        raise DataError("expected at least one sample, found none")
    if file.frames > UNKNOWN_LENGTH:
        raise DataError("does not declare its length: encode it again")
    if file.frames > MAX_SECONDS * file.samplerate or file.frames * file.channels > MAX_SAMPLES:
        raise DataError(f"is longer than {MAX_SECONDS} seconds or {MAX_SAMPLES // 10**6} million samples: cut it into parts")
    if not 4_000 <= file.samplerate <= 192_000 or file.samplerate // math.gcd(file.samplerate, 16_000) > ODDEST_RATE:
        raise DataError(f"has a sampling rate of {file.samplerate}: expected a usual one, from 4 to 192 kHz; resample it")
    if file.format != "FLAC":
        # libsndfile reads what is there of a truncated file in silence.
        if any(start + length > len(data) for _, start, length in _wav_chunks(data)):
            raise DataError("is damaged: ends before its last sample")
        if abs(sound_seconds(data) * file.samplerate - file.frames) > 1:
            raise DataError("is damaged: its header contradicts itself")
    return int(file.frames)


def _wav_chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """(kind, start, length) of every chunk of a RIFF file, as the headers declare."""
    position = 12
    while position + 8 <= len(data):
        kind, length = struct.unpack_from("<4sI", data, position)
        yield kind, position + 8, length
        position += 8 + length + length % 2


def _strip_wav(data: bytes) -> bytes:
    body, seen = bytearray(b"WAVE"), set()
    for kind, start, length in _wav_chunks(data):
        if kind in WAV_KEPT and kind not in seen:
            seen.add(kind)
            body += struct.pack("<4sI", kind, length) + data[start : start + length] + b"\0" * (length % 2)
    if data[:4] != b"RIFF" or b"data" not in seen:
        raise DataError("is damaged: not readable as a WAV file")
    return struct.pack("<4sI", b"RIFF", len(body)) + bytes(body)


def _strip_flac(data: bytes) -> bytes:
    """Encodes the same samples again: nothing else removes what programs append after the last frame."""
    with _opened(data) as file:
        samples = file.read(dtype="int32", always_2d=True)
        subtype, rate = file.subtype, file.samplerate
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format="FLAC", subtype=subtype)
    encoded, position, description, header = buffer.getvalue(), 4, b"", 0
    while not header & 0x80 and position + 4 <= len(encoded):  # up to the last block: frames follow
        header = encoded[position]
        end = position + 4 + int.from_bytes(encoded[position + 1 : position + 4], "big")
        if header & 0x7F == 0:  # the stream's description; another block holds the encoder's name
            description = encoded[position + 4 : end]
        position = end
    return b"fLaC" + bytes([0x80]) + len(description).to_bytes(3, "big") + description + encoded[position:]
