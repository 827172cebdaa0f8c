"""The exact audit against the trained attacks, on generated records.

python benchmarks/audit.py [RECORDS [DONORS]]

RECORDS (100,000) test records and a fifth as many training records of 577 features, a pool of 4,096, a private attribute of 2
classes and a useful one of 10. Exact is all that is computed from P(x'|x): law and rules of the training records, law and
read-outs of the test records, information with its nulls (also for an attacker who knows the other attribute), certificate.
Trained is the attacks of params.yaml, as one audit runs them: on originals and on what was released. Memory is what the exact
audit adds to the records at its peak, in a process of its own, for a tenth of the records and for all.
"""

import dataclasses
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

from pass_core.auditing.exact_attacker import Audited, exact_findings, pass_exactly
from pass_core.auditing.side_information import find_conditional
from pass_core.auditing.subject import DrawnRelease, Part, Subject, make_subject
from pass_core.auditing.thresholds import Depth
from pass_core.auditing.trained_attacks import Attacked, attack_attribute
from pass_core.channel.joint_law import channel_law
from pass_core.channel.substitution import SubstitutionChannel
from pass_core.data import Attribute, Records
from pass_core.randomness import stream
from pass_core.training.networks import build_network
from tasks.config import load_config

THREADS, FEATURES, WIDTH = 2, 577, 512
ATTRIBUTES = (Attribute("s", ("a", "b"), "private"), Attribute("u", tuple("0123456789"), "useful"))
DEPTH = Depth()


def part(n: int, name: str) -> Part:
    rng = stream(1, name)
    labels = {a.name: rng.integers(0, a.n_classes, n) for a in ATTRIBUTES}
    features = rng.standard_normal((n, FEATURES), dtype=np.float32)
    features[:, 0] += 3 * labels["s"]
    features[:, 1] += 3 * labels["u"]
    return Part(Records(features, labels), np.arange(n), np.arange(n))


def random_subject(n: int, donors: int) -> Subject:
    generator = torch.Generator().manual_seed(1)
    encoder = build_network("mlp", (FEATURES,), WIDTH, generator).eval()
    channel = SubstitutionChannel(encoder, torch.randn(donors, WIDTH, generator=generator), 0.01)
    train, test = part(max(n // 5, donors), "train"), part(n, "test")
    test = dataclasses.replace(test, persons=test.persons + len(train), blocks=test.blocks + len(train))
    release = DrawnRelease(
        channel=lambda _split, _rows: channel,
        donor_features=train.records.features[:donors],
        drawn_test=channel_law(
            channel, test.records.features, test.records.labels, ATTRIBUTES, rng=stream(1, "release"), n_draws=1
        ).draws[0],
        donor_persons=np.arange(donors),
        donor_rows=np.arange(donors),
        fresh_draws=DEPTH.fresh_draws,
        rng=stream(1, "draws"),
    )
    return make_subject(attributes=ATTRIBUTES, train=train, test=test, release=release)


def rng_for(*labels: str) -> np.random.Generator:
    return stream(2, *labels)


def exactly(subject: Subject, attacked: tuple[Attacked, ...]) -> None:
    """All that is computed from P(x'|x), the law of the training records included."""
    train, substitution = subject.train.records, subject.substitution
    channel = substitution.channel("train", np.arange(len(train)))
    channel_law(channel, train.features, train.labels, ATTRIBUTES, rng=rng_for("law again"))
    passed = pass_exactly(subject, substitution, DEPTH, rng_for)
    audited = Audited(subject=subject, depth=DEPTH, rng_for=rng_for, attacked=attacked, passed=passed)
    for one in attacked:
        exact_findings(audited, one)
        find_conditional(audited, one)


def attack(subject: Subject, names: tuple[str, ...] | None = None) -> tuple[Attacked, ...]:
    """The attacks of params.yaml, all or some."""
    config = load_config(Path(__file__).parent.parent / "params.yaml").audit
    chosen = tuple(named for named in config.named_attacks() if names is None or named.name in names)
    return tuple(
        attack_attribute(subject, attribute, chosen, rng_for, on_attack=lambda _work, _epoch: None) for attribute in ATTRIBUTES
    )


def peak(n: int, donors: int) -> float:
    """Peak memory in MB that the exact audit adds to the records, in a process of its own."""
    command = [sys.executable, __file__, "--memory", str(n), str(donors)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def memory(n: int, donors: int) -> None:
    """Audits in this process, and prints what its peak memory rose by."""
    subject = random_subject(n, donors)
    attacked = attack(subject, ("logistic_regression",))
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before = _peak_mb()
    exactly(subject, attacked)
    print(_peak_mb() - before)


def main() -> None:
    """Measures and prints the RESULT line."""
    torch.set_num_threads(THREADS)
    if sys.argv[1:2] == ["--memory"]:
        memory(int(sys.argv[2]), int(sys.argv[3]))
        return
    n, donors = (int(sys.argv[k]) if len(sys.argv) > k else default for k, default in ((1, 100_000), (2, 4096)))
    subject = random_subject(n, donors)
    quick = attack(subject, ("logistic_regression",))
    started = time.perf_counter()
    exactly(subject, quick)
    exact = time.perf_counter() - started
    print(f"exact audit of {n} test and {len(subject.train)} training records, {donors} donors: {exact:.1f} s", flush=True)
    started = time.perf_counter()
    attack(subject)
    trained = time.perf_counter() - started
    print(f"trained attacks on both attributes: {trained:.1f} s", flush=True)
    small, large = peak(n // 10, donors), peak(n, donors)
    result = {
        "exact_seconds": round(exact, 1),
        "trained_per_exact": round(trained / exact, 2),
        "records": n,
        "donors": donors,
        "memory_mb": round(large),
        "memory_10x": round(large / small, 3),
    }
    print("RESULT " + json.dumps(result))


def _peak_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


if __name__ == "__main__":
    main()
