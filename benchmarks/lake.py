"""Throughput of protecting a whole lake, against reading and writing it with no work and against the bare matrix products.

python benchmarks/lake.py [records] [donors] [partitions] [device]: vectors of 577 floats in hive Parquet, the paper's three-
layer encoder, embeddings of 512, one worker per core with one thread each. The whole pass counts: read, score, draw, shuffle,
write, read back, digests, suite, ledger, publish; attacks are measured by benchmarks/audit.py. Copying and products run in as
many processes as there are workers, on the same partitions, one after the other in one run. Memory is the largest worker's
peak: for all records, for a tenth of the partitions, and for partitions of a tenth of the length, whose few rows do not fill a
worker's buffers. A run with nothing to do is timed last.

python benchmarks/lake.py --partitions 1000 --changed 1 [--format delta]: a lake of which little has changed. Seconds of planning
and of publishing (checks, ledger, a new version, retiring an old one; no attacks), and of planning beside a bare listing.
"""

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from pass_core.channel.substitution import BLOCK_ROWS, SubstitutionChannel
from pass_core.data import Attribute, Records
from pass_core.methods.base import FittedChannel, ReleaseContext
from pass_core.methods.pass_substitution import PassConfig
from pass_core.randomness import stream
from pass_core.storage.models import save_model
from pass_core.training.loop import TrainConfig
from pass_core.training.networks import standardised_network, with_prefix
from tasks.payloads.payload import Payload, vectors
from tasks.production.interfaces import GateResult, Job, Sample
from tasks.production.options import ProtectOptions
from tasks.production.run import Hooks, execute, plan_of
from tasks.running.layout import Layout
from tasks.running.mlflow_model import load_channel
from tasks.running.step_io import RunKey
from tasks.storage.files import digest
from tasks.storage.parquet import (
    BLOCK,
    FEATURES,
    PAYLOAD,
    PERSON,
    RECORD_ID,
    SPLIT,
    TableInfo,
    open_writer,
    shard_path,
    write_table,
)

FEATURES_WIDE, WIDTH = 577, 512
KEY = RunKey("calls", "pass_substitution")
CLASSES = {"gender": ("f", "m"), "topic": ("a", "b")}
WORKERS = len(os.sched_getaffinity(0))
DEVICE = "cpu" if len(sys.argv) < 5 or any(one.startswith("--") for one in sys.argv) else sys.argv[4]
ROWS_OF_FEW = 8  # per partition, where only the number of partitions matters
PARAMS = f"""
seed: 1
compute: {{threads: 1, device: {DEVICE}}}
datasets: [calls]
methods: [pass_substitution]
dataset:
  calls: {{reader: lake, record_id: call, payload: [vector], private: [gender], useful: [topic], pass_through: [day]}}
pool: {{}}
train: {{epochs: 1, batch_size: 64}}
method: {{pass_substitution: {{}}}}
audit: {{attacks: {{logistic_regression: {{iterations: 10}}}}}}
tracking: {{enabled: false}}
"""


class OpenGate:
    """Lets everything pass: attacks are measured by benchmarks/audit.py."""

    def judge(self, sample: Sample, job: Job) -> GateResult:
        del job
        return GateResult(verdict="pass", basis="unlabelled", records=len(sample.donors), of=sample.of, reasons=())


def write_lake(folder: Path, records: int, partitions: int) -> None:
    rng = stream(1, "lake")
    for number in range(partitions):
        rows = range(records * number // partitions, records * (number + 1) // partitions)
        ids = pa.array([f"{folder.name}-{row:09d}" for row in rows])  # others in each lake: a record is drawn once
        table = pa.table({"call": ids, "vector": vectors(rng.standard_normal((len(rows), FEATURES_WIDE), dtype=np.float32))})
        path = folder / f"day={number:03d}" / "part-0.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(table, path, compression="zstd", compression_level=1, use_dictionary=False, row_group_size=8192)


def write_champion(root: Path, donors: int) -> None:
    """A pool and a model of the paper's size; untrained, which costs the same."""
    rng, generator = stream(1, "pool"), torch.Generator().manual_seed(1)
    features = rng.standard_normal((donors, FEATURES_WIDE), dtype=np.float32)
    labels = {name: np.arange(donors) % 2 for name in CLASSES}
    texts = {name: pa.array([CLASSES[name][k] for k in labels[name]]) for name in CLASSES}
    names = pa.array([f"donor-{k}" for k in range(donors)])
    context = {RECORD_ID: names, SPLIT: pa.array(["train"] * donors), PERSON: names, BLOCK: names}
    pool, layout = Layout(root).artefact("pool", KEY), Layout(root)
    write_table(pa.table({**context, **texts, PAYLOAD: vectors(features), FEATURES: vectors(features)}), shard_path(pool, 0))
    TableInfo(dataset="calls", payload=Payload("vector", (FEATURES_WIDE,)), feature_shape=(FEATURES_WIDE,), classes=CLASSES).save(
        pool
    )
    encoder = standardised_network("mlp", (FEATURES_WIDE,), WIDTH, generator).eval()
    embedded = torch.randn(donors, WIDTH, generator=generator)
    learnt = with_prefix("encoder", encoder.state_dict()) | {"donors": embedded}
    fitted = FittedChannel(SubstitutionChannel(encoder, embedded, 0.01), features, learnt)
    attributes = (Attribute("gender", CLASSES["gender"], "private"), Attribute("topic", CLASSES["topic"], "useful"))
    setting = ReleaseContext(attributes, Records(features, labels), torch.device("cpu"))
    training = TrainConfig(epochs=1, batch_size=64)
    model, pool_digest = layout.artefact("model", KEY), digest(pool)
    save_model(model, "pass_substitution", fitted, setting, config=PassConfig(), training=training, pool_digest=pool_digest)


def options(folder: Path, lake: Path, target: Path) -> ProtectOptions:
    params, key = folder / "params.yaml", folder / "draw.key"
    params.write_text(PARAMS)
    key.touch(mode=0o600)
    key.write_text(stream(1, "key").bytes(32).hex())
    places = {"source": lake, "target": target, "models": folder / "root", "params": params, "key_file": key}
    return ProtectOptions(dataset=KEY.dataset, workers=WORKERS, **{name: str(place) for name, place in places.items()})


def protect(folder: Path, lake: Path, target: Path) -> tuple[float, float]:
    """(seconds, peak MB of the largest worker); starting the workers is not counted: a lake of any size pays it once.

    The clock starts when the first partition is finished, and the seconds are scaled to all rows.
    """
    first: list[tuple[float, int, int]] = []
    peaks, over = [0.0], threading.Event()

    def progress(work: str, done: int, total: int, note: str = "") -> None:
        del work, note
        if done and not first:
            first.append((time.perf_counter(), done, total))

    threading.Thread(target=watch, args=(peaks, over), daemon=True).start()
    execute(options(folder, lake, target), Hooks(gate=OpenGate(), progress=progress))
    over.set()
    started, done, total = first[0]
    return (time.perf_counter() - started) * total / max(1, total - done), max(peaks)


def watch(peaks: list[float], over: threading.Event) -> None:
    while not over.wait(0.5):
        for child in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split():
            status = Path(f"/proc/{child}/status")
            found = re.search(r"VmHWM:\s*(\d+)", status.read_text()) if status.exists() else None
            peaks.append(int(found[1]) / 1024 if found else 0.0)


def copy(path: Path) -> None:
    """Reads a partition and writes the same payloads, with the same options as protection does."""
    pa.set_cpu_count(1)
    file, out = pq.ParquetFile(path), path.with_suffix(".copy")
    with open_writer(out, pa.schema([file.schema_arrow.field("vector")])) as writer:
        for batch in file.iter_batches(8192, columns=["vector"], use_threads=False):
            writer.write_table(pa.Table.from_batches([batch]))
    out.unlink()


@torch.inference_mode()
def products(path: Path) -> None:
    """The encoder's linear layers and f gᵀ for as many rows as a partition has, nothing between them."""
    torch.set_num_threads(1)
    channel = load_channel(path.parents[2] / "root" / "models" / "calls" / "pass_substitution").channel
    assert isinstance(channel, SubstitutionChannel)  # noqa: S101
    layers = [layer.weight for layer in channel.encoder.modules() if isinstance(layer, torch.nn.Linear)] + [channel.donors]
    weights, block = [weight.to(DEVICE) for weight in layers], torch.zeros(BLOCK_ROWS, FEATURES_WIDE, device=DEVICE)
    for _ in range(-(-pq.read_metadata(path).num_rows // BLOCK_ROWS)):
        values = block
        for weight in weights:
            values = values @ weight.T
    values[0, 0].item()  # a device may still be at work


def timed(work: Callable[[Path], None], paths: list[Path]) -> float:
    """Seconds in as many processes as there are workers, which were started before."""
    with ProcessPoolExecutor(WORKERS, get_context("spawn")) as pool:
        list(pool.map(work, paths[:WORKERS]))
        started = time.perf_counter()
        list(pool.map(work, paths))
        return time.perf_counter() - started


def listing(folder: Path) -> float:
    """Seconds of listing a folder with the size and times of each file."""
    started = time.perf_counter()
    found = [os.stat(path) for path in folder.rglob("*.parquet")]  # noqa: PTH116
    assert found  # noqa: S101
    return time.perf_counter() - started


def little_changed(folder: Path, partitions: int, changed: int, form: Literal["parquet", "delta"]) -> dict[str, float]:
    """Plans and publishes once more after some partitions of a published lake have changed."""
    lake, target, seconds = folder / "lake", folder / "out", {"publish": 0.0}
    write_lake(lake, ROWS_OF_FEW * partitions, partitions)

    def call(name: str, _title: str, body: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        made = body()
        seconds[name] = time.perf_counter() - started
        return made

    asked = options(folder, lake, target).model_copy(update={"target_format": form})
    execute(asked, Hooks(gate=OpenGate()))
    write_lake(folder / "other", ROWS_OF_FEW * (changed + 1), changed + 1)
    for number in range(changed):
        origin, place = (Path(f"day={one:03d}", "part-0.parquet") for one in (number + 1, number))
        shutil.copyfile(folder / "other" / origin, lake / place)
    bare = min(listing(lake) for _ in range(3))
    started = time.perf_counter()
    assert len(plan_of(asked).work) == changed  # noqa: S101
    planning = time.perf_counter() - started
    execute(asked, Hooks(gate=OpenGate(), call=call))
    return {"plan_s": planning, "publish_s": seconds["publish"], "list_s": bare, "vs_list": planning / bare}


def main() -> None:
    """Measures what is asked for."""
    if not any(one.startswith("--") for one in sys.argv):
        measure_whole()
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--changed", type=int, required=True)
    parser.add_argument("--format", choices=("parquet", "delta"), default="parquet")
    asked, folder = parser.parse_args(), Path(tempfile.mkdtemp(prefix="lake-", dir=os.environ.get("TMPDIR")))
    try:
        write_champion(folder / "root", 64)
        found = little_changed(folder, asked.partitions, asked.changed, asked.format)
    finally:
        shutil.rmtree(folder)
    figures = {name: round(value, 3) for name, value in found.items()}
    print("RESULT " + json.dumps({**figures, "partitions": asked.partitions, "changed": asked.changed, "format": asked.format}))


def measure_whole() -> None:
    """Measures a whole pass and prints the RESULT line."""
    defaults = (1_000_000, 4096, 64)
    records, donors, partitions = (int(sys.argv[k + 1]) if len(sys.argv) > k + 1 else defaults[k] for k in range(3))
    folder = Path(tempfile.mkdtemp(prefix="lake-", dir=os.environ.get("TMPDIR")))
    try:
        write_champion(folder / "root", donors)
        few, short, large = (folder / name for name in ("few", "short", "large"))
        write_lake(few, records // 10, max(1, partitions // 10))
        write_lake(short, records // 10, partitions)
        write_lake(large, records, partitions)
        peak_few, peak_short = (protect(folder, lake, folder / f"out_{lake.name}")[1] for lake in (few, short))
        paths = sorted(large.rglob("*.parquet"))
        copying, bare = timed(copy, paths), timed(products, paths)
        seconds, peak = protect(folder, large, folder / "out")
        started = time.perf_counter()
        assert not plan_of(options(folder, large, folder / "out")).work  # noqa: S101
        planning = time.perf_counter() - started
    finally:
        shutil.rmtree(folder)
    print(f"{records} records, {donors} donors, {partitions} partitions, {WORKERS} workers: {seconds:.1f} s")
    print(f"read and written with no work: {copying:.1f} s")
    print(f"bare products: {bare:.1f} s")
    print(f"peak of a worker: {peak:.0f} MB; a tenth of the partitions {peak_few:.0f} MB, of their length {peak_short:.0f} MB")
    result = {
        "vs_gemm": round(bare / seconds, 3),
        "vs_copy": round(copying / seconds, 3),
        "rows_per_second": round(records / seconds),
        "records": records,
        "donors": donors,
        "workers": WORKERS,
        "device": DEVICE,
        "peak_mb": round(peak),
        "memory_10x": round(peak / peak_few, 3),
        "memory_10x_longer": round(peak / peak_short, 3),
        "plan_seconds": round(planning, 3),
    }
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
