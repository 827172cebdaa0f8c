"""The train step with two processes: the same model to float's tolerance, killed and gone on with, nobody left behind."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tasks.running.layout import Layout
from tasks.running.processes import end_bound, start_bound
from tasks.running.step_io import RunKey
from tests.conftest import write_params

KEY = RunKey("synthetic_motion", "pass_substitution")
CODE = "import sys, tasks.storage.checkpoints as c; c.SECONDS_BETWEEN = 0; from tasks.__main__ import main; sys.exit(main())"


def _command(root: Path) -> list[str]:
    return [sys.executable, "-c", CODE, "train", "--dataset", KEY.dataset, "--method", str(KEY.method), "--root", str(root)]


def _project(folder: Path, tiny_root: Path, processes: int) -> Path:
    folder.mkdir()
    write_params(folder, train={"epochs": 12, "batch_size": 64}, compute={"threads": 1, "device": "cpu", "processes": processes})
    for part in ("features", "pools"):
        shutil.copytree(tiny_root / part, folder / "root" / part)
    return folder


def _children(pid: int) -> list[int]:
    """Processes that `pid` started, but for Python's own resource tracker."""
    found = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return [child for child in found if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def _lives(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads /proc")
def test_two_processes_killed_and_gone_on_with(tmp_path: Path, tiny_root: Path) -> None:
    folder = _project(tmp_path / "two", tiny_root, 2)
    root = folder / "root"
    process = subprocess.Popen(_command(root), cwd=folder, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list((root / ".cache" / "training").glob("*.checkpoint")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    children = _children(process.pid)
    assert len(children) == 2
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    while any(_lives(child) for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    done = subprocess.run(_command(root), cwd=folder, capture_output=True, text=True, check=True)
    assert done.stderr.count("resumes after epoch") == 1
    assert "12 epochs" in done.stderr
    other = _project(tmp_path / "one", tiny_root, 1)
    subprocess.run(_command(other / "root"), cwd=other, check=True)
    ours, reference = (load_file(Layout(f / "root").artefact("model", KEY) / "model.safetensors") for f in (folder, other))
    assert ours.keys() == reference.keys()
    similarity = torch.nn.functional.cosine_similarity(ours["donors"], reference["donors"])
    assert similarity.min() > 0.99


def test_batch_that_cannot_be_parted_is_one_line(tmp_path: Path, tiny_root: Path) -> None:
    folder = _project(tmp_path / "three", tiny_root, 3)
    done = subprocess.run([*_command(folder / "root"), "--quiet"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.strip().startswith("error: batch_size: expected a multiple of compute.processes (3), found 64")
    assert len(done.stderr.strip().splitlines()) == 1


BOUND = """
import subprocess, sys, time
from tasks.running.processes import start_bound
server = "import subprocess, sys, time; sleep = [sys.executable, '-c', 'import time; time.sleep(99)']; "
server += "subprocess.Popen(sleep, start_new_session={session}); time.sleep(99)"
start_bound([sys.executable, "-c", server])
print("started", flush=True)
time.sleep(99)
"""


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads /proc")
@pytest.mark.parametrize("session", [False, True])  # Prefect's worker starts every run in a session of its own
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_bound_server_ends_with_its_parent_however_that_ends(ending: signal.Signals, session: bool) -> None:
    code = BOUND.format(session=session)
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"started\n"
    deadline = time.monotonic() + 60
    while len(started := _below(parent.pid)) < 3:  # the watchdog, the server and the server's own child
        assert time.monotonic() < deadline
        time.sleep(0.05)
    parent.send_signal(ending)
    parent.communicate()
    while any(_lives(pid) for pid in started):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads /proc")
def test_a_bound_server_that_dies_leaves_no_child() -> None:
    child = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)'], start_new_session=True)"
    with tempfile.TemporaryFile() as said:
        code = f"import subprocess, sys; print({child}.pid, file=sys.stderr)"
        assert start_bound([sys.executable, "-c", code], errors=said).wait(60) == 0
        said.seek(0)
        assert not _lives(int(said.read()))


def test_end_bound_ends_a_server_and_its_exit_code_is_seen() -> None:
    server = start_bound([sys.executable, "-c", "import time; time.sleep(99)"])
    assert server.poll() is None
    end_bound([server])
    assert server.poll() is not None
    assert start_bound([sys.executable, "-c", "raise SystemExit(7)"]).wait(60) == 7


def _below(pid: int) -> list[int]:
    """All processes that a process started, and those that they started."""
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return children + [grandchild for child in children for grandchild in _below(child)]
