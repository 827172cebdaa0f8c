"""Steps per second alone and beside other jobs: threads that spin while they wait (OpenMP's default) against ours, that sleep.

python benchmarks/contended.py [seconds per measurement]: two threads train PASS and an audit's network on signal windows, in
batches of 256. Every case is a process of its own, by turns, three times; the median counts. The other jobs are two processes
that keep two cores busy. contended: ours beside others as a share of ours alone; alone: ours alone as a share of spinning alone.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

THREADS, RECORDS, BATCH, TURNS = 2, 2048, 256, 3
JOBS = ("training", "audit")
POLICIES = {"spinning": "ACTIVE", "ours": "PASSIVE"}


def work(job: str, seconds: float) -> float:
    """Steps per second of the project's own code."""
    import torch

    from pass_core.attacks.base import AttackTask
    from pass_core.attacks.network import ATTACK, NetworkConfig
    from pass_core.data import Attribute, Records
    from pass_core.methods.base import ReleaseContext
    from pass_core.methods.pass_substitution import METHOD, PassConfig
    from pass_core.randomness import stream
    from pass_core.training.context import TrainingContext
    from pass_core.training.epochs import Epoch
    from pass_core.training.loop import TrainConfig

    class Enough(Exception):
        """The time is over."""

    torch.set_num_threads(THREADS)
    rng = np.random.default_rng(1)
    labels = {"s": rng.integers(0, 2, RECORDS), "u": rng.integers(0, 4, RECORDS)}
    features = rng.normal(size=(RECORDS, 2, 128)).astype(np.float32)
    ends: list[float] = []

    def on_epoch(_: Epoch) -> None:
        ends.append(time.perf_counter())
        if len(ends) > 2 and ends[-1] - ends[1] > seconds:
            raise Enough

    try:
        if job == "training":
            attributes = (Attribute("s", ("a", "b"), "private"), Attribute("u", tuple("abcd"), "useful"))
            data = Records(features, labels)
            context = ReleaseContext(attributes, data.subset(np.arange(1024)), torch.device("cpu"))
            training, run = TrainConfig(100_000, BATCH), TrainingContext(on_epoch)
            METHOD.fit(data, context=context, config=PassConfig(), training=training, rng=stream(1, "fit"), run=run)
        else:
            task = AttackTask(released_train=lambda _: features, train_labels=labels["s"], n_classes=2)
            ATTACK.learn(task, NetworkConfig(epochs=100_000, batch_size=BATCH), stream(1, "attack"), on_epoch)
    except Enough:
        pass
    return (len(ends) - 2) * (RECORDS // BATCH) / (ends[-1] - ends[1])  # the first epoch starts threads


@contextmanager
def others(number: int) -> Iterator[None]:
    """Processes that keep a core busy each."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def measured(job: str, policy: str, seconds: float) -> float:
    """Steps per second in a process of its own."""
    environment = os.environ | {"OMP_WAIT_POLICY": POLICIES[policy]}
    command = [sys.executable, __file__, "--work", job, str(seconds)]
    return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    """Measures all cases by turns and prints the RESULT line."""
    if sys.argv[1:2] == ["--work"]:
        print(work(sys.argv[2], float(sys.argv[3])))
        return
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 6.0
    found: dict[tuple[str, str, int], list[float]] = {}
    for _ in range(TURNS):
        for beside in (0, 2):
            for job in JOBS:
                for policy in POLICIES:
                    with others(beside):
                        found.setdefault((job, policy, beside), []).append(measured(job, policy, seconds))
    rates = {case: statistics.median(values) for case, values in found.items()}
    for (job, policy, beside), rate in sorted(rates.items()):
        print(f"{job:9} {policy:9} beside {beside} busy processes: {rate:7.2f} steps/s")
    result = {"seconds": seconds, "cores": len(os.sched_getaffinity(0))}
    for job in JOBS:
        result |= {
            f"contended_{job}": round(rates[job, "ours", 2] / rates[job, "ours", 0], 3),
            f"contended_spinning_{job}": round(rates[job, "spinning", 2] / rates[job, "spinning", 0], 3),
            f"alone_{job}": round(rates[job, "ours", 0] / rates[job, "spinning", 0], 3),
        }
    result |= {name: min(result[f"{name}_{job}"] for job in JOBS) for name in ("contended", "alone")}
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
