"""The first hour of a new user: init, run and audit of a small lake, and what mistakes cost."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
import yaml

from pass_core.randomness import stream
from tests.conftest import PROJECT

N = 240
CANARY = "CANARY-7f3a"  # a value that no command may print
TINY = [
    "train.epochs=1",
    "audit.attacks={majority: {}, logistic_regression: {iterations: 20}}",
    "audit.depth={permutations: 20, fresh_draws: 1, bundles: [1], draws: [1], gallery: 50}",
    "tracking.enabled=false",
]


def _command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flows.cli", *arguments]
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    environment.pop("PASS_RAW_DATA", None)
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small lake, and the params.yaml that `init` wrote for it."""
    folder = tmp_path_factory.mktemp("first_hour")
    rng = stream(5, "first hour")
    gender, topic = rng.integers(0, 2, N), rng.integers(0, 3, N)
    vectors = rng.normal(size=(N, 6))
    vectors[:, 0] += 2 * gender
    vectors[:, 1] += 2 * topic
    table = pa.table(
        {
            "call_id": [f"{CANARY}-{k}" for k in range(N)],
            "customer": [f"{CANARY}-c{k % 40}" for k in range(N)],
            "day": [f"2026-11-{1 + k % 3:02d}" for k in range(N)],
            "gender": ["f" if k else "m" for k in gender],
            "topic": topic,
            "vector": pa.array(vectors.tolist(), pa.list_(pa.float32())),
        }
    )
    ds.write_dataset(table, folder / "calls", format="parquet", partitioning=["day"], partitioning_flavor="hive")
    done = _command(folder, "init", "calls", "--private", "gender", "--useful", "topic", "--general", "", "--yes")
    assert done.returncode == 0, done.stderr
    assert CANARY not in done.stdout + done.stderr
    assert "240 records" in done.stdout
    assert "gender                   string       2 different values" in done.stdout
    return folder


def test_init_writes_a_commented_file_of_ten_lines(project: Path) -> None:
    text = (project / "params.yaml").read_text()
    assert len([line for line in text.splitlines() if not line.startswith("#")]) <= 12
    assert CANARY not in text
    section = yaml.safe_load(text)["dataset"]["calls"]
    assert (section["record_id"], section["person"], section["payload"]) == ("call_id", "customer", ["vector"])
    assert "private: [gender]  # 2 classes" in text


@pytest.mark.parametrize(
    "command",
    [
        ("run", "--root", "out"),
        ("step", "train", "--dataset", "calls", "--root", "out"),
        ("audit", "release", "--dataset", "calls", "--root", "out"),
        ("lake", "protect", "calls", "protected", "--dataset", "calls"),
        ("lake", "serve", "calls", "protected", "--dataset", "calls"),
    ],
    ids=" ".join,
)
def test_a_settings_file_is_checked_like_the_command_line(project: Path, command: tuple[str, ...]) -> None:
    (project / "wrong.yaml").write_text("train: {epoch: 5}\n")
    done = _command(project, *command, "--settings", "wrong.yaml")
    assert done.returncode == 2
    assert "error: train.epoch: unknown key (did you mean 'epochs'?)" in done.stderr


def test_init_does_not_replace_a_file_and_reports_a_wrong_column(project: Path, tmp_path: Path) -> None:
    done = _command(project, "init", "calls", "--private", "gender", "--useful", "topic", "--general", "")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "params.yaml: expected no file there, found one; give --out or, to replace it, --yes" in done.stderr
    wrong = ["init", str(project / "calls"), "--private", "gendre", "--useful", "topic", "--yes"]
    done = _command(tmp_path, *wrong)
    assert done.returncode == 2
    assert "dataset.calls.private: column 'gendre' (did you mean 'gender'?) is not in the lake" in done.stderr


def test_init_asks_for_the_roles(project: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flows.cli", "init", str(project / "calls")]
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    answers = "gender\ntopic\n\n"
    done = subprocess.run(command, cwd=tmp_path, input=answers, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load((tmp_path / "params.yaml").read_text())["dataset"]["calls"]["useful"] == ["topic"]


def test_lake_from_init_runs_and_is_audited(project: Path) -> None:
    settings = [part for setting in TINY for part in ("--set", setting)]
    done = _command(project, "run", "--quiet", "--root", "out", *settings)
    assert done.returncode in (0, 3), done.stderr  # one epoch hides little: the verdict may be fail
    assert "calls/pass_substitution" in done.stdout
    audited = project / "out" / "audits" / "calls" / "pass_substitution" / "audit.json"
    audited.unlink()
    done = _command(project, "step", "audit", "--dataset", "calls", "--quiet", "--root", "out", *settings)
    assert done.returncode == 0, done.stderr
    assert json.loads(audited.read_text())["verdict"]


WRONG = {
    "unknown key": (["--set", "train.epoch=1"], ["train.epoch: unknown key (did you mean 'epochs'?): expected one of epochs"]),
    "unknown section": (["--set", "trian={}"], ["trian: unknown key (did you mean 'train'?): expected one of seed, compute"]),
    "wrong type": (["--set", "train.epochs=many"], ["train.epochs: input should be a valid integer, found str; see `pass-pip"]),
    "wrong value": (["--set", "compute.threads=0"], ["compute.threads: expected between 1 and 256, found 0"]),
    "unknown data set": (["--dataset", "call"], ["dataset 'call' has no section in params.yaml (did you mean 'calls'?)"]),
    "unknown method": (["--method", "pas_substitution"], ["method.pas_substitution: unknown name", "did you mean 'pass_sub"]),
    "unknown extractor": (["--set", "dataset.calls.extractor=logml"], ["dataset.calls.extractor: unknown name 'logml' (did you"]),
    "unknown attack": (["--set", "audit.attacks={netwrk: {}}"], ["audit.attacks.netwrk: unknown name", "did you mean 'network'"]),
    "extractor of another payload": (
        ["--set", "dataset.calls.extractor=logmel"],
        ["dataset.calls.extractor: logmel reads audio, found payload_kind vector; choose another one"],
    ),
    "weights missing": (
        ["--set", "extractor.facenet={weights: w.safetensors}", "--set", "dataset.calls.payload_kind=image", "--set",
         "dataset.calls.extractor=facenet"],
        ["extractor.facenet: w.safetensors: expected file is missing; correct extractor.facenet.weights"],
    ),
    "pool too large": (["--set", "pool.donors=240"], ["pool.donors: expected at most the ", "found 240; lower it, or set it"]),
    "column missing": (
        ["--set", "dataset.calls.person=custmer"],
        ["dataset.calls.person: column 'custmer' (did you mean 'customer'?) is not in the lake: expected one of call_id"],
    ),
    "role of a column that is not there": (
        ["--set", "dataset.calls.useful=[topics]"],
        ["dataset.calls.useful: column 'topics' (did you mean 'topic'?) is not in the lake"],
    ),
    "source missing": (
        ["--set", "dataset.calls.source=/nowhere/lake"],
        ["dataset.calls.source: /nowhere/lake: expected files named *.parquet are missing; check `source` and `format`"],
    ),
    "versioned run without dvc.yaml": (["--engine", "dvc"], ["dvc.yaml: expected for --engine dvc, found none; give --engine"]),
    "not a pair": (["--set", "train.epochs"], ["--set train.epochs: expected path=value, such as train.epochs=5; correct it"]),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_mistake_is_one_line_before_the_run(project: Path, case: str) -> None:
    options, expected = WRONG[case]
    chosen = [] if "--engine" in options else ["--engine", "in-process"]
    done = _command(project, "run", *chosen, *options)
    assert done.returncode == 2, done.stderr
    lines = done.stderr.splitlines()
    assert len([line for line in lines if line.startswith("error: ")]) == len(lines), done.stderr  # no traceback, no log
    for part in expected:
        assert any(part in line for line in lines), done.stderr
    assert len(lines) <= (2 if "dvc" in case else 1), done.stderr
    assert not (project / "data").exists()


def test_all_mistakes_are_reported_in_one_go(project: Path) -> None:
    wrong = ["pool.donors=5000", "dataset.calls.person=who", "dataset.calls.extractor=logmel"]
    settings = [part for setting in wrong for part in ("--set", setting)]
    done = _command(project, "run", *settings)
    assert done.returncode == 2
    found = [line.split(": ")[1] for line in done.stderr.splitlines()]
    assert found == ["dataset.calls.person", "dataset.calls.extractor"]  # training records are counted once the columns are right


def test_config_show_says_where_values_come_from(project: Path) -> None:
    done = _command(project, "config", "show", "--json", "--set", "train.epochs=3", "--set", "pool={donors: 9}")
    shown = json.loads(done.stdout)
    assert shown["train.epochs"] == {"value": 3, "origin": "--set"}
    assert shown["pool.donors"] == {"value": 9, "origin": "--set"}
    assert shown["pool.forbid"] == {"value": "none", "origin": "default"}
    assert shown["dataset.calls.private"] == {"value": ["gender"], "origin": "file"}
    assert shown["audit.thresholds.private_nag_at_most"] == {"value": 0.15, "origin": "default"}
    assert shown["method.pass_substitution.temperature"]["origin"] == "default"
    file = project / "mine.yaml"
    file.write_text("train: {epochs: 5, batch_size: 64}\npool: {donors: 7}\n")
    given = ["--settings", "mine.yaml", "--set", "train.epochs=3"]
    shown = json.loads(_command(project, "config", "show", "--json", *given).stdout)
    assert shown["train.epochs"] == {"value": 3, "origin": "--set"}
    assert shown["train.batch_size"] == {"value": 64, "origin": "mine.yaml"}
    assert shown["pool.donors"] == {"value": 7, "origin": "mine.yaml"}
    assert shown["dataset.calls.private"] == {"value": ["gender"], "origin": "file"}
    lines = _command(project, "config", "show", "audit.depth").stdout.splitlines()
    assert lines[0].split() == ["audit.depth.fresh_draws", "8", "default"]
    done = _command(project, "config", "show", "audit.dept")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("audit.thresholds", "private_nag_at_most: number, between 0 and 1, default 0.15\n    An attacker keeps"),
        ("train.batch_size", "batch_size: whole number, at least 2 (batch normalisation needs them), default 256\n    part of"),
        ("method.gap.penalty", "penalty: number, above 0, default 10.0\n    ρ in the first epoch"),
        ("dataset.calls.person", "person: text or null, default null"),
        ("compute.device", "device: one of cpu, cuda, mps, auto, default \"cpu\""),
        ("audit.attacks", "large_network: section\n    the probing attack"),
        ("", "pool: section\n"),
    ],
)  # fmt: skip
def test_config_explain_documents_any_path(project: Path, path: str, expected: str) -> None:
    assert expected in _command(project, "config", "explain", path).stdout


def test_config_explain_of_a_wrong_path(project: Path) -> None:
    done = _command(project, "config", "explain", "audit.treshold")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "audit.treshold: unknown (did you mean 'thresholds'?): expected one of attacks, effort, " in done.stderr
