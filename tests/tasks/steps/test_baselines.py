"""Baselines and controls go through the same steps as PASS: trained, saved, released, audited."""

import json
from pathlib import Path
from typing import Any

import pytest

from tasks.config import load_config
from tasks.registry import STEPS
from tasks.running.layout import Layout
from tasks.running.step import run_step
from tests.conftest import write_params


@pytest.fixture(scope="module")
def audits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Method -> audit.json, for one that plays against adversaries and one that draws donors."""
    folder: Path = tmp_path_factory.mktemp("baselines")
    sections = {"gap": {"pretraining_epochs": 1}, "same_class_donor": {}}
    train = {"epochs": 12, "batch_size": 64, "learning_rate": 0.005, "share": 1.0}
    config = load_config(write_params(folder, methods=list(sections), method=sections, train=train))
    found = {}
    for method in sections:
        for step in STEPS.values():
            key = step.key("synthetic_motion", method)
            if step.per_method or method == "gap":
                run_step(step, key, config, Layout(folder / "root"), "test")
            if step.name == "audit":
                found[method] = json.loads(Layout(folder / "root").artefact("audit", key).read_text())
                break
    return found


def test_adversaries_of_a_saved_protector_are_scored(audits: dict[str, dict[str, Any]]) -> None:
    attributes = {found["name"]: found for found in audits["gap"]["attributes"]}
    for name in ("gender", "id"):
        assert attributes[name]["own_adversary"] is not None
        assert attributes[name]["exact"] is None  # there is no channel to compute with
    assert attributes["activity"]["own_adversary"] is None


def test_controls_over_the_pool_are_audited_exactly(audits: dict[str, dict[str, Any]]) -> None:
    attributes = {found["name"]: found for found in audits["same_class_donor"]["attributes"]}
    assert all(found["exact"] is not None for found in attributes.values())
    assert all(found["own_adversary"] is None for found in attributes.values())
    assert attributes["gender"]["nag"]["value"] < 0.3
    assert attributes["activity"]["nag"]["value"] > 0.6
