"""A quick audit tries less, and says so wherever its figures are read."""

import shutil
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from flows.cli.audit import show_audit
from pass_core.auditing.analyses.base import every_analysis, left_out
from tasks.config import load_config
from tasks.registry import STEPS
from tasks.reports.annex import write_annex
from tasks.reports.compare import write_comparison
from tasks.running.layout import Layout
from tasks.running.step import run_step
from tasks.running.step_io import RunKey
from tasks.storage.files import read_json
from tests.conftest import PROJECT, TINY, write_params

KEY = RunKey("synthetic_motion", "pass_substitution")
AUDIT: dict[str, object] = TINY["audit"]  # type: ignore[assignment]


def test_quick_audits_try_less_and_say_so(tiny_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(shutil.copytree(tiny_root, tmp_path / "root"))
    full = read_json(Layout(root).artefact("audit", KEY))
    config = load_config(write_params(tmp_path, audit=AUDIT | {"effort": "quick"}))
    for name in ("audit", "report"):
        run_step(STEPS[name], KEY, config, Layout(root), "test")
    path = Layout(root).artefact("audit", KEY)
    quick = read_json(path)
    Draft202012Validator(read_json(PROJECT / "docs" / "audit.schema.json")).validate(quick)
    assert (full["effort"], quick["effort"]) == ("full", "quick")
    assert set(full["attack_settings"]) - set(quick["attack_settings"]) == {"pool_lookup"}
    assert {attack["name"] for row in quick["attributes"] for attack in row["attacks"]} == {"network", "logistic_regression"}
    assert left_out("full") == ()
    missing = {key for key in full if full[key] is not None and quick[key] is None}
    assert "side_channels" in missing <= set(left_out("quick"))
    for analysis in (one for one in every_analysis() if one.key in left_out("quick")):
        assert analysis.title in quick["not_promised"][0]
    # The attacks that both try find the same, to the last bit.
    for row, same in zip(quick["attributes"], full["attributes"], strict=True):
        assert row["attacks"] == [attack for attack in same["attacks"] if attack["name"] != "pool_lookup"]
    words = "This is a quick audit (audit.effort: quick)"
    report = (Layout(root).artefact("report", KEY) / "report.html").read_text()
    assert report.count(words) == 2  # under the verdict, and among what is not promised
    assert report.count("Left out: this is a quick audit.") == len(left_out("quick"))
    write_comparison([path], tmp_path / "compare.html")
    assert "quick audit" in (tmp_path / "compare.html").read_text()
    for annex in write_annex(tmp_path, path, None):
        assert words in annex.read_text()
    show_audit(path.parent, "quick")
    assert words in " ".join(capsys.readouterr().out.split())
    assert not any(words in sentence for sentence in full["not_promised"])
