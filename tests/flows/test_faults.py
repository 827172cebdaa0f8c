"""Faults as a user meets them: one line, an exit code, nothing half-written; and a killed run that goes on."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tasks.running.layout import Layout
from tasks.running.step_io import RunKey
from tasks.storage.files import digest
from tests.conftest import write_params

KEY = RunKey("synthetic_motion", "pass_substitution")
PROGRAM = str(Path(sys.executable).parent / "pass-pipeline")


def _step(folder: Path, name: str, root: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tasks", name, "--dataset", "synthetic_motion", "--root", str(root), "--quiet"]
    if name in {"train", "substitute", "audit", "report"}:
        command += ["--method", "pass_substitution"]
    return subprocess.run([*command, *more], cwd=folder, capture_output=True, text=True, check=False)


def _assert_one_line(done: subprocess.CompletedProcess[str], *words: str, code: int = 2) -> None:
    assert done.returncode == code, done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("error: ")
    for word in words:
        assert word in lines[0]


@contextlib.contextmanager
def _mounted(folder: Path, options: str) -> Iterator[Path]:
    """A file system of its own in `folder`; skips where mounting is not allowed."""
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip("needs the right to mount a small file system (run as root)")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def project(tmp_path: Path, tiny_root: Path) -> Path:
    """A tiny project of which only the raw files exist."""
    write_params(tmp_path)
    shutil.copytree(tiny_root / "raw", tmp_path / "root" / "raw")
    return tmp_path


def test_corrupted_recording(project: Path) -> None:
    root = project / "root"
    damaged = next((root / "raw" / "synthetic_motion").rglob("wlk_8/sub_3.csv"))
    damaged.write_bytes(damaged.read_bytes()[:1000] + b"\xff\x00garbage")
    _assert_one_line(_step(project, "ingest", root), "wlk_8/sub_3.csv", "damaged")
    assert not (root / "records").exists()


def test_missing_subject_file(project: Path) -> None:
    root = project / "root"
    next((root / "raw" / "synthetic_motion").rglob("dws_11/sub_1.csv")).unlink()
    _assert_one_line(_step(project, "ingest", root), "dws_11/sub_1.csv", "missing")
    assert not (root / "records").exists()


def test_unknown_attribute(project: Path) -> None:
    done = _step(project, "ingest", project / "root", "--set", "dataset.synthetic_motion.private=[hair]")
    _assert_one_line(done, "dataset.synthetic_motion.private", "'hair'", "gender, id, activity")


def test_root_that_is_a_file(project: Path) -> None:
    (project / "file").write_text("x")
    _assert_one_line(_step(project, "generate", project / "file"), "a file", code=75)


def test_other_parameters_onto_what_dvc_owns(project: Path) -> None:
    (project / "dvc.yaml").write_text("stages: {train: {cmd: x, outs: [root/models]}}")
    _assert_one_line(_step(project, "ingest", project / "root", "--set", "train.epochs=1"), "belongs to DVC")


def test_device_that_is_not_there(tmp_path: Path, tiny_root: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("needs a machine without CUDA")
    write_params(tmp_path)
    shutil.copytree(tiny_root, tmp_path / "root")
    _assert_one_line(_step(tmp_path, "train", tmp_path / "root", "--set", "compute.device=cuda"), "cuda is not available here")


def test_unknown_step_and_missing_params(project: Path) -> None:
    _assert_one_line(_step(project, "melt", project / "root"), "unknown step 'melt'", "sample_pool")
    _assert_one_line(_step(project, "ingest", project / "root", "--params", "nope.yaml"), "nope.yaml", "missing")


@pytest.mark.parametrize("size", ["300k", "3m"])
def test_full_disk(tmp_path: Path, size: str) -> None:
    """Whichever step meets the end of the disk says so, leaves nothing half-written, and goes on when there is room."""
    write_params(tmp_path)
    with _mounted(tmp_path / "small", f"size={size}") as disk:
        for name in ("generate", "ingest", "validate", "extract", "sample_pool", "train", "substitute"):
            done = _step(tmp_path, name, disk / "root")
            if done.returncode != 0:
                break
        _assert_one_line(done, "no space left on the device", code=75)
        layout = Layout(disk / "root")
        outputs = {"generate": "raw", "ingest": "records", "extract": "features", "sample_pool": "pool", "train": "model"}
        assert name in outputs or name in {"validate", "substitute"}
        if name in outputs:
            assert not layout.artefact(outputs[name], KEY).exists()
        assert not [p for p in layout.staging.glob("*") if p.is_dir()]
        subprocess.run(["mount", "-o", "remount,size=200m", str(disk)], check=True)
        assert _step(tmp_path, name, disk / "root").returncode == 0


def test_read_only_root(tmp_path: Path) -> None:
    write_params(tmp_path)
    with _mounted(tmp_path / "frozen", "size=1m,ro") as disk:
        _assert_one_line(_step(tmp_path, "generate", disk / "root"), "read-only", code=75)


def test_read_only_tracking_store(tmp_path: Path) -> None:
    write_params(tmp_path, tracking={"enabled": True, "store": "frozen/store"})
    with _mounted(tmp_path / "frozen", "size=1m,ro"):
        _assert_one_line(_step(tmp_path, "generate", tmp_path / "root"), "read-only", code=75)
    assert not (tmp_path / "root" / "raw").exists()


def test_tracking_store_that_became_read_only(tmp_path: Path) -> None:
    write_params(tmp_path, tracking={"enabled": True, "store": "disk/store"})
    with _mounted(tmp_path / "disk", "size=20m") as disk:
        assert _step(tmp_path, "generate", tmp_path / "root").returncode == 0
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        _assert_one_line(_step(tmp_path, "ingest", tmp_path / "root"), "MLflow store", "tracking.enabled: false", code=75)
    assert not (tmp_path / "root" / "records").exists()


def _kill_at(step: str, folder: Path, root: Path) -> None:
    """Starts the flow and kills it, with all its children, as soon as `step` is at work."""
    staging = root / ".staging" / f"{step}-{KEY}".replace("/", "-")
    process = subprocess.Popen(
        _flow(root), cwd=folder, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 300
    while not staging.is_dir():
        assert process.poll() is None, f"the flow ended before {step}"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    time.sleep(0.15)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def _flow(root: Path) -> list[str]:
    return [PROGRAM, "run", "--quiet", "--root", str(root), "--dataset", "synthetic_motion", "--method", "pass_substitution"]


def test_killed_flow_goes_on_to_the_same_bytes(tmp_path: Path, tiny_root: Path) -> None:
    write_params(tmp_path)
    root = tmp_path / "root"
    layout = Layout(root)
    _kill_at("train", tmp_path, root)
    assert layout.artefact("pool", KEY).exists()
    assert not layout.artefact("model", KEY).exists()
    _kill_at("substitute", tmp_path, root)
    assert layout.artefact("model", KEY).exists()
    assert not layout.artefact("protected", KEY).exists()
    done = subprocess.run(_flow(root), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 3}, done.stderr  # 3: two tiny epochs need not pass the audit
    for name in ("model", "protected", "linkage", "audit", "report"):
        assert digest(layout.artefact(name, KEY)) == digest(Layout(tiny_root).artefact(name, KEY)), name
    assert not [p for p in layout.staging.iterdir() if p.is_dir()]
