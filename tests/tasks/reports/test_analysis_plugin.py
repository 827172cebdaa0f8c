"""An analysis of the audit is one file: its finding, check, words and figure appear wherever an audit does."""

import dataclasses
import shutil
import sys
from pathlib import Path

import pytest

from pass_core.auditing import analyses
from pass_core.auditing.analyses.base import every_analysis
from pass_core.errors import AuditError
from pass_core.storage.audits import amended, read_audit, schema
from tasks.config import Config
from tasks.registry import STEPS
from tasks.running.layout import Layout
from tasks.running.step import run_step
from tasks.running.step_io import RunKey
from tasks.storage.files import read_json

KEY = RunKey("synthetic_motion", "pass_substitution")
PLUGIN = """
from dataclasses import dataclass

from pass_core.auditing.analyses.base import Analysis
from pass_core.auditing.findings import Check
from pass_core.auditing.section import Card, Curve, Demand, Series, Table
from pass_core.auditing.thresholds import Limit
from pass_core.statistics.intervals import Estimate


@dataclass(frozen=True)
class Twins:
    pairs: int
    share: Estimate


def checks(twins, thresholds):
    limit = Limit(0.1, "Twins would reveal each other.")
    sentence = f"{twins.share.value:.1%} of the records are twins, at most {limit.value:.1%} allowed"
    yield Check.at_most("twins_at_most", limit, "twins", twins.share, sentence)


def section(twins):
    if twins is None:
        yield "No twins were looked for."
        return
    yield f"Of 100 records {100 * twins.share.value:.0f} have a twin."
    yield (Card.of("Twins", twins.share, "none by chance"),)
    yield Table("Twins", "Pairs of twins.", ("Of", "Share", "Chance"), (("all records", twins.share, None),))
    series = Series("", (1, 2), (twins.share, twins.share), 0.0)
    yield (Curve(name="twins_<b>", title="Twins", unit="births", series=(series,), label="Twins", caption="By births."),)


ANALYSIS = Analysis(
    key="KEY",
    rank=60,
    title="Twins <among> records",
    finding=Twins,
    find=lambda audited: Twins(len(audited.subject.test), Estimate(0.25, 0.2, 0.3)),
    checks=checks,
    highlights=lambda twins: [Card("Twins at a glance", str(twins.pairs), "pairs")],
    section=section,
    demands={"twins_at_most": Demand("Nobody has a twin", "at most {:.1%} of records")},
)
"""


def _add(folder: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    (folder / "added_analysis.py").write_text(PLUGIN.replace("KEY", key))
    monkeypatch.setattr(analyses, "__path__", [*analyses.__path__, str(folder)])
    monkeypatch.delitem(sys.modules, "pass_core.auditing.analyses.added_analysis", raising=False)


@pytest.fixture
def audited(tiny_root: Path, tmp_path: Path) -> Layout:
    """The tiny project, which the test may change."""
    shutil.copytree(tiny_root, tmp_path / "root")
    return Layout(tmp_path / "root")


def test_an_added_file_is_found_judged_written_and_shown(
    audited: Layout, tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_json(audited.artefact("audit", KEY))
    _add(tmp_path, monkeypatch, "twins")
    older = read_audit(audited.artefact("audit", KEY))  # made before the analysis existed
    assert older.analyses["twins"] is None
    for name in ("audit", "report"):
        run_step(STEPS[name], KEY, tiny_config, audited, "test")
    written = read_json(audited.artefact("audit", KEY))
    assert written["twins"] == {"pairs": before["records"]["test"], "share": {"value": 0.25, "low": 0.2, "high": 0.3}}
    judged = ("checks", "reasons", "verdict", "privacy")
    assert {key: part for key, part in written.items() if key not in ("twins", *judged)} == {
        key: part for key, part in before.items() if key not in judged
    }
    audit = read_audit(audited.artefact("audit", KEY))
    assert type(audit.analyses["twins"]).__name__ == "Twins"
    assert audit.verdict == "fail"
    assert audit.reasons[-1] == "25.0% of the records are twins, at most 10.0% allowed"
    assert "twins" in schema()["required"]
    page = (audited.artefact("report", KEY) / "report.html").read_text()
    for words in (
        '<h3 id="twins">Twins &lt;among&gt; records</h3>', '<a href="#other">', "Of 100 records 25 have a twin.",
        "Twins at a glance", "Nobody has a twin: at most 10.0\N{NARROW NO-BREAK SPACE}% of records", "all records",
        "Twins would reveal each other.",
    ):  # fmt: skip
        assert words in page
    assert len(list((audited.artefact("report", KEY) / "figures").glob("twins_*.svg"))) == 1


@pytest.mark.parametrize("key", ["linkage", "verdict"])
def test_a_key_that_is_taken_is_refused(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _add(tmp_path, monkeypatch, key)
    with pytest.raises(AuditError, match=f"'{key}'"):
        every_analysis()


def test_a_key_of_the_context_is_refused(tiny_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audit = read_audit(Layout(tiny_root).artefact("audit", KEY))
    _add(tmp_path, monkeypatch, "dataset")
    with pytest.raises(AuditError, match="found dataset"):
        amended(dataclasses.replace(audit, analyses={one.key: None for one in every_analysis()}))
