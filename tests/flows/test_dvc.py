"""DVC for real, in a repository of the test's own: what is reproduced, what is skipped, what the user's commands show."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tasks.running.layout import Layout
from tasks.running.step_io import RunKey
from tasks.storage.files import digest
from tasks.storage.parquet import shards
from tests.conftest import PROJECT, TINY, write_params
from tests.tasks.production.s3 import BUCKET, objects, s3_server

KEY = RunKey("synthetic_motion", "pass_substitution")
BIN = Path(sys.executable).parent


def _run(repository: Path, *command: str, code: int = 0) -> str:
    """Output of a command in the repository, with the tests' virtual environment first."""
    environment = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "DVC_NO_ANALYTICS": "1"}
    done = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone's worth of the project with tiny parameters, reproduced through the flow's DVC engine and committed."""
    folder = tmp_path_factory.mktemp("repository")
    for name in ("pass_core", "tasks", "flows", ".dvc"):
        shutil.copytree(PROJECT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "cache", "tmp"))
    for name in ("dvc.yaml", ".dvcignore", ".gitignore"):
        shutil.copy(PROJECT / name, folder / name)
    real = {"motionsense": {"private": ["gender", "id"], "useful": ["activity"]}}
    real["calls"] = {
        "reader": "lake",
        "private": ["a"],
        "useful": ["b"],
        "record_id": "i",
        "payload": ["x"],
        "source": "s3://lake",
    }
    # One method: half the processes to start.
    write_params(folder, methods=["pass_substitution"], dataset=TINY["dataset"] | real)
    _run(folder, "git", "init", "--quiet", "--initial-branch=main")
    _run(folder, "git", "config", "user.email", "tests@example.org")
    _run(folder, "git", "config", "user.name", "tests")
    _run(folder, "git", "add", "--all")
    _run(folder, "git", "commit", "--quiet", "--message", "project")
    # The first steps come from DVC alone, the rest from the flow, with one Prefect task per stage.
    _run(folder, "dvc", "repro", "train@synthetic_motion-pass_substitution")
    # After a few tiny epochs on so few records the audit does not pass, as it must not: exit code 3.
    _run(folder, str(BIN / "pass-pipeline"), "run", "--engine", "dvc", code=3)
    _run(folder, "git", "add", "--all")
    _run(folder, "git", "commit", "--quiet", "--message", "results")
    return folder


def _stages_run(output: str) -> list[str]:
    return [line.split("'")[1] for line in output.splitlines() if line.startswith("Running stage")]


def test_dvc_gives_the_same_bytes_as_bare_steps(repository: Path, tiny_root: Path) -> None:
    for name in ("raw", "records", "features", "pool", "model", "protected", "linkage", "audit", "report"):
        assert digest(Layout(repository / "data").artefact(name, KEY)) == digest(Layout(tiny_root).artefact(name, KEY)), name
    assert (repository / "data" / "published" / str(KEY) / "report.html").exists()


def test_secret_and_scratch_stay_out_of_git(repository: Path) -> None:
    tracked = _run(repository, "git", "ls-files", "data").splitlines()
    assert "data/models/synthetic_motion/.gitignore" in tracked
    assert {Path(path).name for path in tracked} == {".gitignore"}
    assert _run(repository, "git", "status", "--porcelain") == ""


def test_second_repro_runs_nothing(repository: Path) -> None:
    output = _run(repository, "dvc", "repro")
    assert _stages_run(output) == []
    assert "Data and pipelines are up to date" in output
    assert "up to date" in _run(repository, "dvc", "status")


PRIVATE = ("raw", "records", "features", "pools", "trained_on", "linkage")


def _private_files(repository: Path) -> list[Path]:
    found = [path for name in PRIVATE for path in (repository / "data" / name).rglob("*") if path.is_file()]
    return [path for path in found if path.name != ".gitignore"]


def _private_digests(repository: Path) -> set[str]:
    """The names under which DVC would push anything that is private."""
    stages = yaml.safe_load((repository / "dvc.lock").read_text())["stages"].values()
    outs = [out for stage in stages for out in stage["outs"] if out["path"].split("/")[1] in PRIVATE]
    assert {out["path"].split("/")[1] for out in outs} == set(PRIVATE)
    return {out["md5"] for out in outs} | {hashlib.md5(path.read_bytes()).hexdigest() for path in _private_files(repository)}  # noqa: S324 (DVC's)


def test_results_reach_a_clone_through_an_object_store_and_private_data_do_not(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = tmp_path / "clone"
    _run(tmp_path, "git", "clone", "--quiet", str(repository), str(clone))
    with s3_server() as settings:
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        for place in (repository, clone):
            _run(place, "dvc", "remote", "add", "--local", "--default", "store", f"s3://{BUCKET}/dvc")
            _run(place, "dvc", "remote", "modify", "--local", "store", "endpointurl", settings["AWS_ENDPOINT_URL"])
        # One job each: the server answers one request after the other.
        _run(repository, "dvc", "push", "--jobs", "1")
        _run(repository, "dvc", "remote", "remove", "--local", "store")
        pushed = {name.removeprefix("files/md5/").replace("/", "") for name in objects("dvc")}
        _run(clone, "dvc", "pull", "--allow-missing", "--jobs", "1")
    assert not pushed & _private_digests(repository)
    for name in ("model", "protected", "audit", "report"):  # the control: these were pushed
        assert digest(Layout(clone / "data").artefact(name, KEY)) == digest(Layout(repository / "data").artefact(name, KEY)), name
    assert not _private_files(clone)
    assert "up to date" in _run(clone, "dvc", "repro", "--allow-missing", "--dry")
    # What is private is computed again where it is needed, and comes out the same.
    made = _stages_run(_run(clone, "dvc", "repro", "validate@synthetic_motion"))
    assert [name.partition("@")[0] for name in made] == ["generate", "ingest"]
    assert _run(clone, "git", "status", "--porcelain") == ""


def test_audit_parameters_re_run_audit_and_report_only(repository: Path) -> None:
    params = repository / "params.yaml"
    before = params.read_text()
    params.write_text(before.replace("fresh_draws: 2", "fresh_draws: 3"))
    target = "report@synthetic_motion-pass_substitution"
    try:
        assert "audit.depth.fresh_draws" in _run(repository, "dvc", "params", "diff")
        stages = _stages_run(_run(repository, "dvc", "repro", target))
    finally:
        params.write_text(before)
    assert stages == ["audit@synthetic_motion-pass_substitution", target]
    # Back to the parameters before: DVC takes the results from its cache.
    assert _stages_run(_run(repository, "dvc", "repro", target)) == []


def test_metrics_and_plots_are_shown(repository: Path) -> None:
    metrics = json.loads(_run(repository, "dvc", "metrics", "show", "--json"))
    files = metrics[""]["data"]
    shown = files["data/audits/synthetic_motion/pass_substitution/metrics.json"]["data"]
    assert shown["verdict"] in ("fail", "undecided")  # which of the two depends on the processor's last bits
    assert 0 <= shown["id"]["nag"] <= 1.2
    output = _run(repository, "dvc", "plots", "show")
    page = Path(output.strip().removeprefix("file://"))
    assert "Loss during training" in page.read_text()
    assert "NAG per attribute" in page.read_text()
    shutil.rmtree(repository / "dvc_plots")


def test_experiment_with_another_parameter(repository: Path) -> None:
    output = _run(repository, "dvc", "exp", "run", "-S", "train.epochs=4", "report@synthetic_motion-pass_substitution")
    assert "train@synthetic_motion-pass_substitution" in _stages_run(output)
    assert "generate@synthetic_motion" not in _stages_run(output)
    curves = (repository / "data" / "curves" / "synthetic_motion" / "pass_substitution.csv").read_text()
    assert len(curves.splitlines()) == 1 + 4
    _run(repository, "git", "checkout", "--", ".")
    _run(repository, "dvc", "checkout")


def test_failing_stage_reports_the_steps_own_error(repository: Path) -> None:
    params = repository / "params.yaml"
    before = params.read_text()
    params.write_text(before.replace("donors: 64", "donors: 100000"))
    try:
        output = _run(repository, str(BIN / "pass-pipeline"), "step", "sample_pool", "--quiet", code=2)
    finally:
        params.write_text(before)
        _run(repository, "dvc", "checkout")
    assert "error: stage sample_pool@synthetic_motion failed: pool.donors: expected at most the" in output


def test_raw_data_are_added_versioned_and_reproduced(repository: Path, tmp_path: Path) -> None:
    """`datasets add`, then the data set's name in params.yaml: `dvc repro` reads what DVC has, not what PASS_RAW_DATA says."""
    raw = tmp_path / "published"
    shutil.copytree(repository / "data" / "raw" / "synthetic_motion", raw)
    command = str(BIN / "pass-pipeline")
    assert "expected a folder" in _run(repository, command, "datasets", "add", "motionsense", str(tmp_path / "none"), code=2)
    assert "not generated here: motionsense" in _run(repository, command, "datasets", "add", "synthetic_motion", str(raw), code=2)
    assert "calls.source: expected none in a versioned run" in _run(
        repository, command, "datasets", "add", "calls", str(raw), code=2
    )
    direct = ("python", "-m", "tasks", "ingest", "--dataset", "calls")
    assert "leave source empty" in _run(repository, *direct, code=2)
    assert "single files" in _run(repository, command, "datasets", "add", "motionsense", "https://example.org/x", code=2)
    added = _run(repository, command, "datasets", "add", "motionsense", str(raw))
    assert "never pushed" in added
    pointer = yaml.safe_load((repository / "data" / "raw" / "motionsense.dvc").read_text())
    assert pointer["outs"][0]["push"] is False
    assert digest(repository / "data" / "raw" / "motionsense") == digest(raw)
    assert "exists already" in _run(repository, command, "datasets", "add", "motionsense", str(raw), code=2)
    params = repository / "params.yaml"
    before = params.read_text()
    params.write_text(before.replace("datasets:\n- synthetic_motion\n", "datasets:\n- synthetic_motion\n- motionsense\n"))
    os.environ["PASS_RAW_DATA"] = str(tmp_path / "elsewhere")  # where nothing lies: not looked at
    try:
        assert _stages_run(_run(repository, "dvc", "repro", "ingest@motionsense")) == ["ingest@motionsense"]
        shutil.rmtree(repository / "data" / "raw" / "motionsense" / "A_DeviceMotion_data" / "wlk_7")
        assert "modified" in _run(repository, "dvc", "status", "data/raw/motionsense.dvc")
        _run(repository, "dvc", "checkout", "--force", "data/raw/motionsense.dvc")
        assert digest(repository / "data" / "raw" / "motionsense") == digest(raw)
        remote = tmp_path / "remote"
        _run(repository, "dvc", "remote", "add", "--local", "--default", "there", str(remote))
        _run(repository, "dvc", "push", "data/raw/motionsense.dvc")
        assert not [path for path in remote.rglob("*") if path.is_file()]
    finally:
        del os.environ["PASS_RAW_DATA"]
        params.write_text(before)
    records = Layout(repository / "data").artefact("records", RunKey("motionsense"))
    assert [digest(path) for path in shards(records)] == [
        digest(path) for path in shards(Layout(repository / "data").artefact("records", KEY))
    ]


@pytest.mark.slow
def test_clone_reproduces_every_committed_digest(tmp_path: Path) -> None:
    """A clone of the committed project, reproduced from nothing: dvc.lock must come out as it was committed.

    Holds on the kind of CPU that made the lock; elsewhere the last bits of float32 may differ (docs/reproducibility.md).
    """
    clone = tmp_path / "clone"
    _run(tmp_path, "git", "clone", "--quiet", str(PROJECT), str(clone))
    output = _run(clone, "dvc", "repro")
    assert len(_stages_run(output)) == 17
    assert _run(clone, "git", "diff", "--", "dvc.lock") == ""
