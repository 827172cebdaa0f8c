"""Throughput of substitution (scores and keyed draws) against the bare matrix products it cannot do without, and its memory.

python benchmarks/substitute.py [records] [donors]: the paper's three-layer encoder on 577 features, embeddings of 512, two
threads. Both in one run, by turns block by block, several times; the best time of every block counts, so that a busy neighbour
spoils a turn and not the run. Memory is the peak of a process of its own that gets its records block by block, for a tenth of
the records and for all of them; it holds every donor drawn.
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pass_core.channel.draws import experiment_key, inverse_cdf, keyed_words
from pass_core.channel.substitution import BLOCK_ROWS, SubstitutionChannel
from pass_core.data import FloatArray, IntArray
from pass_core.randomness import stream
from pass_core.training.networks import build_network

THREADS, WIDTH, FEATURES, TEMPERATURE, SMALLER_POOL = 2, 512, 577, 0.01, 1024
REPETITIONS = 7
KEY = experiment_key(1)


def channel_over(donors: int) -> SubstitutionChannel:
    generator = torch.Generator().manual_seed(1)
    encoder = build_network("mlp", (FEATURES,), WIDTH, generator).eval()
    return SubstitutionChannel(encoder, torch.randn(donors, WIDTH, generator=generator), TEMPERATURE)


def substitute(channel: SubstitutionChannel, features: FloatArray, ids: list[str]) -> Iterator[tuple[slice, IntArray]]:
    """What the step does: the donors of block after block of records."""
    for rows, probabilities in channel.blocks(features):
        yield rows, inverse_cdf(probabilities, keyed_words(KEY, "draw", ("bench",), ids[rows]))


@torch.inference_mode()
def products(features: FloatArray, weights: list[Tensor]) -> None:
    """The encoder's linear layers and f gᵀ, nothing between them."""
    values = torch.from_numpy(features)
    for weight in weights:
        values = values @ weight.T


def race(features: FloatArray, ids: list[str], donors: int) -> tuple[float, float]:
    """(bare, ours): the best seconds of every block, summed."""
    channel = channel_over(donors)
    weights = [layer.weight for layer in channel.encoder.modules() if isinstance(layer, torch.nn.Linear)] + [channel.donors]
    times = np.full((REPETITIONS, 2, -(-len(features) // BLOCK_ROWS)), np.nan)
    for bare, ours in times:
        started = time.perf_counter()
        for block, (rows, _) in enumerate(substitute(channel, features, ids)):
            drawn = time.perf_counter()
            products(features[rows], weights)
            ours[block], bare[block] = drawn - started, time.perf_counter() - drawn
            started = time.perf_counter()
    best_bare, best_ours = times.min(axis=0).sum(axis=1)
    return float(best_bare), float(best_ours)


def blocks_of_records(n: int) -> Iterator[tuple[slice, FloatArray]]:
    rng = stream(1, "features")
    for start in range(0, n, BLOCK_ROWS):
        rows = slice(start, min(start + BLOCK_ROWS, n))
        yield rows, rng.standard_normal((rows.stop - start, FEATURES), dtype=np.float32)


def memory(n: int, pool: int) -> None:
    """Substitutes in this process, and prints its peak memory in MB."""
    channel = channel_over(pool)
    drawn = np.empty(n, dtype=np.int64)
    for rows, features in blocks_of_records(n):
        ids = [f"record-{k}" for k in range(rows.start, rows.stop)]
        drawn[rows] = np.concatenate([donors for _, donors in substitute(channel, features, ids)])
    peak = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())  # getrusage would count the parent's, too
    print(int(peak[1]) / 1024 if peak else float("nan"))


def measure_memory(n: int, donors: int) -> float:
    command = [sys.executable, __file__, "--memory", str(n), str(donors)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    """Measures and prints the RESULT line."""
    torch.set_num_threads(THREADS)
    if sys.argv[1:2] == ["--memory"]:
        memory(int(sys.argv[2]), int(sys.argv[3]))
        return
    n, donors = (int(sys.argv[k]) if len(sys.argv) > k else default for k, default in ((1, 100_000), (2, 4096)))
    small, large = measure_memory(n // 10, donors), measure_memory(n, donors)
    print(f"peak memory with {donors} donors: {n // 10} records {small:.0f} MB, {n} records {large:.0f} MB")
    features = np.concatenate([block for _, block in blocks_of_records(n)])
    ids = [f"record-{k}" for k in range(n)]
    ratios = {}
    for pool in (donors, SMALLER_POOL):
        bare, ours = race(features, ids, pool)
        ratios[pool] = round(bare / ours, 3)
        print(f"{n} records, {pool} donors, {THREADS} threads: bare products {bare:.2f} s, substitution {ours:.2f} s")
    result = {
        "vs_gemm": ratios[donors],
        f"vs_gemm_{SMALLER_POOL}_donors": ratios[SMALLER_POOL],
        "records": n,
        "donors": donors,
        "memory_10x": round(large / small, 3),
    }
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
