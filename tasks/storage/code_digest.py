"""The code that a result depends on: the first-party files that modules import, and their digest."""

import ast
import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path

PROJECT = Path(__file__).parents[2]
PACKAGES = ("pass_core", "tasks")


def imported_files(modules: Iterable[str]) -> tuple[Path, ...]:
    """The files of these modules and of all first-party ones they import, wherever in a file the import is."""
    found, waiting = set[Path](), list(modules)
    while waiting:
        module = waiting.pop()
        path = PROJECT.joinpath(*module.split(".")).with_suffix(".py")
        if module.split(".", maxsplit=1)[0] in PACKAGES and path not in found and path.is_file():
            found.add(path)
            waiting += _parsed(path)[1]
    return tuple(sorted(found))


@functools.cache
def code_digest(modules: tuple[str, ...]) -> str:
    """SHA-256 over `imported_files`, each as its syntax tree: comments, docstrings and layout do not count."""
    whole = hashlib.sha256()
    for path in imported_files(modules):
        whole.update(f"{path.relative_to(PROJECT).as_posix()}\0{_parsed(path)[0]}\n".encode())
    return whole.hexdigest()


@functools.cache
def _parsed(path: Path) -> tuple[str, tuple[str, ...]]:
    """The digest of a file's syntax tree without docstrings, and the modules that it may import."""
    tree, modules = ast.parse(path.read_text()), list[str]()
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules += [node.module, *(f"{node.module}.{name.name}" for name in node.names)]
        elif isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest(), tuple(modules)
