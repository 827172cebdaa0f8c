"""Shared small things: a tiny project that goes through every step in seconds."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "180")

from pass_core.auditing.thresholds import DRIFTS, Thresholds
from pass_core.randomness import stream
from tasks.config import Config, load_config
from tasks.registry import STEPS
from tasks.running.layout import Layout
from tasks.running.step import run_step

torch.set_num_threads(1)  # two workers share the cores, and small matrices gain nothing: threads would wait for each other

PROJECT = Path(__file__).parent.parent

# Small enough for seconds, large enough that every class and split exists.
TINY = {
    "seed": 3,
    "compute": {"threads": 1, "device": "cpu"},
    "datasets": ["synthetic_motion"],
    "methods": ["pass_substitution", "identity"],
    "dataset": {
        "synthetic_motion": {"private": ["gender", "id"], "useful": ["activity"], "subjects": 4, "points_per_trial": 300}
    },
    "extractor": {"identity": {}},
    "pool": {"donors": 64, "forbid": "self", "target": {}, "stratify": [], "only": {}},
    "train": {"epochs": 8, "batch_size": 64, "share": 1.0},
    "method": {"pass_substitution": {"embedding_size": 32}, "identity": {}},
    "release": {"synthetic_motion": ["activity"]},
    "attacker": {},
    "audit": {
        "depth": {
            "fresh_draws": 2,
            "permutations": 50,
            "bundles": [1, 5],
            "draws": [1, 2],
            "gallery": 100,
            "subgroup_records": 20,
        },
        "attacks": {
            "network": {"epochs": 2, "batch_size": 64, "learning_rate": 0.003},
            "logistic_regression": {"iterations": 30},
            "pool_lookup": {"draws": 2},
        },
    },
    "tracking": {"enabled": False},
}

# Limits that everything passes, for tests that check that a verdict is used and not how good a tiny model is; drifts stay judged.
LENIENT = {
    field.name: {"value": 0.0 if field.name == "useful_nag_at_least" else 1.0, "reason": "a test's"}
    for field in dataclasses.fields(Thresholds)
    if field.name not in (*DRIFTS, "significance", "replayed_seeds_at_most")
} | {"information_excess_at_most": {"value": 100.0, "reason": "a test's"}}


def write_params(folder: Path, **changes: object) -> Path:
    """A tiny params.yaml in `folder`; `changes` replace whole sections."""
    path = folder / "params.yaml"
    path.write_text(yaml.safe_dump(TINY | changes, sort_keys=False))
    return path


def run_all(config: Config, root: Path, method: str, upto: str = "report") -> None:
    """Every step up to `upto`, one after the other, below `root`."""
    for step in STEPS.values():
        run_step(step, step.key("synthetic_motion", method), config, Layout(root), "test")
        if step.name == upto:
            return


@pytest.fixture
def rng() -> np.random.Generator:
    """A stream of the test's own."""
    return stream(0, "tests")


@pytest.fixture(scope="session")
def tiny_config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """The tiny project's parameters."""
    return load_config(write_params(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(scope="session")
def tiny_root(tiny_config: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root in which the tiny project has run with both methods; read-only for tests."""
    root = tmp_path_factory.mktemp("root")
    run_all(tiny_config, root, "pass_substitution")
    for name in ("train", "substitute", "audit", "report"):
        run_step(STEPS[name], STEPS[name].key("synthetic_motion", "identity"), tiny_config, Layout(root), "test")
    return root
