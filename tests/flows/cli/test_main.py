"""The command line as a person uses it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from flows.cli.main import app
from flows.cli.options import StepName
from tasks.production.options import ProtectOptions
from tasks.registry import STEPS
from tasks.storage.files import digest
from tests.conftest import PROJECT, write_params

PROGRAM = str(Path(sys.executable).parent / "pass-pipeline")
HEAVY = ("torch", "prefect", "mlflow", "pyarrow", "polars", "pandas", "great_expectations", "transformers")


def _run(*arguments: str, cwd: Path = PROJECT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *arguments], cwd=cwd, capture_output=True, text=True, check=False)


def _commands() -> Iterator[tuple[str, ...]]:
    """Every command and group, as the words that name it."""

    def below(command: object, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield words
        for name, inner in command.commands.items() if isinstance(command, TyperGroup) else ():
            yield from below(inner, (*words, name))

    return below(get_command(app), ())


def test_help_lists_the_commands_in_order() -> None:
    lines = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).output.splitlines()
    listed = [line.split()[1] for line in lines if line.startswith("│") and not line.split()[1].startswith("-")]
    names = [
        "run",
        "step",
        "audit",
        "compare",
        "report",
        "up",
        "down",
        "datasets",
        "extractors",
        "methods",
        "attacks",
        "bench",
        "doctor",
    ]
    assert [name for name in listed if name in names] == names


@pytest.mark.parametrize("words", list(_commands()), ids=" ".join)
def test_help_fits_a_terminal_and_starts_with_a_verb(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80"})
    assert done.exit_code == 0
    lines = done.output.rstrip().splitlines()
    assert len(lines) <= 40, f"{len(lines)} lines"
    assert max(map(len, lines)) <= 80
    command = get_command(app)
    for word in words:
        assert isinstance(command, TyperGroup)
        command = command.commands[word]
    summary = (command.help or "").splitlines()[0]
    assert len(summary) <= 66 or not words, "one line of the list of commands"
    assert not summary.lower().startswith(("the ", "a ", "an ", "what ", "how ")), "starts with a verb"
    assert summary.endswith(".")


@pytest.mark.parametrize("words", list(_commands()), ids=" ".join)
def test_help_imports_no_heavy_library(words: tuple[str, ...]) -> None:
    code = (
        "import sys; from flows.cli.main import main\n"
        "try: main()\nexcept SystemExit: print('heavy', *[name for name in {HEAVY!r} if name in sys.modules])"
    ).replace("{HEAVY!r}", repr(HEAVY))
    done = subprocess.run([sys.executable, "-c", code, *words, "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "heavy"


def test_mistakes_in_parameters_are_found_before_prefect_is_imported(tmp_path: Path) -> None:
    write_params(tmp_path, pool={"donors": "many"})
    code = (
        "import sys; sys.argv = ['pass-pipeline', 'run']; from flows.cli.main import main\n"
        "try: main()\nexcept SystemExit as end: print(end.code, 'prefect' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2 False"
    assert "pool.donors" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        ("rnu", "'run'"),
        ("audt pair", "'audit'"),
        ("audit relaese", "'release'"),
        ("protect lake out", "'lake protect'"),
        ("backfil lake out", "'lake backfill'"),
        ("serve", "'lake serve'"),
        ("key new file", "'lake key'"),
        ("ui", "'up'"),
        ("pool withdraw 5", "'lake donors'"),
        ("run --datset x", "'--dataset'"),
        ("audit --method identity", "'release --method'"),
    ],
)
def test_wrong_words_are_answered_by_a_suggestion(arguments: str, suggestion: str) -> None:
    done = _run(*arguments.split())
    assert done.returncode == 2
    assert done.stderr.startswith("error: No such ")
    assert f"Did you mean {suggestion}" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("run --dataset syn", "synthetic_motion"),
        ("run --dataset my_", "my_lake"),
        ("step --method tran", "transport_substitution"),
        ("step sam", "sample_pool"),
        ("audit un", "unlabelled"),
    ],
)
def test_shell_completes_names(typed: str, offered: str, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("dataset: {my_lake: {}}")
    words = ["pass-pipeline", *typed.split()]
    shell = {"_PASS_PIPELINE_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run([PROGRAM], cwd=tmp_path, env=os.environ | shell, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [offered], done.stderr


def test_steps_are_named_once_more_for_the_shell() -> None:
    assert get_args(StepName) == tuple(STEPS)


@pytest.mark.parametrize(
    ("command", "name"),
    [("datasets", "synthetic_motion"), ("extractors", "hubert"), ("methods", "pass_substitution"), ("attacks", "network")],
)
def test_lists_are_also_json(command: str, name: str) -> None:
    entries = {entry["name"]: entry for entry in json.loads(_run(command, "--json").stdout)}
    assert entries[name]["summary"]
    listed = _run(command).stdout
    assert entries[name]["summary"].split(":")[0] in listed
    assert entries[name]["settings"]
    for setting in entries[name]["settings"]:
        assert f"    {setting['name']} " in listed


def test_doctor_accepts_this_installation_and_not_a_broken_project(tmp_path: Path) -> None:
    findings = {finding["check"]: finding for finding in json.loads(_run("doctor", "--json").stdout)}
    for check in (
        "python",
        "packages",
        "torch device",
        "extraction",
        "torchvision and torchaudio",
        "params.yaml",
        "data root is writable",
    ):
        assert findings[check]["ok"], findings[check]
    write_params(tmp_path, pool={"donors": "many"})
    done = _run("doctor", cwd=tmp_path)
    assert done.returncode == 2
    assert "pool.donors: input should be a valid integer" in done.stdout
    assert "has no .dvc folder" in done.stdout
    assert {line.split()[0] for line in done.stdout.splitlines()} == {"ok", "failed"}


def test_audit_and_report_of_a_finished_run(tiny_root: Path, tmp_path: Path) -> None:
    write_params(tmp_path)
    shutil.copytree(tiny_root, tmp_path / "root")
    audited = tmp_path / "root" / "audits" / "synthetic_motion" / "identity" / "audit.json"
    before = digest(audited)
    done = _run("audit", "release", "--method", "identity", "--root", "root", "--quiet", cwd=tmp_path)
    assert done.returncode == 3, done.stderr  # a failed audit has an exit code of its own
    assert "synthetic_motion/identity: FAIL" in done.stdout
    assert "private attribute id: NAG" in done.stdout
    assert "private_nag_at_most failed:\n    --method transport_substitution" in done.stdout
    assert digest(audited) == before
    reported = _run("report", "--method", "identity", "--root", "root", cwd=tmp_path)
    assert reported.returncode == 0
    assert (tmp_path / reported.stdout.strip()).is_file()


def test_errors_are_one_line_with_code_2(tmp_path: Path) -> None:
    write_params(tmp_path)
    (tmp_path / "dvc.yaml").write_text("stages: {}")
    for arguments, words in (
        (("step", "train", "--root", "root"), "expected input 'features' of step train is missing"),
        (("run", "--root", "root", "--method", "magic"), "method.magic: unknown name 'magic'"),
        (("step", "train", "--engine", "dvc", "--set", "train.epochs=1"), "engine dvc: parameters and paths come from"),
        (("report", "--root", "nowhere"), "audit.json: expected file is missing"),
    ):
        done = _run(*arguments, "--quiet", cwd=tmp_path) if arguments[0] != "report" else _run(*arguments, cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert words in done.stderr
        assert done.stderr.strip().splitlines()[-1].startswith("error: ")


def _listening(process: int) -> set[int]:
    """Ids of the processes below `process` that run a Prefect server."""
    table = subprocess.run(["ps", "-eww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in table.splitlines()]
    family = {process}
    while grown := {int(pid) for pid, parent, _ in rows if int(parent) in family} - family:
        family |= grown
    return {int(pid) for pid, _, command in rows if int(pid) in family and "prefect.server" in command}


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_run_leaves_no_server_behind_however_it_ends(end: signal.Signals, tmp_path: Path) -> None:
    write_params(tmp_path, methods=["pass_substitution"], train={"epochs": 10_000, "batch_size": 64})
    environment = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    command = [PROGRAM, "run", "--root", "root"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 300
        while not (tmp_path / "root" / ".staging" / "train-synthetic_motion-pass_substitution").exists():
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            assert time.monotonic() < deadline
            time.sleep(0.1)
        servers = _listening(process.pid)
        assert servers
        process.send_signal(end)
        process.wait(60)
        deadline = time.monotonic() + 60
        while any(Path(f"/proc/{server}").exists() for server in servers):
            assert time.monotonic() < deadline, "a server is still running"
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait()
        if process.stderr:
            process.stderr.close()


def test_protect_takes_the_draw_key_from_a_secret_block(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[ProtectOptions] = []
    monkeypatch.setattr("tasks.preflight.check_protect", lambda options: given.append(options) or ["stop here"])
    done = CliRunner().invoke(app, ["lake", "protect", "lake", "out", "--dataset", "calls", "--key-block", "draw-key"])
    assert done.exit_code == 2
    assert [(options.key_block, options.key_file) for options in given] == [("draw-key", None)]
