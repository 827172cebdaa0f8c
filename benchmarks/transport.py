"""Transport's training on many records: minutes and memory; and how many rounds acceleration saves.

python benchmarks/transport.py [RECORDS ...] [--only training|rounds] [--short]

Training: by default 10,000 and 100,000 records of 577 synthetic features, 4,096 donors, the defaults of transport and training,
`pool.forbid: self`, two threads; each size in a process of its own. A million records: `transport.py 1000000 --only training`.
--short trains one epoch of large batches and one round: its memory is that of a whole training, its time is not. Memory is the
process's peak, records and torch included. I(X';S) is that of all records, though a round of a large training sees a part.

Rounds: the largest gap of all constraints after each pass over 4,000 records with 1,024 donors, for recipients who know none or
two attributes, by what transport does and by alternating projections, one constraint after the other. rounds_ratio: the passes
that transport takes to the gap that alternating projections reach at last, as a share of theirs.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from pass_core.channel.substitution import Exclusion
from pass_core.data import Attribute, Records
from pass_core.methods.base import ReleaseContext, fit_method
from pass_core.methods.transport import solver
from pass_core.methods.transport.channel import TransportConfig
from pass_core.methods.transport.projections import project
from pass_core.methods.transport_substitution import METHOD
from pass_core.randomness import stream
from pass_core.training.context import TrainingContext
from pass_core.training.loop import TrainConfig

THREADS, FEATURES, LATENT, PERSONS, DONORS = 2, 577, 64, 500, 4096
ATTRIBUTES = (
    Attribute("s", ("a", "b"), "private"),
    Attribute("u", tuple("0123456789"), "useful"),
    Attribute("age", tuple("0123"), "general"),
    Attribute("accent", tuple("012"), "general"),
)
CONFIG, TRAINING = TransportConfig(), TrainConfig()
ROUNDS_RECORDS, ROUNDS_DONORS, PASSES = 4000, 1024, 180


def synthetic_records(n: int) -> Records:
    """Persons with a private class, an age and an accent, who say ten words; a few dimensions of many."""
    people, rng = stream(1, "people"), stream(1, "records")
    person, u = rng.integers(0, PERSONS, n), rng.integers(0, 10, n)
    classes = {a.name: people.integers(0, a.n_classes, PERSONS) for a in ATTRIBUTES if a.name != "u"}
    classes["age"] = np.where(people.random(PERSONS) < 0.3, classes["s"], classes["age"])  # entangled with s
    voices = people.normal(0, 1, (PERSONS, LATENT))
    for name in ("s", "age", "accent"):
        voices += people.normal(0, 0.7, (8, LATENT))[classes[name]]
    words, mixing = people.normal(0, 1, (10, LATENT)), people.normal(0, LATENT**-0.5, (LATENT, FEATURES)).astype(np.float32)
    features = np.empty((n, FEATURES), dtype=np.float32)
    for start in range(0, n, 10_000):
        rows = slice(start, min(start + 10_000, n))
        latent = (voices[person[rows]] + words[u[rows]]).astype(np.float32)
        latent += rng.standard_normal(latent.shape, dtype=np.float32)
        features[rows] = latent @ mixing
        features[rows] += 0.3 * rng.standard_normal((rows.stop - rows.start, FEATURES), dtype=np.float32)
    return Records(features, {"u": u, **{name: labels[person] for name, labels in classes.items()}})


def context_of(data: Records, donors: int, known: tuple[str, ...] = ()) -> ReleaseContext:
    """The first records are the donors, and no record may be its own."""
    exclusion = Exclusion(np.arange(len(data)), np.arange(donors))
    return ReleaseContext(ATTRIBUTES, data.subset(np.arange(donors)), torch.device("cpu"), exclusion, known)


def trained(n: int, *, short: bool) -> dict[str, float]:
    """Minutes and memory of a training, and what it leaves visible in all records."""
    data = synthetic_records(n)
    context = context_of(data, DONORS)
    solved: dict[str, Any] = {}
    epochs: list[dict[str, float]] = []

    def solve(*given: Any, **named: Any) -> Any:
        solved.update(given=given, cpu=time.process_time(), wall=time.perf_counter())
        return original(*given, **named)

    original, before = solver._solve_potentials, (time.perf_counter(), time.process_time())
    with mock.patch.object(solver, "_solve_potentials", solve):
        fitted, _ = fit_method(
            METHOD,
            data,
            np.arange(n),
            context=context,
            config=replace(CONFIG, rounds=1) if short else CONFIG,
            training=replace(TRAINING, epochs=1, batch_size=8192) if short else TRAINING,
            rng_for=lambda *labels: stream(2, *labels),
            run=TrainingContext(lambda epoch: epochs.append(dict(epoch.terms))),
        )
    wall, cpu = time.perf_counter() - before[0], time.process_time() - before[1]
    found = {
        "minutes": wall / 60,
        "cpu_minutes": cpu / 60,
        "cpu_minutes_of_rounds": (before[1] + cpu - solved["cpu"]) / 60,
        "peak_mb": _peak_mb(),
        "rounds": len(epochs),
        "information_last_round": epochs[-1]["private_information"],
    }
    return found if short else found | _left_visible(fitted.channel, *solved["given"][1:])


def _left_visible(channel: Any, seen: Any, numbers: torch.Tensor) -> dict[str, float]:
    """What all training records reveal."""
    everything = solver._totals(channel, seen, torch.arange(len(numbers)), numbers)
    (constraint,) = channel.cells.constraints(numbers.device, jointly=())
    left = project(constraint, everything, everything.counts, CONFIG.majority)
    return {"information_all": left.information, "gap_all": left.gap}


def _peak_mb() -> float:
    found = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else float("nan")


def gaps_by_pass(known: tuple[str, ...]) -> dict[str, list[float]]:
    """The largest gap of all constraints after every pass over the records."""
    data = synthetic_records(ROUNDS_RECORDS)
    solved: dict[str, Any] = {}

    def keep(channel: Any, seen: Any, numbers: Any, **named: Any) -> Any:
        solved.update(given=(channel, seen, numbers), constraints=named["constraints"])
        return channel.potentials, ()

    given = {"context": context_of(data, ROUNDS_DONORS, known), "training": TRAINING, "run": TrainingContext()}
    with mock.patch.object(solver, "_solve_potentials", keep):
        solver.solve_transport(data, config=CONFIG, rng=stream(2, "fit"), **given)
    (channel, seen, numbers), constraints = solved["given"], solved["constraints"]
    patient = replace(channel, config=replace(CONFIG, rounds=PASSES // len(constraints), tolerance=1e-9))
    ours: list[float] = []
    solver._solve_potentials(
        patient,
        seen,
        numbers,
        constraints=constraints,
        generator=torch.Generator(),
        on_epoch=lambda epoch: ours.append(epoch.terms["total"]),
    )
    return {"ours": ours, "alternating": list(_alternating(channel, seen, numbers, constraints))}


def _alternating(channel: Any, seen: Any, numbers: Any, constraints: Any) -> Iterator[float]:
    """One constraint is projected onto in each pass, in turn."""
    counts = torch.bincount(numbers, minlength=len(channel.cells)).double()
    potentials = torch.zeros(len(counts), channel.pool_size, dtype=torch.float64)
    for number in range(PASSES):
        totals = solver._totals(replace(channel, potentials=potentials.float()), seen, torch.arange(len(numbers)), numbers)
        found = [project(constraint, totals, counts, CONFIG.majority) for constraint in constraints]
        yield max(each.gap for each in found)
        potentials += found[number % len(found)].correction


def rounds_saved(known: tuple[str, ...]) -> dict[str, float]:
    """The passes to the last gap of alternating projections."""
    gaps = gaps_by_pass(known)
    goal = min(gaps["alternating"])
    passes = {name: next((k + 1 for k, gap in enumerate(found) if gap <= goal), float("nan")) for name, found in gaps.items()}
    print(f"{known or 'nothing'} known: gap {goal:.4f} after {passes['ours']} passes, alternating {passes['alternating']}")
    return {"gap": goal, **passes, "ratio": passes["ours"] / passes["alternating"]}


def main() -> None:
    """Measures and prints the RESULT line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="*", type=int, default=[10_000, 100_000])
    parser.add_argument("--only", choices=["training", "rounds"])
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--case", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    torch.set_num_threads(THREADS)
    if chosen.case:
        print(json.dumps(trained(chosen.records[0], short=chosen.short)))
        return
    result: dict[str, Any] = {"donors": DONORS, "short": chosen.short, "load_before": round(os.getloadavg()[0], 1)}
    for n in chosen.records if chosen.only != "rounds" else ():
        command = [sys.executable, __file__, "--case", str(n), *(["--short"] if chosen.short else [])]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        print(f"{n} records: " + ", ".join(f"{name} {value:.4g}" for name, value in found.items()), flush=True)
        result[str(n)] = {name: round(value, 4) for name, value in found.items()}
    if chosen.only != "training":
        result["rounds_nothing"], result["rounds_known"] = rounds_saved(()), rounds_saved(("age", "accent"))
        result["rounds_ratio"] = round(result["rounds_known"]["ratio"], 3)
    result["load_after"] = round(os.getloadavg()[0], 1)
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
