"""What the README and the tutorials show runs as it is printed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.conftest import PROJECT

TUTORIALS = PROJECT / "docs" / "tutorials"
NOTEBOOKS = sorted(TUTORIALS.glob("*.ipynb"))


def _environment() -> dict[str, str]:
    """This project and its commands, wherever the code runs."""
    paths = {"PYTHONPATH": str(PROJECT), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return {**os.environ, **paths}


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**_environment(), "TERM": "dumb", "COLUMNS": "120"}.items():
        monkeypatch.setenv(name, value)
    cells = nbformat.read(notebook, as_version=4)
    NotebookClient(cells, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_stored_with_small_outputs(notebook: Path) -> None:
    assert notebook.stat().st_size < 60_000
    code = [cell for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "code"]
    assert any(cell.outputs for cell in code)
    assert all(cell.execution_count for cell in code)
    assert not re.search(r"/(root|home|tmp|Users)/", notebook.read_text())


def test_ten_lines_run_and_hide_the_private_attribute(tmp_path: Path) -> None:
    script = TUTORIALS / "ten_lines.py"
    found = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, cwd=tmp_path, env=_environment())
    assert found.stdout.startswith("verdict: ")
    nag = {
        row.split()[0]: float(row.split("%")[3].split()[-1])
        for row in found.stdout.splitlines()
        if row[:6] in ("gender", "digit ")
    }
    assert nag["gender"] < 15
    assert nag["digit"] > 90


def test_readme_opens_with_the_ten_lines() -> None:
    block = re.search(r"```python\n(.*?)```", (PROJECT / "README.md").read_text(), re.DOTALL)
    assert block
    assert block[1] == (TUTORIALS / "ten_lines.py").read_text()
