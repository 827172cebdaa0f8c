"""Throughput of extraction, from records on disk to features on disk, against the bare model over arrays already in memory.

python benchmarks/extract.py [images] [clips]: everything in one run, by turns, the best of each counts. Real AudioMNIST, CelebA
and FaceNet weights where PASS_RAW_DATA names a folder that has them, otherwise noise and random weights of the same sizes;
HuBERT-base always has random weights. Memory is the peak of a process of its own that ingests and extracts 1× and 10× the clips.
"""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
from PIL import Image

from tasks.config import load_config
from tasks.datasets.base import RawRecords
from tasks.extractors import facenet, hubert, logmel
from tasks.extractors.base import Loaded
from tasks.payloads.payload import Payload, PayloadKind
from tasks.payloads.sounds import decode_sound
from tasks.payloads.torch_repair import repair
from tasks.registry import STEPS
from tasks.running.layout import Layout
from tasks.running.progress import silent
from tasks.running.step import fixed_numerics, run_step
from tasks.running.step_io import RunKey, StepIO
from tasks.steps.extract import FeatureCache, Outputs, extract_shards
from tasks.steps.ingest import _table
from tasks.storage.files import file_digest
from tasks.storage.parquet import ShardWriter

THREADS, REPETITIONS, SPEAKERS_AT_10X = 2, 3, 60
CPU = torch.device("cpu")
RAW = Path(os.environ.get("PASS_RAW_DATA", "/nonexistent"))


@dataclass(frozen=True)
class Race:
    """Seconds of the fastest repetition of each side."""

    bare: float
    ours: float

    @property
    def ratio(self) -> float:
        return self.bare / self.ours


def race(bare: Callable[[], Any], ours: Callable[[], Any]) -> Race:
    """Both sides by turns, so that a busy neighbour hits both."""
    times: dict[str, list[float]] = {"bare": [], "ours": []}
    for _ in range(REPETITIONS):
        for name, work in (("bare", bare), ("ours", ours)):
            started = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - started)
    return Race(min(times["bare"]), min(times["ours"]))


def clips(n: int) -> list[bytes]:
    """Clips of AudioMNIST, every speaker's, or noise of like lengths."""
    found = sorted((RAW / "audiomnist" / "data").glob("*/*_?.flac"), key=lambda path: path.name)
    if found:
        return [path.read_bytes() for path in found[:: max(1, len(found) // n)][:n]]
    return [noise_clip(seed) for seed in range(n)]


def noise_clip(seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    buffer = io.BytesIO()
    soundfile.write(buffer, rng.normal(0, 0.1, rng.integers(5_000, 15_000)), 16_000, format="FLAC", subtype="PCM_16")
    return buffer.getvalue()


def images(n: int) -> list[bytes]:
    """The first images of CelebA, or noise of the same size."""
    found = sorted((RAW / "celeba" / "img_align_celeba").glob("*.jpg"))[:n]
    if found:
        return [path.read_bytes() for path in found]
    pictures = []
    for seed in range(n):
        buffer = io.BytesIO()
        pixels = np.random.default_rng(seed).integers(0, 256, (27, 22, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((178, 218)).save(buffer, "JPEG", quality=90)
        pictures.append(buffer.getvalue())
    return pictures


def extraction(loaded: Loaded, kind: PayloadKind, payloads: list[bytes], folder: Path) -> Callable[[], None]:
    """Work that reads shards of records, extracts, and writes shards of features and of the cache."""
    n = tuple(str(k) for k in range(len(payloads)))
    records = folder / "records"
    records.mkdir(parents=True)
    writer = ShardWriter(records)
    writer.add(_table(RawRecords(payloads, n, n, n, n, {}), ()))
    writer.close()

    def work() -> None:
        features = folder / "features"
        for old in (features, folder / "cache"):
            shutil.rmtree(old, ignore_errors=True)
        features.mkdir()
        step = StepIO(
            key=RunKey(kind),
            inputs={"records": records},
            outputs={"features": features},
            data_docs=folder,
            cache=folder,
            seed=1,
            labels=("bench",),
            progress=silent,
        )
        payload = Payload(kind)
        cache = FeatureCache(folder / "cache", {"bench": kind}, loaded.feature_shape(payload))
        extract_shards(Outputs(loaded, payload, cache, THREADS, step))

    return work


def measure_facenet(folder: Path, n: int) -> Race:
    real = RAW / "facenet" / "inception_resnet_v1.safetensors"
    if not real.is_file():
        repair()
        from facenet_pytorch import InceptionResnetV1
        from safetensors.torch import save_file

        real = folder / "random.safetensors"
        save_file(InceptionResnetV1(classify=False).state_dict(), real)
    config = facenet.FaceNetConfig(weights=str(real), digest=file_digest(real), layer="embedding")  # the whole network
    loaded = facenet.EXTRACTOR.load(config, CPU)
    payloads = images(n)
    step = config.batch_size
    pixels = [loaded._decode(payloads[start : start + step]) for start in range(0, n, step)]
    batches = [(torch.from_numpy(p).permute(0, 3, 1, 2).float() - 127.5) / 128.0 for p in pixels]

    @torch.inference_mode()
    def bare() -> None:
        for batch in batches:
            loaded.model(batch)

    return race(bare, extraction(loaded, "image", payloads, folder / "facenet"))


def measure_hubert(folder: Path, n: int) -> Race:
    repair()
    from transformers import HubertConfig, HubertModel

    HubertModel(HubertConfig()).save_pretrained(folder / "model")
    pinned = file_digest(folder / "model" / "model.safetensors")
    loaded = hubert.EXTRACTOR.load(hubert.HubertConfig(model=str(folder / "model"), digest=pinned), CPU)
    payloads = clips(n)
    batches = []
    for positions in loaded._batches(payloads):
        waves = [loaded._waveform(payloads[position]) for position in positions]
        batch = torch.zeros(len(waves), 1600 * -(-max(map(len, waves)) // 1600))
        for row, wave in enumerate(waves):
            batch[row, : len(wave)] = torch.from_numpy(wave)
        batches.append(batch)

    @torch.inference_mode()
    def bare() -> None:
        for batch in batches:
            loaded.model(batch)

    return race(bare, extraction(loaded, "audio", payloads, folder / "hubert"))


def measure_logmel(folder: Path, n: int) -> Race:
    """Against decode and transform, one clip after the other."""
    loaded = logmel.EXTRACTOR.load(logmel.LogMelConfig(), CPU)
    from torchaudio.transforms import MelSpectrogram

    mel = MelSpectrogram(16_000, n_fft=512, win_length=400, hop_length=160, n_mels=64)
    payloads = clips(n)

    @torch.inference_mode()
    def one_by_one() -> None:
        for data in payloads:
            samples, _ = decode_sound(data)
            logs = torch.log(mel(torch.from_numpy(samples)) + logmel.FLOOR)
            pooled = torch.nn.functional.adaptive_avg_pool1d(logs, 8)
            torch.cat([pooled.flatten(), logs.std(dim=1), torch.tensor([len(samples) / 16_000]).log()])

    return race(one_by_one, extraction(loaded, "audio", payloads, folder / "logmel"))


def speakers_folder(folder: Path, speakers: int) -> Path:
    """A folder in AudioMNIST's layout with the first `speakers` speakers."""
    data = folder / "audiomnist" / "data"
    data.mkdir(parents=True)
    real = RAW / "audiomnist" / "data"
    meta = {f"{k:02d}": {"gender": "male" if k % 5 else "female", "accent": "any", "age": 30} for k in range(1, speakers + 1)}
    (data / "audioMNIST_meta.txt").write_text(json.dumps(meta))
    for code in meta:
        if real.is_dir():
            (data / code).symlink_to(real / code)
            continue
        (data / code).mkdir()
        for k in range(120):
            (data / code / f"{k % 10}_{code}_{k // 10}.flac").write_bytes(noise_clip(k))
    return folder


def memory(raw: Path) -> None:
    """Ingests and extracts in this process, and prints its peak memory in MB."""
    with tempfile.TemporaryDirectory() as root:
        project = Path(__file__).parent.parent
        overrides = {"tracking.enabled": "false", "dataset.audiomnist.general": "[]", "dataset.audiomnist.min_class_share": "0"}
        config = load_config(project / "params.yaml", overrides)
        for name in ("ingest", "extract"):
            layout = Layout(Path(root), raw)
            layout.artefact("validation", RunKey("audiomnist")).mkdir(parents=True, exist_ok=True)
            run_step(STEPS[name], RunKey("audiomnist"), config, layout, "bench")
    peak = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())  # getrusage would count the parent's, too
    print(int(peak[1]) / 1024 if peak else float("nan"))


def measure_memory(folder: Path) -> tuple[float, float]:
    peaks = []
    for speakers in (SPEAKERS_AT_10X // 10, SPEAKERS_AT_10X):
        raw = speakers_folder(folder / str(speakers), speakers)
        command = [sys.executable, __file__, "--memory", str(raw)]
        peaks.append(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]))
    return peaks[0], peaks[1]


def main() -> None:
    """Measures and prints the RESULT line."""
    if sys.argv[1:2] == ["--memory"]:
        memory(Path(sys.argv[2]))
        return
    n_images, n_clips = (int(sys.argv[k]) if len(sys.argv) > k else default for k, default in ((1, 512), (2, 256)))
    with tempfile.TemporaryDirectory() as name, fixed_numerics(THREADS):
        folder = Path(name)
        face = measure_facenet(folder, n_images)
        print(f"FaceNet, {n_images} images: bare {face.bare:.1f} s, ours {face.ours:.1f} s, {face.ratio:.2f} of its throughput")
        speech = measure_hubert(folder, n_clips)
        print(
            f"HuBERT, {n_clips} clips: bare {speech.bare:.1f} s, ours {speech.ours:.1f} s, {speech.ratio:.2f} of its throughput"
        )
        mel = measure_logmel(folder, 16 * n_clips)
        print(f"log-mel, {16 * n_clips} clips: one by one {mel.bare:.2f} s, ours {mel.ours:.2f} s, {mel.ratio:.2f} times")
        small, large = measure_memory(folder)
        print(f"peak memory of ingest and log-mel extraction: {small:.0f} MB, with 10 times the clips {large:.0f} MB")
    result = {
        "vs_bare": round(min(face.ratio, speech.ratio), 3),
        "facenet": round(face.ratio, 3),
        "hubert": round(speech.ratio, 3),
        "logmel_vs_one_by_one": round(mel.ratio, 3),
        "memory_10x": round(large / small, 3),
        "real_data": (RAW / "audiomnist").is_dir() and (RAW / "celeba").is_dir(),
    }
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
