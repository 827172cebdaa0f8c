"""The exact audit against the trained attacks, on generated records.

python benchmarks/audit.py [RECORDS [DONORS]]

RECORDS (100,000) test records and a fifth as many training records of 577 features, a pool of 4,096, a private attribute of 2
classes and a useful one of 10. Exact is all that is computed from P(x'|x): law and rules of the training records, law and read-outs
of the test records, information with its nulls (also for an attacker who knows the useful attribute), certificate. Trained is the
attacks of params.yaml on the private attribute alone, as one audit runs them: on originals and on what was released. Memory is the
peak of a process of its own that gets records block by block from the disk's cache, for a tenth of the records and for all.
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

from pass_core.audit.attributes import Attacked, attack_attribute
from pass_core.audit.conditional import find_conditional
from pass_core.audit.exactly import exact_findings, pass_exactly
from pass_core.audit.settings import Depth
from pass_core.audit.subject import Part, Subject, Substitution
from pass_core.data import Attribute, FloatArray, Records
from pass_core.exact import channel_law
from pass_core.metrics import Scoring
from pass_core.networks import build_network
from pass_core.randomness import stream
from pass_core.statistics import Blocks
from pass_core.substitution import SubstitutionChannel
from tasks.audit import named_attacks
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


def make_subject(n: int, donors: int) -> Subject:
    generator = torch.Generator().manual_seed(1)
    encoder = build_network("mlp", (FEATURES,), WIDTH, generator).eval()
    channel = SubstitutionChannel(encoder, torch.randn(donors, WIDTH, generator=generator), 0.01)
    train, test = part(n // 5, "train"), part(n, "test")
    test = dataclasses.replace(test, persons=test.persons + len(train), blocks=test.blocks + len(train))
    law = channel_law(channel, train.records.features, train.records.labels, ATTRIBUTES, stream(1, "draws"), DEPTH.fresh_draws)
    donor_features: FloatArray = train.records.features[:donors]
    drawn = channel_law(channel, test.records.features, test.records.labels, ATTRIBUTES, stream(1, "release"), 1).draws[0]
    substitution = Substitution(
        lambda _split, _rows: channel, donor_features, np.arange(donors), np.arange(donors), law, drawn, law.draws[0]
    )
    return Subject(
        ATTRIBUTES, train, test, donor_features[drawn], lambda draw: donor_features[law.draws[draw % len(law.draws)]], substitution
    )


def rng_for(*labels: str) -> np.random.Generator:
    return stream(2, *labels)


def exactly(subject: Subject) -> None:
    """All that needs no attack; hits of the control, which only normalise, are made up."""
    assert subject.substitution is not None
    law = subject.substitution.train_law
    train = subject.train.records
    channel_law(subject.substitution.channel("train", np.arange(len(train))), train.features, train.labels, ATTRIBUTES, rng_for("x"))
    passed = pass_exactly(subject, subject.substitution, DEPTH, rng_for)
    for attribute in ATTRIBUTES:
        labels = subject.labels("test", attribute.name)
        scoring = Scoring(labels, Blocks.of(subject.test.blocks, labels), 0, np.ones(len(labels)))
        made_up = Attacked(attribute, scoring, "", (), {}, *[None] * 3)  # type: ignore[arg-type]
        exact_findings(subject, subject.substitution, passed, made_up, DEPTH, rng_for)
        if attribute.role == "private":
            find_conditional(subject, passed, dataclasses.replace(made_up, findings=()), dataclasses.replace(DEPTH, subgroup_records=10**9), rng_for)
    assert law.joint


def attack(subject: Subject) -> dict[str, float]:
    """Seconds of every attack of params.yaml on the private attribute."""
    config = load_config(Path(__file__).parent.parent / "params.yaml").audit
    seconds = {}
    for named in named_attacks(config):
        others = () if not named.attack.needs_pool else (next(a for a in named_attacks(config) if a.name == "majority"),)
        started = time.perf_counter()
        attack_attribute(subject, ATTRIBUTES[0], (*others, named), rng_for, lambda _w, _e: None)
        seconds[named.name] = time.perf_counter() - started
        print(f"{named.name}: {seconds[named.name]:.1f} s", flush=True)
    return seconds


def peak(n: int, donors: int) -> float:
    """Peak memory in MB of a process of its own that audits exactly."""
    done = subprocess.run(
        [sys.executable, __file__, str(n), str(donors), "--memory"], check=True, capture_output=True, text=True, cwd=Path.cwd()
    )
    return float(done.stdout.split()[-1])


def main() -> None:
    torch.set_num_threads(THREADS)
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    donors = int(sys.argv[2]) if len(sys.argv) > 2 else 4096
    subject = make_subject(n, donors)
    if "--memory" in sys.argv:
        before = _peak_mb()
        exactly(subject)
        print(_peak_mb() - before)
        return
    started = time.perf_counter()
    exactly(subject)
    exact = time.perf_counter() - started
    print(f"exact audit of {n} records x {donors} donors: {exact:.1f} s", flush=True)
    trained = attack(subject)
    small, large = peak(n // 10, donors), peak(n, donors)
    result = {
        "exact_seconds": round(exact, 1),
        "trained_seconds": round(sum(trained.values()), 1),
        "trained_per_exact": round(sum(trained.values()) / exact, 2),
        "memory_mb_tenth": round(small),
        "memory_mb": round(large),
    }
    print("RESULT", json.dumps(result))


def _peak_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


if __name__ == "__main__":
    main()
