"""`tune`, then `run --settings` with what it found; and what `run` says when its audit fails."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pass_core.auditing.findings import Check
from pass_core.auditing.thresholds import Limit
from tasks.tuning.causes import likely_causes
from tests.conftest import LENIENT, PROJECT, TINY, write_params

DATASET, METHOD = "synthetic_motion", "transport_substitution"


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    called = [sys.executable, "-m", "flows.cli", *arguments]
    return subprocess.run(called, cwd=folder, capture_output=True, text=True, check=False, env=environment)


def project(folder: Path, **thresholds: object) -> Path:
    audit = {**TINY["audit"], "attacks": {"network": {"epochs": 15, "batch_size": 64}}, "thresholds": LENIENT | thresholds}  # type: ignore[dict-item]
    return write_params(folder, methods=[METHOD], method={METHOD: {}}, train={"epochs": 2, "batch_size": 64}, audit=audit)


@pytest.mark.slow
def test_tune_finds_a_setting_that_run_takes(tmp_path: Path) -> None:
    project(tmp_path)
    given = ["--dataset", DATASET, "--root", "out"]
    done = command(tmp_path, "tune", *given, "--minutes", "0.3", "--method", METHOD, "--set", "train.learning_rate=0.002")
    assert done.returncode == 0, done.stderr
    assert (
        "Next:     pass-pipeline run --dataset synthetic_motion --root out --settings out/tuned/synthetic_motion.yaml"
        in done.stdout
    )
    settings = tmp_path / "out" / "tuned" / f"{DATASET}.yaml"
    assert yaml.safe_load(settings.read_text())["methods"] == [METHOD]
    done = command(tmp_path, "run", "--quiet", *given, "--settings", str(settings))
    assert done.returncode == 0, done.stderr
    model = json.loads((tmp_path / "out" / "models" / DATASET / METHOD / "model.json").read_text())
    assert model["training"]["learning_rate"] == 0.002


@pytest.mark.slow
def test_tune_ends_with_code_3_and_says_why_where_nothing_passes(tmp_path: Path) -> None:
    project(tmp_path, reidentified_at_most={"value": 0.0, "reason": "a test's"})
    done = command(tmp_path, "tune", "--dataset", DATASET, "--root", "out", "--minutes", "0.2", "--method", METHOD, "--quiet")
    assert done.returncode == 3, done.stderr
    assert "No setting passes. What limits it, and the change that would help:" in done.stdout
    assert not (tmp_path / "out" / "tuned" / f"{DATASET}.yaml").exists()
    assert (tmp_path / "out" / "tuned" / f"{DATASET}.png").exists()


@pytest.mark.slow
def test_a_run_that_fails_says_why_and_how_to_search(tmp_path: Path) -> None:
    project(tmp_path, reidentified_at_most={"value": 0.0, "reason": "a test's"})
    done = command(tmp_path, "run", "--dataset", DATASET, "--root", "out", "--quiet", "--set", "audit.effort=quick")
    assert done.returncode == 3, done.stderr
    assert (
        "Likely cause: releases are traced to their originals: try pool.forbid: same_person, or a larger epsilon" in done.stdout
    )
    assert "pass-pipeline tune --dataset synthetic_motion --root out" in done.stdout


def test_tune_rejects_what_it_cannot_search(tmp_path: Path) -> None:
    project(tmp_path)
    done = command(tmp_path, "tune", "--dataset", DATASET, "--root", "out", "--method", "identity")
    assert done.returncode == 2
    assert "error: --method: expected some of transport_substitution, pass_substitution, found identity" in done.stderr
    assert not (tmp_path / "out").exists()


class Audited:
    """The part of an audit that causes are read from."""

    def __init__(self, *failed: str) -> None:
        limit = Limit(0.1, "a test's")
        self.checks = [Check.fact(name, limit, name, value=0.5, passed=False, sentence=name) for name in failed]
        self.attributes = ()


def test_a_failed_audit_has_a_likely_cause() -> None:
    assert likely_causes(Audited()) == []
    causes = likely_causes(Audited("membership_auc_at_most", "membership_rate_at_most"))
    assert [cause.what for cause in causes] == ["the protector remembers its training records"]
