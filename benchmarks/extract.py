"""Throughput of extraction, from records on disk to features on disk, against the bare model over arrays already in memory.

python benchmarks/extract.py [--images N] [--clips N] [--only facenet fidelity hubert logmel memory]: everything in one run, by
turns, the best of each counts. The bare model is torch's, in float32; ours is measured with every engine and precision here. Real
AudioMNIST, CelebA and FaceNet weights where PASS_RAW_DATA names a folder that has them, otherwise noise and random weights of the
same sizes; HuBERT-base always has random weights. `cosine` compares outputs with torch's in float32. Memory is the
peak of a process of its own that ingests and extracts 1× and 10× the clips.
"""

import tasks.passive_waiting  # noqa: F401, I001 (before torch)

import argparse
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import soundfile
import torch
from PIL import Image

from pass_core.data import FloatArray
from tasks.config import load_config
from tasks.extractors import facenet, hubert, logmel
from tasks.extractors.base import Loaded
from tasks.extractors.engines.base import ARITHMETICS, EngineName, Precision
from tasks.extractors.engines.processor import INSTRUCTIONS, fast_instructions
from tasks.payloads.payload import Payload, PayloadKind, column_of
from tasks.payloads.sounds import decode_sound
from tasks.payloads.torch_repair import repair
from tasks.registry import STEPS
from tasks.running.layout import Layout
from tasks.running.progress import silent
from tasks.running.step import fixed_numerics, run_step
from tasks.running.step_io import RunKey, StepIO
from tasks.steps.extract import FeatureCache, Outputs, extract_shards
from tasks.storage.files import file_digest
from tasks.storage.parquet import BLOCK, PAYLOAD, PERSON, RECORD_ID, SPLIT, ShardWriter

THREADS, REPETITIONS, SPEAKERS_AT_10X = 2, 3, 60
CALIBRATION = 256  # images that are not measured; a sixteenth as many clips
BARE, PARTS = "bare", ("facenet", "fidelity", "hubert", "logmel", "memory")
CPU = torch.device("cpu")
RAW = Path(os.environ.get("PASS_RAW_DATA", "/nonexistent"))


@dataclass(frozen=True)
class Race:
    """Seconds, and seconds of CPU, of the fastest repetition of each side; one of them is the bare model."""

    seconds: Mapping[str, float]
    cpu: Mapping[str, float]  # what neighbours on a busy machine change less

    def ratio(self, side: str) -> float:
        return round(self.seconds[BARE] / self.seconds[side], 3)

    def cpu_ratio(self, side: str) -> float:
        return round(self.cpu[BARE] / self.cpu[side], 3)

    def show(self, what: str) -> None:
        for side, seconds in self.seconds.items():
            cpu = f"{self.cpu[side]:.2f} s of CPU, {self.cpu_ratio(side):.2f}"
            print(f"{what}: {side} {seconds:.2f} s, {self.ratio(side):.2f} of the bare throughput; {cpu}", flush=True)


def race(sides: Mapping[str, Callable[[], Any]]) -> Race:
    """All sides by turns, so that a busy neighbour hits all of them."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    cpu: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(REPETITIONS):
        for name, work in sides.items():
            started, spent = time.perf_counter(), time.process_time()
            work()
            times[name].append(time.perf_counter() - started)
            cpu[name].append(time.process_time() - spent)
    return Race(*({name: min(seconds) for name, seconds in measured.items()} for measured in (times, cpu)))


def arithmetics() -> list[tuple[EngineName, Precision]]:
    """Engines and precisions that can be measured here."""
    installed = importlib.util.find_spec("openvino") is not None
    return [
        (engine, precision)
        for engine, precision in ARITHMETICS
        if engine == "torch" or (installed and (precision != "bfloat16" or fast_instructions(precision)))
    ]


def cosines(one: FloatArray, other: FloatArray) -> dict[str, float]:
    """The lowest and the mean cosine between rows."""
    found = (one * other).sum(axis=1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
    return {"min": round(float(found.min()), 5), "mean": round(float(found.mean()), 5)}


@dataclass(frozen=True)
class Measured:
    """One network with every engine and precision."""

    race: Race
    cosine: Mapping[str, Mapping[str, float]]


def measure(
    load: Callable[[EngineName, Precision], Any],
    bare: Callable[[Any], Callable[[], Any]],
    *,
    payloads: list[bytes],
    calibration: list[bytes],
    kind: PayloadKind,
    folder: Path,
) -> Measured:
    """Races the bare model against extraction with every engine and precision."""
    sides, cosine, expected = {}, {}, None
    for engine, precision in arithmetics():
        loaded, name = load(engine, precision), f"{engine} {precision}"
        if precision == "int8":
            loaded.calibrate(calibration)
        if expected is None:
            sides[BARE], expected = bare(loaded), loaded.features(payloads, THREADS, lambda _: None)
        cosine[name] = cosines(loaded.features(payloads, THREADS, lambda _: None), expected)
        sides[name] = extraction(loaded, kind, payloads, folder / name.replace(" ", "_"))
    return Measured(race(sides), cosine)


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
    ids = pa.array([str(number) for number in range(len(payloads))])
    records = folder / "records"
    records.mkdir(parents=True)
    writer = ShardWriter(records)
    writer.add(pa.table(dict.fromkeys((RECORD_ID, SPLIT, PERSON, BLOCK), ids) | {PAYLOAD: column_of(payloads)}))
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


def facenet_weights(folder: Path) -> Path:
    """Real ones, or random ones of the same sizes."""
    real = RAW / "facenet" / "inception_resnet_v1.safetensors"
    if real.is_file():
        return real
    repair()
    from facenet_pytorch import InceptionResnetV1
    from safetensors.torch import save_file

    save_file(InceptionResnetV1(classify=False).state_dict(), folder / "random.safetensors")
    return folder / "random.safetensors"


def measure_facenet(folder: Path, n: int) -> Measured:
    """The whole network, up to the embedding."""
    weights = facenet_weights(folder)
    known = {"weights": str(weights), "digest": file_digest(weights), "layer": "embedding"}
    encoded = images(n + CALIBRATION)

    def load(engine: EngineName, precision: Precision) -> Any:
        return facenet.EXTRACTOR.load(facenet.FaceNetConfig(**known, engine=engine, precision=precision), CPU)

    def bare(loaded: Any) -> Callable[[], None]:
        step = facenet.FaceNetConfig().batch_size
        pixels = [loaded.decoded(encoded[start : min(start + step, n)]) for start in range(0, n, step)]
        network = facenet.Outputs(loaded.model, facenet.FaceNetConfig(layer="embedding"))

        @torch.inference_mode()
        def work() -> None:
            for batch in pixels:
                network(batch)

        return work

    return measure(load, bare, payloads=encoded[:n], calibration=encoded[n:], kind="image", folder=folder / "facenet")


def measure_fidelity(folder: Path, n: int) -> Mapping[str, Any]:
    """Cosines of the default layer's outputs: its network ends earlier than the embedding's."""
    weights, encoded, cosine, expected = facenet_weights(folder), images(n + CALIBRATION), {}, None
    for engine, precision in arithmetics():
        config = facenet.FaceNetConfig(weights=str(weights), digest=file_digest(weights), engine=engine, precision=precision)
        loaded: Any = facenet.EXTRACTOR.load(config, CPU)
        if precision == "int8":
            loaded.calibrate(encoded[n:])
        found = loaded.features(encoded[:n], THREADS, lambda _: None)
        expected = found if expected is None else expected
        cosine[f"{engine} {precision}"] = cosines(found, expected)
    return cosine


def measure_hubert(folder: Path, n: int) -> Measured:
    """HuBERT-base with random weights."""
    repair()
    from transformers import HubertConfig, HubertModel

    HubertModel(HubertConfig()).save_pretrained(folder / "model")
    pinned = file_digest(folder / "model" / "model.safetensors")
    encoded = clips(n + CALIBRATION // 16)

    def load(engine: EngineName, precision: Precision) -> Any:
        config = hubert.HubertConfig(model=str(folder / "model"), digest=pinned, engine=engine, precision=precision)
        return hubert.EXTRACTOR.load(config, CPU)

    def bare(loaded: Any) -> Callable[[], None]:
        parts = loaded._batches(encoded[:n])
        batches = [loaded._together([loaded._waveform(encoded[position]) for position in part]) for part in parts]

        @torch.inference_mode()
        def work() -> None:
            for batch in batches:
                loaded.model(batch)

        return work

    return measure(load, bare, payloads=encoded[:n], calibration=encoded[n:], kind="audio", folder=folder / "hubert")


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

    return race({BARE: one_by_one, "logmel": extraction(loaded, "audio", payloads, folder / "logmel")})


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


def ratios(name: str, measured: Measured) -> dict[str, Any]:
    """The figures of a network in the RESULT line."""
    found: dict[str, Any] = {f"cosine_{name}": measured.cosine}
    for side in measured.race.seconds.keys() - {BARE}:
        found[f"vs_bare_{name}_{side.replace(' ', '_')}"] = measured.race.ratio(side)
        found[f"cpu_vs_bare_{name}_{side.replace(' ', '_')}"] = measured.race.cpu_ratio(side)
    return dict(sorted(found.items()))


def main() -> None:
    """Measures and prints the RESULT line."""
    if sys.argv[1:2] == ["--memory"]:
        memory(Path(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(description="Throughput of extraction against the bare models.")
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--clips", type=int, default=128)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    asked = parser.parse_args()
    instructions = {precision: fast_instructions(precision) for precision in INSTRUCTIONS}
    result: dict[str, Any] = {
        "real_data": (RAW / "audiomnist").is_dir() and (RAW / "celeba").is_dir(),
        "instructions": instructions,
        "load_before": round(os.getloadavg()[0], 1),
    }
    for precision in (name for name, found in instructions.items() if not found):
        print(f"This processor has no instructions for {precision}: it is slower here than where they are.")
    with tempfile.TemporaryDirectory() as name, fixed_numerics(THREADS):
        folder = Path(name)
        if "facenet" in asked.only:
            face = measure_facenet(folder, asked.images)
            face.race.show(f"FaceNet, {asked.images} images")
            result |= ratios("facenet", face)
        if "fidelity" in asked.only:
            result["cosine_facenet_repeat_2"] = measure_fidelity(folder, asked.images)
        if "hubert" in asked.only:
            speech = measure_hubert(folder, asked.clips)
            speech.race.show(f"HuBERT-base, {asked.clips} clips")
            result |= ratios("hubert", speech)
        if "logmel" in asked.only:
            mel = measure_logmel(folder, 16 * asked.clips)
            mel.show(f"log-mel, {16 * asked.clips} clips, bare: decode and transform one by one")
            result["logmel_vs_one_by_one"] = mel.ratio("logmel")
        if "memory" in asked.only:
            small, large = measure_memory(folder)
            print(f"peak memory of ingest and log-mel extraction: {small:.0f} MB, with 10 times the clips {large:.0f} MB")
            result["memory_10x"] = round(large / small, 3)
    result["load_after"] = round(os.getloadavg()[0], 1)
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
