"""The command line as a person uses it."""

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tasks.storage.files import digest
from tests.conftest import PROJECT, write_params

PROGRAM = str(Path(sys.executable).parent / "pass-pipeline")


def _run(*arguments: str, cwd: Path = PROJECT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *arguments], cwd=cwd, capture_output=True, text=True, check=False)


def test_help_lists_the_commands() -> None:
    text = _run("--help").stdout
    for command in ("run", "step", "audit", "report", "compare", "datasets", "extractors", "methods", "ui", "doctor"):
        assert command in text


@pytest.mark.parametrize(
    ("command", "name"), [("datasets", "synthetic_motion"), ("extractors", "hubert"), ("methods", "pass_substitution")]
)
def test_lists_are_also_json(command: str, name: str) -> None:
    entries = {entry["name"]: entry for entry in json.loads(_run(command, "--json").stdout)}
    assert entries[name]["summary"]
    assert entries[name]["summary"].split(":")[0] in _run(command).stdout


def test_doctor_finds_this_installation_well_and_a_broken_project_not(tmp_path: Path) -> None:
    findings = {finding["check"]: finding for finding in json.loads(_run("doctor", "--json").stdout)}
    for check in ("python", "packages", "torch device", "torchvision and torchaudio", "params.yaml", "data root is writable"):
        assert findings[check]["well"], findings[check]
    write_params(tmp_path, pool={"donors": "many"})
    done = _run("doctor", cwd=tmp_path)
    assert done.returncode == 2
    assert "pool.donors: input should be a valid integer" in done.stdout
    assert "has no .dvc folder" in done.stdout


def test_audit_and_report_of_a_finished_run(tiny_root: Path, tmp_path: Path) -> None:
    write_params(tmp_path)
    shutil.copytree(tiny_root, tmp_path / "root")
    audited = tmp_path / "root" / "audits" / "synthetic_motion" / "identity" / "audit.json"
    before = digest(audited)
    done = _run("audit", "--method", "identity", "--root", "root", "--quiet", cwd=tmp_path)
    assert done.returncode == 3, done.stderr  # a failed audit has an exit code of its own
    assert "synthetic_motion/identity: FAIL" in done.stdout
    assert "private attribute id: NAG" in done.stdout
    assert digest(audited) == before
    reported = _run("report", "--method", "identity", "--root", "root", cwd=tmp_path)
    assert reported.returncode == 0
    assert (tmp_path / reported.stdout.strip()).is_file()


def test_errors_are_one_line_with_code_2(tmp_path: Path) -> None:
    write_params(tmp_path)
    for arguments, words in (
        (("step", "train", "--root", "root"), "expected input 'features' of step train is missing"),
        (("run", "--root", "root", "--method", "magic"), "method 'magic' has no section"),
        (("step", "train", "--engine", "dvc", "--set", "train.epochs=1"), "engine dvc: parameters and paths come from"),
        (("report", "--root", "nowhere"), "audit.json: expected file is missing"),
    ):
        done = _run(*arguments, "--quiet", cwd=tmp_path) if arguments[0] != "report" else _run(*arguments, cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert words in done.stderr
        assert done.stderr.strip().splitlines()[-1].startswith("error: ")


def test_user_interfaces_answer_on_loopback(tmp_path: Path) -> None:
    write_params(tmp_path, tracking={"enabled": True, "store": "store"})
    (tmp_path / "store").mkdir()
    ports = []
    for _ in range(2):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            ports.append(probe.getsockname()[1])
    command = [PROGRAM, "ui", "--prefect-port", str(ports[0]), "--mlflow-port", str(ports[1])]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        waiting = {f"http://127.0.0.1:{ports[0]}/api/health", f"http://127.0.0.1:{ports[1]}/health"}
        deadline = time.monotonic() + 180
        while waiting:
            assert process.poll() is None, process.stdout.read() if process.stdout else ""
            assert time.monotonic() < deadline, waiting
            for url in sorted(waiting):
                try:
                    urllib.request.urlopen(url, timeout=5).close()
                    waiting.discard(url)
                except OSError:
                    time.sleep(0.5)
    finally:
        process.terminate()
        process.wait(180)
    for port in ports:  # nothing is left running
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0
