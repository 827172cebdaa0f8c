"""The code that a result depends on: the first-party files that modules import, and their digest."""

import ast
import functools
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

PROJECT = Path(__file__).parents[2]
PACKAGES = ("pass_core", "tasks")


def imported_files(modules: Iterable[str]) -> tuple[Path, ...]:
    """The files of these modules and of all first-party ones they import, wherever in a file the import is."""
    found: set[Path] = set()
    waiting = [path for module in modules if (path := _file(module))]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += [file for module in _imports(path) if (file := _file(module))]
    return tuple(sorted(found))


@functools.cache
def code_digest(modules: tuple[str, ...]) -> str:
    """SHA-256 over `imported_files`, each as its syntax tree: comments, docstrings and layout do not count."""
    whole = hashlib.sha256()
    for path in imported_files(modules):
        whole.update(f"{path.relative_to(PROJECT).as_posix()}\0{_behaviour(path)}\n".encode())
    return whole.hexdigest()


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def _behaviour(path: Path) -> str:
    tree = ast.parse(path.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def _file(module: str) -> Path | None:
    """The file of a first-party module, None for others and for packages."""
    if module.split(".", maxsplit=1)[0] not in PACKAGES:
        return None
    path = PROJECT.joinpath(*module.split(".")).with_suffix(".py")
    return path if path.is_file() else None
