"""The demo at full size: what the README promises, measured."""

import re

import numpy as np
import polars as pl
import pytest

from flows.pipeline import chain
from tasks.config import load_config
from tasks.running.layout import Layout
from tasks.running.step import StepReport, run_step
from tasks.running.step_io import RunKey
from tasks.storage.files import read_json
from tests.conftest import PROJECT

KEY = RunKey("synthetic_motion", "pass_substitution")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """As `make demo`: params.yaml with a quick audit, through every step; tracking off, since it changes no result."""
    assert "--set audit.effort=quick" in (PROJECT / "Makefile").read_text()
    config = load_config(PROJECT / "params.yaml", {"tracking.enabled": "false", "audit.effort": "quick"})
    layout = Layout(tmp_path_factory.mktemp("demo"))
    chain(lambda step, key: run_step(step, key, config, layout, "test"), ["synthetic_motion"], ["pass_substitution"])
    return layout


def test_embedded_data_are_large_enough(demo: Layout) -> None:
    report = StepReport.load(demo.step_report("ingest", RunKey("synthetic_motion")))
    assert report.counts["records"] >= 10_000
    assert report.counts["persons"] >= 20
    assert min(report.counts["train"], report.counts["test"]) > 2_000


def test_demo_hides_the_private_and_keeps_the_useful(demo: Layout) -> None:
    document = read_json(demo.artefact("audit", KEY))
    rows = {row["name"]: row for row in document["attributes"]}
    for row in rows.values():  # the control: every attribute can be read where nothing protects it
        assert row["unprotected"]["value"] >= 0.90
    for name in ("gender", "id"):
        assert rows[name]["nag"]["value"] <= 0.05
        assert rows[name]["exact"]["rule"]["value"] <= 0.05
    assert rows["activity"]["nag"]["value"] >= 0.90
    assert document["verdict"] == "pass"


def test_readme_has_the_figures_that_the_demo_prints(demo: Layout) -> None:
    """Within two percentage points: another kind of processor rounds otherwise, and training adds that up."""
    rows = {row["name"]: row for row in read_json(demo.artefact("audit", KEY))["attributes"]}
    table = re.findall(r"^\| (\w+)[^|]* \| (?:private|useful) \| (.*) \|$", (PROJECT / "README.md").read_text(), re.MULTILINE)
    assert {name for name, _ in table} == set(rows)
    for name, cells in table:
        unprotected, guess, nag, low, high, rule, plug_in = (float(number) / 100 for number in re.findall(r"\d+\.\d", cells))
        row = rows[name]
        assert (unprotected, guess) == pytest.approx((row["unprotected"]["value"], row["guess"]), abs=0.02)
        assert (nag, low, high) == pytest.approx(tuple(row["nag"][end] for end in ("value", "low", "high")), abs=0.02)
        assert (rule, plug_in) == pytest.approx((row["exact"]["rule"]["value"], row["exact"]["plug_in"]), abs=0.02)


def test_trials_differ_in_nuisance(demo: Layout) -> None:
    """The same person and activity in two trials: other length, other gain, other phone orientation."""
    folder = demo.artefact("raw", KEY) / "A_DeviceMotion_data"
    first, second = (pl.read_csv(folder / f"wlk_{trial}" / "sub_1.csv") for trial in (7, 15))
    assert len(first) != len(second)
    axes = ["userAcceleration.x", "userAcceleration.y", "userAcceleration.z"]
    assert np.abs(first[axes].std().to_numpy() - second[axes].std().to_numpy()).max() > 0.02
