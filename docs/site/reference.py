"""Reference pages from the code itself: the typed configuration, the command line, and the docstrings of the Python API."""

import dataclasses
import inspect
import json
import re
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Union, get_args, get_origin

import typer

import pass_core
from flows.cli.config import NAMED, explained
from flows.cli.main import app
from tasks.config_types import REQUIRED, Setting, settings_of

PYTHON = ("Protector", "audit", "AuditResult")
TYPES = {"str": "TEXT", "int": "NUMBER", "float": "NUMBER", "Path": "PATH", "bool": ""}


def configuration() -> str:
    """Every section of params.yaml with its settings."""
    parts = [
        "# Configuration",
        "Every setting of `params.yaml`, made from the code.",
        "`pass-pipeline config explain SECTION` prints the same, `config show` the values in effect and where each comes from.",
        *_sections("", explained("")),
    ]
    return "\n\n".join(parts) + "\n"


def _sections(path: str, settings: list[Setting]) -> Iterator[str]:
    """A table of the settings below a path, and then the sections below it."""
    sections = [one for one in settings if one.type == "section"]
    own = [one for one in settings if one.type != "section"]
    if own:
        yield _table(("setting", "type", "default", "meaning"), [_setting(one) for one in own])
    for one in sections:
        yield from _section(f"{path}.{one.name}".lstrip("."), one.meaning)
    for name in (name for name in NAMED if name.rpartition(".")[0] == path):
        yield f"## {name}"
        for entry in explained(name):
            yield from _section(f"{name}.{entry.name}", entry.meaning)


def _section(path: str, meaning: str) -> Iterator[str]:
    yield f"{'##' if '.' not in path else '###'} {path}"
    yield meaning
    yield from _sections(path, explained(path))


def _setting(one: Setting) -> tuple[str, ...]:
    default = "required" if one.default is REQUIRED else f"`{json.dumps(one.default, default=str, ensure_ascii=False)}`"
    return f"`{one.name}`", one.type, default, one.meaning


def commands() -> str:
    """Every command with its arguments and options."""
    parts = ["# Commands", "Made from the commands; `--help` prints the same. [Exit codes](../troubleshooting.md)."]
    for path, command in _commands(("pass-pipeline",), typer.main.get_command(app)):
        usage = " ".join([*path, *(_argument(one) for one in command.params if not _is_option(one)), *_rest(command)])
        parts += [f"## {' '.join(path[1:])}", _help(command), f"```\n{usage}\n```"]
        rows = [_option(one) for one in command.params if not getattr(one, "hidden", False)]
        parts += [_table(("argument or option", "value", "default", "meaning"), rows)] if rows else []
    return "\n\n".join(parts) + "\n"


def _commands(path: tuple[str, ...], group: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Commands in the order of `--help`; a group itself where it can be run."""
    for name in group.list_commands(typer.Context(group)):
        command = group.commands[name]
        if not getattr(command, "hidden", False):
            if not hasattr(command, "commands") or command.invoke_without_command:
                yield (*path, name), command
            if hasattr(command, "commands"):
                yield from _commands((*path, name), command)


def _help(command: Any) -> str:
    return inspect.cleandoc(command.help or "")


def _is_option(one: Any) -> bool:
    return str(one.opts[0]).startswith("-")


def _argument(one: Any) -> str:
    name = (one.metavar or one.name).upper() + ("..." if one.nargs == -1 else "")
    return name if one.required else f"[{name}]"


def _rest(command: Any) -> list[str]:
    return ["[OPTIONS]"] if any(map(_is_option, command.params)) else []


def _option(one: Any) -> tuple[str, ...]:
    names = ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts)) if _is_option(one) else f"`{_argument(one)}`"
    value = one.metavar or _value(one.type_descriptor.annotation)
    repeated = ", repeatable" if getattr(one, "multiple", False) else ""
    shown = one.default not in (None, False, (), []) and not callable(one.default)
    default = "required" if one.required else f"`{one.default}`" if shown else ""
    return names, f"{value}{repeated}", default, one.help or ""


def _value(kind: Any) -> str:
    """An option's type as a reader types it."""
    origin, parts = get_origin(kind), [part for part in get_args(kind) if part is not types.NoneType]
    if origin is Literal:
        return ", ".join(map(str, parts))
    if origin in (Union, types.UnionType, list):
        return _value(parts[0])
    return TYPES.get(getattr(kind, "__name__", str(kind)), "TEXT")


def python() -> str:
    """What `pass_core` exports, from its docstrings."""
    parts = ["# Python", "`from pass_core import Protector, audit`: see the [tutorial](../tutorials/own_array.md)."]
    for name in PYTHON:
        thing = getattr(pass_core, name)
        parts += [f"## {name}", *_documented(name, thing)]
        if name == "Protector":
            meanings = [(f"`{one.name}`", one.meaning) for one in settings_of(thing)]
            parts += [_table(("parameter", "meaning"), meanings)]
        if inspect.isclass(thing):
            for member, value in _members(thing):
                parts += [f"### {name}.{member}", *_documented(f"{name}.{member}", value)]
    return "\n\n".join(parts) + "\n"


def _members(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """Public methods and properties that the class defines itself."""
    for name, value in vars(kind).items():
        documented = inspect.getdoc(value)
        if not name.startswith("_") and documented and isinstance(value, types.FunctionType | classmethod | property):
            yield name, value


def _documented(name: str, thing: Any) -> Iterator[str]:
    if isinstance(thing, property):
        yield f"```python\n{name}\n```"
    elif not (dataclasses.is_dataclass(thing) and name == "AuditResult"):  # nobody makes one by hand
        function: Callable[..., Any] = thing.__func__ if isinstance(thing, classmethod) else thing
        yield f"```python\n{_signature(name, function)}\n```"
    text = inspect.getdoc(thing) or ""
    summary, *sections = re.split(r"^(Args|Raises|Returns):$", text, flags=re.MULTILINE)
    yield summary.strip()
    for heading, body in zip(sections[::2], sections[1::2], strict=True):
        rows, after = _entries(body)
        yield _table(({"Args": "argument", "Raises": "error"}.get(heading, "value"), "meaning"), rows)
        if after:
            yield after


def _signature(name: str, function: Callable[..., Any]) -> str:
    """The call, one parameter per line."""
    shown: list[str] = []
    for one in inspect.signature(function).parameters.values():
        if one.name not in ("self", "cls"):
            star = one.kind is inspect.Parameter.KEYWORD_ONLY and not any(line.startswith("*") for line in shown)
            shown += ["*,"] if star else []
            shown.append(f"{one.name}," if one.default is one.empty else f"{one.name}={one.default!r},")
    lines = "\n".join(f"    {line}" for line in shown)
    return f"{name}(\n{lines}\n)" if shown else f"{name}()"


def _entries(body: str) -> tuple[list[tuple[str, str]], str]:
    """`name: meaning` of an indented block, and the paragraphs after it."""
    block, _, after = inspect.cleandoc("\n" + body).partition("\n\n")
    found = re.findall(r"^(\w+): (.*(?:\n +.*)*)", block, flags=re.MULTILINE)
    return [(f"`{name}`", re.sub(r"\s+", " ", text)) for name, text in found], after


def _table(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [headings, ("---",) * len(headings), *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
