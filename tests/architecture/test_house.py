"""Rules of the tree that no linter knows: short functions and modules, a README per folder, short lists for people."""

import ast
from pathlib import Path

import pytest

from tests.conftest import PROJECT

SOURCES = [path for package in ("pass_core", "tasks", "flows") for path in sorted((PROJECT / package).rglob("*.py"))]
FOLDERS = sorted({path.parent for path in SOURCES})


def _name(path: Path) -> str:
    return str(path.relative_to(PROJECT))


def test_modules_and_functions_are_short() -> None:
    assert len(SOURCES) > 100  # the control: there is something to look at
    long = []
    for path in SOURCES:
        text = path.read_text()
        long += [_name(path)] if text.count("\n") > 320 else []
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (node.end_lineno or 0) - node.lineno >= 60:
                long.append(f"{_name(path)}: {node.name}")
    assert not long


@pytest.mark.parametrize("folder", FOLDERS, ids=_name)
def test_folder_has_a_short_readme(folder: Path) -> None:
    modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
    readme = folder / "README.md"
    assert readme.exists() or len(modules) <= 2
    assert not readme.exists() or readme.read_text().count("\n") <= 15


@pytest.mark.parametrize(("name", "lines"), [("dvc.yaml", 250), ("params.yaml", 130), ("README.md", 150)])
def test_what_people_read_first_is_short(name: str, lines: int) -> None:
    assert (PROJECT / name).read_text().count("\n") <= lines
