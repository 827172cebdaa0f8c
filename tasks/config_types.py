"""Settings of methods, attacks, extractors and data sets, without importing torch.

The preflight and `pass-pipeline config` must answer at once, and torch and scikit-learn take seconds to import. So a module of
ours is imported with stubs in place of other libraries, and forgotten at once. A class read this way has the same fields and
checks as the imported one but is another object: use it to check and to explain settings, never to run a step.
"""

import ast
import contextlib
import dataclasses
import importlib
import importlib.util
import re
import sys
import types
from abc import ABCMeta
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Union, get_args, get_origin

from pass_core import discovery
from pass_core.auditing.thresholds import Limit
from pass_core.errors import ConfigError

FIRST_PARTY = ("pass_core", "tasks")
REAL = {*FIRST_PARTY, *sys.stdlib_module_names, "numpy"}  # never replaced by a stub
REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a config class, as `pass-pipeline config explain` documents it."""

    name: str
    type: str
    default: Any  # REQUIRED where there is none
    meaning: str


def entry_value(package: ModuleType, name: str, attribute: str, *, imported: bool = False) -> Any:
    """An attribute of an entry, such as `config_type` or `summary` of a method; raises as `entry_of` does."""
    return getattr(entry_of(package, name, imported=imported), attribute)


def entry_of(package: ModuleType, name: str, *, imported: bool = False) -> Any:
    """The entry of that name, such as a method; `imported`: of the real module.

    Raises:
        ConfigError: the package has no entry of that name.
    """
    if name not in discovery.available(package):
        discovery.load(package, name)  # raises
    variable = package.__name__.rsplit(".", 1)[-1].removesuffix("s").upper()  # methods -> METHOD
    return value_of(f"{package.__name__}.{name}", variable, imported=imported)


def value_of(module: str, name: str, *, imported: bool = False) -> Any:
    """A module's value, from the module itself where it is imported already or must be."""
    if not imported and module not in sys.modules:
        with contextlib.suppress(Exception), _stubs():  # code that needs a library when it is imported gets it below
            return getattr(importlib.import_module(module), name)
    return getattr(importlib.import_module(module), name)


def settings_of(config_type: type[Any]) -> list[Setting]:
    """The settings of a config class with what they mean: the comment beside a field, or a limit's reason."""
    meanings: dict[str, str] = {}
    for parent in reversed(config_type.__mro__):
        if dataclasses.is_dataclass(parent):
            meanings |= _comments(parent)
    defaults: dict[str, Any] = {}
    for field in dataclasses.fields(config_type):
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        defaults[field.name] = REQUIRED if default is dataclasses.MISSING else default
    settings = []
    for field in dataclasses.fields(config_type):
        default = defaults[field.name]
        section = (field.type.__doc__ or "").partition("\n")[0] if dataclasses.is_dataclass(field.type) else ""
        meaning = meanings.get(field.name) or getattr(default, "reason", "") or section
        allowed = field.metadata.get("range") or _allowed(config_type, field.name, defaults)
        kind = type_text(field.type) + (f", {allowed}" if allowed else "")
        settings.append(Setting(field.name, kind, getattr(default, "value", default), meaning))
    return settings


def _allowed(config_type: type[Any], name: str, defaults: Mapping[str, Any]) -> str:
    """The values that a class's own check allows, in the words of its message about a wrong one."""
    wrongs: dict[type, list[Any]] = {Limit: [Limit(10**9, "wrong")], tuple: [(-1,), ("twice", "twice")], str: ["?"], bool: [True]}
    for wrong in wrongs.get(type(defaults[name]), (10**9, -1)):
        config = object.__new__(config_type)
        for field, default in defaults.items():
            object.__setattr__(config, field, (field,) if default is REQUIRED else default)
        object.__setattr__(config, name, wrong)
        try:
            config.__post_init__()
        except (ConfigError, AttributeError, TypeError) as error:  # the last two: this check needs another type
            if found := re.match(rf"{name}: expected (?!one of )([^,;]+)", str(error)):
                return found[1]
    return ""


def type_text(kind: Any) -> str:
    """A type as a reader of params.yaml needs it: `int or null`, `one of cpu, cuda`, `list of text`."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        return f"one of {', '.join(map(str, parts))}"
    if origin in (Union, types.UnionType):
        return " or ".join(type_text(part) for part in parts)
    if origin is tuple:
        return f"list of {type_text(parts[0])}"
    if origin in (dict, Mapping):
        return f"table of {type_text(parts[1])}"
    names = {str: "text", bool: "true or false", float: "number", int: "whole number", type(None): "null", Limit: "number"}
    return names.get(kind, "section")


def _comments(config_type: type[Any]) -> dict[str, str]:
    """Field -> the comment at its end, or above it."""
    spec = importlib.util.find_spec(config_type.__module__)
    text = Path(str(spec and spec.origin)).read_text()
    lines, found = text.splitlines(), dict[str, str]()
    classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == config_type.__name__]
    for field in classes[0].body if classes else ():
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            end = lines[(field.end_lineno or 1) - 1].encode()[field.end_col_offset or 0 :].decode()
            above = lines[field.lineno - 2].strip()
            comment = end.partition("#")[2] or (above[1:] if above.startswith("#") else "")
            found |= {field.target.id: comment.strip()} if comment else {}
    return found


class _Anything(ABCMeta):
    """Whatever a stub is asked for: a base class, a type, a constant, a decorator."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (), {"__call__": lambda _, body=None, *__, **___: body})

    def __getitem__(cls, _: Any) -> Any:
        return cls


class _Stubs(MetaPathFinder, Loader):
    """Finds an empty module for every library that was not imported before."""

    def __init__(self) -> None:
        self.read: dict[str, ModuleType] = {}  # modules of ours and stubs; other code never sees them
        self.before: dict[str, ModuleType] = {}

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        del path, target
        top = fullname.partition(".")[0]
        return None if top in REAL or top in self.before else ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__getattr__"] = _Anything("anything", (), {}).__getattr__


_finder = _Stubs()


def _is_stub(value: object) -> bool:
    return isinstance(value, _Anything) or (isinstance(value, ModuleType) and value.__loader__ is _finder)


@contextlib.contextmanager
def _stubs() -> Iterator[None]:
    _finder.before = dict(sys.modules)
    sys.modules.update({name: module for name, module in _finder.read.items() if name not in sys.modules})
    sys.meta_path.insert(0, _finder)
    try:
        yield
    finally:
        sys.meta_path.remove(_finder)
        for name in sys.modules.keys() - _finder.before.keys():
            if name.startswith(FIRST_PARTY) or _is_stub(sys.modules[name]):
                _finder.read[name] = sys.modules.pop(name)
            elif any(map(_is_stub, vars(sys.modules[name]).values())):  # a real one, such as safetensors.torch, that took a stub
                del sys.modules[name]
            if name not in sys.modules:
                parent, _, last = name.rpartition(".")
                if parent in sys.modules:
                    vars(sys.modules[parent]).pop(last, None)  # `from parent import last` would find it there
