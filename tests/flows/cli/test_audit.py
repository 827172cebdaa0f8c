"""`audit`, `compare` and `--fail-on` as a person or a CI job uses them."""

import contextlib
import io
import logging
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.cli.audit import ADVICE, judged_checks, next_steps
from flows.cli.main import main
from pass_core.auditing import analyses
from pass_core.auditing.findings import Check
from pass_core.auditing.thresholds import Limit
from pass_core.errors import ConfigError
from pass_core.randomness import stream
from pass_core.storage.audits import read_audit
from tasks.config import load_config, parse_overrides
from tasks.running.layout import Layout
from tasks.running.step_io import RunKey
from tests.conftest import PROJECT, TINY, write_params

AUDIT = TINY["audit"] | {"attacks": {"logistic_regression": {"iterations": 50}}}
N = 3000
PAIR = ("--original", "original.parquet", "--private", "gender", "--useful", "activity", "--quiet")

TWINS = """
from dataclasses import dataclass

from pass_core.auditing.analyses.base import Analysis
from pass_core.auditing.findings import Check
from pass_core.auditing.section import Demand
from pass_core.auditing.thresholds import Limit


@dataclass(frozen=True)
class Twins:
    share: float


def checks(twins, thresholds):
    sentence = "half of the records are twins"
    yield Check.fact("twins_at_most", Limit(0.1, "No twins."), "twins", value=twins.share, passed=False, sentence=sentence)


ANALYSIS = Analysis(
    key="twins", rank=60, title="Twins", finding=Twins, find=lambda audited: Twins(0.5), checks=checks,
    section=lambda twins: ["Twins."], demands={"twins_at_most": Demand("No twins", "at most {:.1%}")},
)
"""


class Done(NamedTuple):
    """A command that has ended."""

    returncode: int
    stdout: str
    stderr: str


def _run(cwd: Path, *arguments: str) -> Done:
    """The command in this process: the libraries it imports take seconds to start."""
    texts = io.StringIO(), io.StringIO()
    loggers = {name: logging.getLogger(name) for name in ("tasks", "flows")}
    before = {name: (ours.handlers, ours.propagate, ours.level) for name, ours in loggers.items()}
    argv, sys.argv = sys.argv, ["pass-pipeline", *arguments]
    code: str | int | None = 0
    try:
        with contextlib.chdir(cwd), contextlib.redirect_stdout(texts[0]), contextlib.redirect_stderr(texts[1]):
            main()
    except SystemExit as end:
        code = end.code
    finally:
        sys.argv = argv
        for name, ours in loggers.items():
            ours.handlers, ours.propagate = before[name][:2]
            ours.setLevel(before[name][2])
    return Done(int(code or 0), *(text.getvalue() for text in texts))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Originals, a private release of them, and one that protects nothing."""
    folder = tmp_path_factory.mktemp("pair")
    write_params(folder, audit=AUDIT)
    rng = stream(1, "pair")
    gender, activity = rng.integers(0, 2, N), rng.integers(0, 3, N)

    def vectors(first: np.ndarray) -> pa.Array:
        noisy = np.stack([first, activity], axis=1) + rng.normal(0, 0.15, (N, 2))
        return pa.array(noisy.tolist(), pa.list_(pa.float32()))

    labels = {"gender": pa.array(np.array(["f", "m"])[gender]), "activity": pa.array(activity)}
    pq.write_table(pa.table(labels | {"payload": vectors(gender)}), folder / "original.parquet")
    pq.write_table(pa.table({"payload": vectors(rng.integers(0, 2, N))}), folder / "private.parquet")
    pq.write_table(pa.table({"payload": vectors(gender)}), folder / "open.parquet")
    return folder


@pytest.fixture(scope="module")
def audited(folder: Path) -> Path:
    """The same folder, with both audits in it."""
    private = _run(folder, "audit", "pair", *PAIR, "--protected", "private.parquet", "--out", "private")
    assert private.returncode == 0, private.stderr + private.stdout
    assert "original/private: PASS, privacy below the limit, utility kept, mNAG" in private.stdout
    leaking = _run(folder, "audit", "pair", *PAIR, "--protected", "open.parquet", "--out", "open")
    assert leaking.returncode == 3, leaking.stderr
    assert "original/open: FAIL" in leaking.stdout
    assert "private attribute gender: NAG" in leaking.stdout
    return folder


def test_pair_leaves_audit_report_and_provenance(audited: Path) -> None:
    for name, verdict in (("private", "pass"), ("open", "fail")):
        assert read_audit(audited / name / "audit.json").verdict == verdict
        page = (audited / name / "report.html").read_text()
        assert "gender" in page
        assert (audited / name / "provenance.json").exists()


@pytest.mark.parametrize(
    ("fail_on", "code"),
    [("never", 0), ("useful_nag_at_least", 0), ("membership_auc_at_most,private_nag_at_most", 3)],
)
def test_fail_on_chooses_what_fails(folder: Path, fail_on: str, code: int) -> None:
    done = _run(folder, "audit", "pair", *PAIR, "--protected", "open.parquet", "--out", "again", "--fail-on", fail_on)
    assert done.returncode == code, done.stderr
    assert "FAIL" in done.stdout  # the verdict itself stays what it is


def test_checks_are_known_by_name() -> None:
    assert judged_checks(None) is None
    assert judged_checks("never") == frozenset()
    assert judged_checks(" valid_days , labelled_audit") == {"valid_days", "labelled_audit"}
    for wrong in ("nag", "significance", "never,private_nag_at_most", ""):
        with pytest.raises(ConfigError, match=r"--fail-on: unknown check .*expected never, or some of private_nag_at_most"):
            judged_checks(wrong)


def test_fail_on_takes_the_checks_of_an_added_analysis(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "added_twins.py").write_text(TWINS)
    monkeypatch.setattr(analyses, "__path__", [*analyses.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "pass_core.auditing.analyses.added_twins", raising=False)
    done = _run(folder, "audit", "pair", *PAIR, "--protected", "private.parquet", "--out", "twins", "--fail-on", "twins_at_most")
    assert done.returncode == 3, done.stderr
    assert "half of the records are twins" in done.stdout


def test_failed_checks_lead_to_settings_that_help() -> None:
    def steps(method: str, *failed: str) -> str:
        limit = Limit(0.1, "a test's")
        checks = [
            Check.fact(name, limit, name, value=0.0, passed=name not in failed, sentence=name)
            for name in [*ADVICE, "feature_drift_at_most"]
        ]
        return "\n".join(next_steps("calls", method, checks))

    assert steps("pass_substitution") == ""
    trained = steps("pass_substitution", "private_nag_at_most", "reidentified_at_most")
    assert "--method transport_substitution" in trained
    assert "train.epochs=40" in trained
    assert "release.calls=[]" in trained
    assert "pool.forbid=same_person" in trained
    assert "useful_nag" not in trained
    transport = steps("transport_substitution", *ADVICE)
    assert "--method transport_substitution" not in transport
    assert "train.epochs" not in transport
    assert "epsilon=0.1" in transport
    assert "config explain audit.thresholds.feature_drift_at_most" in steps("identity", "feature_drift_at_most")


def test_advice_names_parameters_that_exist() -> None:
    settings = {word.rstrip(":") for advice in ADVICE.values() for _, line in advice for word in line.split() if "=" in word}
    overrides = [setting.format(dataset="synthetic_motion") for setting in settings]
    assert len(overrides) > 8
    for override in overrides:
        load_config(PROJECT / "params.yaml", parse_overrides([override]))


def test_compare_puts_audits_side_by_side(audited: Path) -> None:
    done = _run(audited, "compare", "private", "open/audit.json", "--out", "pages/compare.html")
    assert done.returncode == 0, done.stderr
    page = (audited / "pages" / "compare.html").read_text()
    assert "private" in page
    assert "open" in page
    missing = _run(audited, "compare", "private", "nowhere")
    assert missing.returncode == 2
    assert "expected audit.json, or a folder that holds one; not found: nowhere" in missing.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pair", "--original", "original.parquet"), "Missing option '--protected'"),
        (("pair", "--protected", "open.parquet", "--private", "gender", "--useful", "activity"), "Missing option '--original'"),
        (("pair", *PAIR, "--protected", "open.parquet", "--dataset", "celeba"), "No such option: --dataset"),
        (("--unlabelled", "x"), "No such option: --unlabelled. See pass-pipeline audit --help"),
        (("unlabelled", "x", "--engine", "dvc"), "No such option: --engine"),
        (("release", "--private", "gender"), "No such option: --private. See pass-pipeline audit release --help"),
        (("--private", "gender"), "No such option: --private. Did you mean 'pair --private'?"),
        (("pair", *PAIR, "--protected", "open.parquet", "--shape", "2xa"), "--shape: expected whole numbers such as 2,128"),
        (("pair", *PAIR, "--protected", "open.parquet", "--fail-on", "speed"), "--fail-on: unknown check 'speed'"),
        (("pair", *PAIR, "--protected", "gone.parquet"), "gone.parquet: expected a Parquet, Delta or CSV table, found nothing"),
    ],
)
def test_mixed_and_missing_options_are_one_line_with_code_2(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    done = _run(folder, "audit", *arguments)
    assert done.returncode == 2, done.stdout
    assert message in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("error: ")


def test_records_without_labels_through_the_command(tiny_root: Path, tmp_path: Path) -> None:
    """The tiny project's own audit is no pass, and so is what relies on it, unless CI looks at drift alone."""
    write_params(tmp_path)
    shutil.copytree(tiny_root, tmp_path / "root")
    new = "root/features/synthetic_motion"
    arguments = ("audit", "unlabelled", new, "--root", "root", "--out", "gate")
    done = _run(tmp_path, *arguments)
    assert done.returncode == 3, done.stderr
    assert "Private attributes were not attacked on these records" in done.stdout
    verdict = read_audit(Layout(tiny_root).artefact("audit", RunKey("synthetic_motion", "pass_substitution"))).verdict
    assert verdict != "pass"
    assert f"has the verdict {verdict}" in done.stdout
    assert read_audit(tmp_path / "gate" / "audit.json").basis == "unlabelled"
    assert "not attacked" in (tmp_path / "gate" / "report.html").read_text()
    assert _run(tmp_path, *arguments, "--fail-on", "feature_drift_at_most,exposure_drift_at_most").returncode == 0
