"""Threads sleep while they wait, in every process, unless the user wants otherwise."""

import os
import subprocess
import sys

import pytest

from tests.conftest import PROJECT

SHOW = "import os, sys; assert 'torch' not in sys.modules; print(os.environ.get('OMP_WAIT_POLICY'))"


@pytest.mark.parametrize("entry", ["import flows", "import tasks.passive_waiting"])
@pytest.mark.parametrize("own", [None, "ACTIVE"])
def test_entries_set_it_before_torch_and_keep_a_users_own(entry: str, own: str | None) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    if own:
        environment["OMP_WAIT_POLICY"] = own
    done = subprocess.run(
        [sys.executable, "-c", f"{entry}; {SHOW}"], cwd=PROJECT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == (own or "PASSIVE")


def test_a_step_has_it_when_torch_comes() -> None:
    """`python -m tasks` is what DVC starts: the setting is there at the moment torch is first imported."""
    watch = (
        "import builtins, os, runpy, sys\n"
        "real = builtins.__import__\n"
        "def watched(name, *rest, **more):\n"
        "    if name.split('.')[0] == 'torch' and 'torch' not in sys.modules:\n"
        "        print(os.environ.get('OMP_WAIT_POLICY')); os._exit(0)\n"
        "    return real(name, *rest, **more)\n"
        "builtins.__import__ = watched\n"
        "sys.argv = ['tasks', 'ingest', '--dataset', 'none']\n"
        "runpy.run_module('tasks', run_name='__main__')\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    done = subprocess.run(
        [sys.executable, "-c", watch], cwd=PROJECT, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.returncode) == ("PASSIVE", 0), done.stderr
