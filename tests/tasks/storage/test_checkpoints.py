"""Checkpoints on disk: named by what determines a training, whole or ignored, gone when the step has succeeded."""

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tasks.running.layout import Layout
from tasks.running.step_io import RunKey
from tasks.storage.checkpoints import FileCheckpoints, checkpoint_path
from tasks.storage.files import digest
from tests.conftest import write_params

KEY = RunKey("synthetic_motion", "pass_substitution")
STATE = {"epochs": torch.tensor(2), "learnt.w": torch.randn(3, 2, generator=torch.Generator().manual_seed(1)).T}


def test_state_survives_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "x.checkpoint"
    assert FileCheckpoints(path, "work").load() is None
    FileCheckpoints(path, "work", 0).offer(STATE)
    loaded = FileCheckpoints(path, "work").load()
    assert loaded is not None
    assert loaded.keys() == STATE.keys()
    assert all(torch.equal(loaded[name], STATE[name]) for name in STATE)
    assert [p.name for p in path.parent.iterdir()] == ["x.checkpoint"]


def test_a_young_state_is_not_kept(tmp_path: Path) -> None:
    FileCheckpoints(tmp_path / "x", "work").offer(STATE)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_damaged_checkpoint_is_ignored_with_a_warning(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    checkpoints = FileCheckpoints(tmp_path / "x", "work", 0)
    checkpoints.offer(STATE)
    content = bytearray((tmp_path / "x").read_bytes())
    content[-3] ^= damage == "flipped"
    (tmp_path / "x").write_bytes({"cut": content[:-9], "flipped": content, "empty": b""}[damage])
    logging.getLogger("tasks").propagate = True
    assert checkpoints.load() is None
    assert "damaged" in caplog.text


def test_a_disk_that_refuses_stops_no_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    logging.getLogger("tasks").propagate = True
    FileCheckpoints(tmp_path / "file" / "x", "work", 0).offer(STATE)
    assert "continues without" in caplog.text


def test_name_follows_everything_that_determines_the_training(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")

    def path(source: str = "a", module: str = "pass_core.methods.mass", **recipe: object) -> Path:
        inputs, recipe = {"features": tmp_path / source}, {"seed": 1, "threads": 2} | recipe
        return checkpoint_path(tmp_path, inputs=inputs, recipe=recipe, modules=(module,))

    assert path() == path()
    names = {path(), path("b"), path(seed=2), path(threads=1), path(more=1), path(module="pass_core.methods.gap")}
    assert len(names) == 6


def _train(folder: Path, *more: str) -> list[str]:
    """The step with a checkpoint after every epoch."""
    code = "import sys, tasks.storage.checkpoints as c; c.SECONDS_BETWEEN = 0; from tasks.__main__ import main; sys.exit(main())"
    root = str(folder / "root")
    return [sys.executable, "-c", code, "train", "--dataset", KEY.dataset, "--method", str(KEY.method), "--root", root, *more]


def test_killed_training_resumes_to_the_same_bytes(tmp_path: Path, tiny_root: Path) -> None:
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
        write_params(tmp_path / name, train={"epochs": 16, "batch_size": 64})
        for part in ("features", "pools"):
            shutil.copytree(tiny_root / part, tmp_path / name / "root" / part)
    subprocess.run(_train(tmp_path / "whole", "--quiet"), cwd=tmp_path / "whole", check=True)
    folder, layout = tmp_path / "killed", Layout(tmp_path / "killed" / "root")
    kept = layout.cache / "training"
    for _ in range(2):  # the second one is killed after it has gone on
        before = {p: p.stat().st_mtime_ns for p in kept.glob("*.checkpoint")}
        process = subprocess.Popen(_train(folder, "--quiet"), cwd=folder)
        deadline = time.monotonic() + 120
        while {p: p.stat().st_mtime_ns for p in kept.glob("*.checkpoint")} == before:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert len(list(kept.glob("*.checkpoint"))) == 1
        assert not layout.artefact("model", KEY).exists()
    # Other parameters do not meet it.
    other = subprocess.run(_train(folder, "--set", "train.epochs=2"), cwd=folder, capture_output=True, text=True, check=True)
    assert "resumes after epoch" not in other.stderr
    done = subprocess.run(_train(folder), cwd=folder, capture_output=True, text=True, check=True)
    assert "resumes after epoch" in done.stderr
    for name in ("model", "curves"):
        assert digest(layout.artefact(name, KEY)) == digest(Layout(tmp_path / "whole" / "root").artefact(name, KEY)), name
    assert not list(kept.iterdir())
