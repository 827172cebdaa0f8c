"""A small lake of labelled vectors, a model trained on it, and a run over it, for the tests beside."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import yaml

from pass_core.channel.draws import key_id
from pass_core.data import FloatArray
from pass_core.randomness import stream
from tasks.config import load_config
from tasks.production.interfaces import Basis, GateResult, Job, Sample
from tasks.production.manifest import Manifest
from tasks.production.options import ProtectOptions
from tasks.production.plan import Plan
from tasks.production.run import Hooks, execute
from tasks.registry import STEPS
from tasks.running.layout import Layout
from tasks.running.step import run_step
from tasks.running.step_io import RunKey
from tests.conftest import LENIENT

KEY = RunKey("calls", "pass_substitution")
DRAW_KEY = bytes(range(7, 39))
WIDTH = 12
SECTION: dict[str, Any] = {
    "reader": "lake",
    "record_id": "call",
    "person": "customer",
    "payload": ["vector"],
    "private": ["gender"],
    "useful": ["topic"],
    "pass_through": ["day"],
}
PARAMS: dict[str, Any] = {
    "seed": 3,
    "compute": {"threads": 1, "device": "cpu"},
    "datasets": ["calls"],
    "methods": ["pass_substitution"],
    "dataset": {"calls": SECTION},
    "pool": {"donors": 48, "forbid": "self"},
    "train": {"epochs": 12, "batch_size": 64, "learning_rate": 0.002},  # enough to hide most of the gender, whatever the key
    "method": {"pass_substitution": {"embedding_size": 16}},
    "release": {"calls": ["topic"]},
    "audit": {
        "depth": {"fresh_draws": 2, "permutations": 20, "bundles": [1], "draws": [1], "gallery": 50, "subgroup_records": 50},
        "attacks": {"logistic_regression": {"iterations": 20}},
        "thresholds": LENIENT,
    },
    "protect": {"audit_records": 200},
    "tracking": {"enabled": False},
}


def write_params(folder: Path, **changes: object) -> Path:
    """A params.yaml; `changes` replace whole sections."""
    path = folder / "params.yaml"
    path.write_text(yaml.safe_dump(PARAMS | changes, sort_keys=False))
    return path


def make_table(days: int = 3, per_day: int = 200, start: int = 0) -> pa.Table:
    """Calls of some days: the vector reveals gender and topic. Of one start, fewer days are the first of three."""
    n = max(days, 3) * per_day
    rng = stream(11, "calls", str(start))
    gender, topic = rng.integers(0, 2, n), rng.integers(0, 3, n)
    vectors: FloatArray = rng.normal(size=(n, WIDTH)).astype(np.float32)
    vectors[:, 0] += 3 * gender
    vectors[:, 1] += 3 * topic
    return pa.table(
        {
            "call": pa.array([f"call-{start + k:06d}" for k in range(n)]),
            "customer": pa.array([f"customer-{(start + k) % 37}" for k in range(n)]),
            "day": pa.array([f"2026-11-{1 + start // per_day + k // per_day:02d}" for k in range(n)]),
            "gender": pa.array(["fm"[g] for g in gender]),
            "topic": pa.array([f"t{t}" for t in topic]),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), WIDTH),
            "secret": pa.array([f"note-{k}" for k in range(n)]),
        }
    ).slice(0, days * per_day)


def write_lake(table: pa.Table, folder: Path, by: tuple[str, ...] = ("day",)) -> Path:
    """A hive lake, partitioned by some columns."""
    ds.write_dataset(
        table,
        folder,
        format="parquet",
        partitioning=list(by),
        partitioning_flavor="hive" if by else None,
        existing_data_behavior="delete_matching" if by else "overwrite_or_ignore",
    )
    return folder


def train_champion(folder: Path, upto: str = "audit", key: RunKey = KEY, **changes: object) -> Path:
    """A root with pool, model and audit of the calls; `changes` replace whole sections of params.yaml."""
    lake, root = folder / "training", folder / "root"
    write_lake(make_table(days=4), lake)
    section = SECTION | {"source": str(lake)}
    config = load_config(write_params(folder, dataset={"calls": section}, **changes))
    for step in STEPS.values():
        if step.name != "generate":
            run_step(step, step.key(key.dataset, key.method), config, Layout(root), "test")
        if step.name == upto:
            break
    return root


class PassGate:
    """Passes everything, and records what it saw."""

    def __init__(self) -> None:
        self.seen: list[Sample] = []
        self.jobs: list[Job] = []

    def judge(self, sample: Sample, job: Job) -> GateResult:
        self.seen.append(sample)
        self.jobs.append(job)
        basis: Basis = "labelled" if sample.labels else "unlabelled"
        return GateResult(verdict="pass", basis=basis, records=len(sample.donors), of=sample.of, reasons=())


class FailGate(PassGate):
    """Fails everything."""

    def judge(self, sample: Sample, job: Job) -> GateResult:
        return dataclasses.replace(super().judge(sample, job), verdict="fail", reasons=("because",))


def make_options(
    root: Path,
    source: Path | str,
    target: Path | str,
    *,
    params: dict[str, object] | None = None,
    key: bytes = DRAW_KEY,
    **more: Any,
) -> ProtectOptions:
    """Options for the calls, in this process unless `more` has another number, and a ledger beside the target or its state."""
    beside = Path(more["state"]) if "://" in str(target) and "state" in more else Path(str(target))
    more["settings"] = (f"protect.ledger={ledger_beside(beside).parent}", *more.get("settings", ()))
    places = {"models": root, "params": write_params(root.parent, **(params or {})), "key_file": write_key(root.parent, key)}
    given = {name: str(value) if isinstance(value, Path) else value for name, value in (places | {"workers": 0} | more).items()}
    return ProtectOptions(source=str(source), target=str(target), dataset=KEY.dataset, **given)


def ledger_beside(target: Path) -> Path:
    """The draw ledger of the calls that runs into this target count in."""
    return target.resolve().parent / "ledger" / KEY.dataset


def write_key(folder: Path, key: bytes) -> Path:
    """A draw key's file."""
    path = folder / f"{key_id(key)}.key"
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(key.hex())
    return path


def protect(
    root: Path, source: Path | str, target: Path | str, *, hooks: Hooks | None = None, **more: Any
) -> tuple[Plan, Manifest | None]:
    """A whole run, with a gate that passes everything unless `hooks` has another; None when there was nothing to do."""
    outcome = execute(make_options(root, source, target, **more), hooks or Hooks(gate=PassGate()))
    return outcome.plan, outcome.manifest


def released(target: Path) -> dict[str, pa.Table]:
    """What a reader of the current version sees, by partition."""
    found = {}
    for path in sorted((target / "current").rglob("*.parquet")):
        name = path.parent.relative_to(target / "current").as_posix()
        assert name not in found
        found[name] = pa.parquet.read_table(path, partitioning=None)
    return found


def files_of(folder: Path, keep: Callable[[Path], bool] = lambda _: True) -> dict[str, bytes]:
    """Every file below a folder by name."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and keep(path)
    }


def published(target: Path) -> dict[str, bytes]:
    """The current version's data, byte for byte."""
    return files_of((target / "current").resolve(), lambda path: not path.name.startswith("_"))


def with_key(number: int) -> bytes:
    """Another draw key."""
    return bytes((number * 5 + k * 7) % 251 for k in range(32))
