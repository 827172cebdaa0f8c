"""`up` and `down` with real servers: all answer, and none is left, however they end."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import write_params
from tests.stacks import answers, environment_of, free_ports, left_of, port_options

UP = [sys.executable, "-m", "flows.cli", "up"]
DOWN = [sys.executable, "-m", "flows.cli", "down"]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """A folder with parameters; nothing that was started there is left after the test."""
    write_params(tmp_path, tracking={"enabled": True, "store": "store"})
    yield tmp_path
    for line in left_of(tmp_path):
        os.kill(int(line.split()[0]), signal.SIGKILL)


def _run(project: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=project, env=environment_of(project), capture_output=True, text=True, check=False)


def _state(project: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((project / "data" / "stack" / "stack.json").read_text()))
    except FileNotFoundError:
        return {}


def _until_none_is_left(project: Path) -> None:
    deadline = time.monotonic() + 120
    while left := left_of(project):
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def test_up_in_the_background_answers_everywhere_and_down_leaves_no_process(project: Path) -> None:
    ports = free_ports(4)
    done = _run(project, *UP, "--detach", "nothing", *port_options(ports))
    assert done.returncode == 0, done.stderr
    state = _state(project)
    assert all(answers(address) for address in state["health"].values())
    assert set(state["health"]) == {"Prefect", "MLflow", "console", "worker"}
    assert all(f"127.0.0.1:{port}" in done.stdout for port in ports)
    with urllib.request.urlopen(state["pages"]["console"]) as page:
        assert "Nothing was ever published" in page.read().decode()
    with urllib.request.urlopen(f"{state['pages']['Prefect']}/api/work_pools/pass") as pool:
        assert json.load(pool)["type"] == "process"
    again = _run(project, *UP, *port_options(free_ports(4)))
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)
    assert "found that one is running" in again.stderr
    assert all(answers(address) for address in state["health"].values())

    assert "all servers have ended" in _run(project, *DOWN).stdout
    assert left_of(project) == []
    assert not _state(project)
    assert "nothing was running" in _run(project, *DOWN).stdout


def test_kill_9_of_the_process_that_started_the_servers_leaves_none(project: Path) -> None:
    command = [*UP, *port_options(free_ports(4))]
    with (project / "said").open("w") as said:
        process = subprocess.Popen(command, cwd=project, env=environment_of(project), stdout=said, stderr=said)
    deadline = time.monotonic() + 300
    while not _state(project).get("ready"):
        assert process.poll() is None, (project / "said").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert all(answers(address) for address in _state(project)["health"].values())
    assert len(left_of(project)) >= 9  # itself, and each server with its watchdog
    process.kill()
    process.wait()
    done = _run(project, *DOWN)
    assert (done.returncode, left_of(project)) == (0, []), done.stderr
    assert not _state(project)


def test_a_taken_port_is_rejected_before_anything_starts(project: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = [*free_ports(3), int(taken.getsockname()[1])]
        for detach in ([], ["--detach"]):
            done = _run(project, *UP, *detach, *port_options(ports))
            assert done.returncode == 2
            assert done.stderr.startswith(
                f"error: --worker-port: expected a free port, found that another program uses {ports[3]}"
            )
            assert done.stderr.count("\n") == 1
    done = _run(project, *UP, *port_options([ports[0], ports[0], *ports[1:3]]))
    assert "--prefect-port and --mlflow-port: expected two ports" in done.stderr
    assert left_of(project) == []


def test_a_server_that_stops_ends_the_others_and_is_named(project: Path) -> None:
    """In the background, where only the log could say it: MLflow's database is no database."""
    (project / "store").mkdir()
    (project / "store" / "mlflow.db").write_text("this is no database, and nothing like one" * 100)
    done = _run(project, *UP, "--detach", *port_options(free_ports(4)))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "MLflow stopped" in done.stderr
    _until_none_is_left(project)
