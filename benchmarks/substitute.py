"""Throughput of substitution (scores and keyed draws) against the bare matrix products it cannot do without.

python benchmarks/substitute.py [records]: both in one run, one after the other, three times; the ratio of the best times counts.
"""

import json
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from pass_core.draws import experiment_key, inverse_cdf, keyed_words
from pass_core.networks import build_network
from pass_core.randomness import stream
from pass_core.substitution import BLOCK_ROWS, SubstitutionChannel

THREADS, DONORS, WIDTH, FEATURES = 2, 1024, 512, 256


def best(work: Callable[[], None], repetitions: int = 3) -> float:
    """Seconds of the fastest repetition."""
    times = []
    for _ in range(repetitions):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def main() -> None:
    """Measures and prints the RESULT line."""
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    torch.set_num_threads(THREADS)
    generator = torch.Generator().manual_seed(1)
    encoder = build_network("mlp", (FEATURES,), WIDTH, generator).eval()
    channel = SubstitutionChannel(encoder, torch.randn(DONORS, WIDTH, generator=generator), 0.01)
    features = stream(1, "features").normal(size=(n, FEATURES)).astype(np.float32)
    ids = [f"record-{k}" for k in range(n)]
    key = experiment_key(1)

    def substitute() -> None:
        for rows, probabilities in channel.blocks(features):
            inverse_cdf(probabilities, keyed_words(key, "draw", ("bench",), ids[rows]))

    def products() -> None:
        with torch.inference_mode():
            for start in range(0, n, BLOCK_ROWS):
                encoder(torch.from_numpy(features[start : start + BLOCK_ROWS])) @ channel.donors.T

    products()
    bare, ours = best(products), best(substitute)
    print(f"{n} records, {DONORS} donors, {THREADS} threads: bare products {bare:.2f} s, substitution {ours:.2f} s")
    print("RESULT " + json.dumps({"vs_gemm": round(bare / ours, 3), "records": n, "donors": DONORS}))


if __name__ == "__main__":
    main()
