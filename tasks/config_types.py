"""Settings of methods, attacks, extractors and data sets, read from their source files without importing torch.

The preflight and `pass-pipeline config` must answer at once, and torch and scikit-learn take seconds to import. So only the
statements that a value needs are run. A class read this way has the same fields and checks as the imported one but is another
object: use it to check and to explain settings, never to run a step.
"""

import ast
import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import re
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Union, get_args, get_origin

from pass_core import discovery
from pass_core.auditing.thresholds import Limit
from pass_core.errors import ConfigError

FIRST_PARTY = ("pass_core", "tasks")
REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a config class, as `pass-pipeline config explain` documents it."""

    name: str
    type: str
    default: Any  # REQUIRED where there is none
    meaning: str


def entry_value(package: ModuleType, name: str, attribute: str, *, imported: bool = False) -> Any:
    """A class attribute of an entry, such as `config_type` or `summary` of a method; `imported`: of the real module.

    Raises:
        ConfigError: the package has no entry of that name.
    """
    module, variable = f"{package.__name__}.{name}", _variable(package)
    if name in discovery.available(package) and not imported and module not in sys.modules:
        with contextlib.suppress(LookupError, AttributeError):  # written in a way that only Python itself understands
            return _source(module).entry_value(variable, attribute)
    return getattr(getattr(discovery.load(package, name), variable), attribute)


def declares(package: ModuleType, name: str, method: str) -> bool:
    """Whether the class of an entry has a method, such as `generate` of a data set."""
    try:
        return bool(_source(f"{package.__name__}.{name}").entry_value(_variable(package), method))
    except (LookupError, AttributeError):
        return False


def value_of(module: str, name: str, *, imported: bool = False) -> Any:
    """A module's value, from the module itself where it is imported already or must be."""
    if imported:
        return getattr(importlib.import_module(module), name)
    if hasattr(sys.modules.get(module), name):
        return getattr(sys.modules[module], name)
    return _source(module)[name]


def settings_of(config_type: type[Any]) -> list[Setting]:
    """The settings of a config class with what they mean: the comment beside a field, or a limit's reason."""
    meanings: dict[str, str] = {}
    for parent in reversed(config_type.__mro__):
        if dataclasses.is_dataclass(parent):
            meanings |= _source(parent.__module__).comments(parent.__name__)
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


def _variable(package: ModuleType) -> str:
    return package.__name__.rsplit(".", 1)[-1].removesuffix("s").upper()  # methods -> METHOD


@functools.cache
def _source(module: str) -> "_Source":
    return _Source(module)


class _Source(dict[str, Any]):
    """The top level of a module as the namespace of its code: a name's statement is run when something looks the name up."""

    def __init__(self, module: str) -> None:
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            raise LookupError(module)
        super().__init__(__name__=module)
        self._text = Path(spec.origin).read_text()
        self._nodes = {name: node for node in ast.parse(self._text).body for name in _defined(node)}

    def __missing__(self, name: str) -> Any:
        node = self._nodes[name]
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in FIRST_PARTY:
            self[name] = _imported(node, name)
        else:
            for part in _class_level(node):  # a class's body does not look names up in the namespace's own way, a function's does
                if isinstance(part, ast.Name) and part.id in self._nodes:
                    self.setdefault(part.id, self[part.id])
            exec(compile(ast.Module([_plain(node)], []), "<settings>", "exec"), self)  # noqa: S102 (our own source)
        return self[name]

    def entry_value(self, variable: str, attribute: str) -> Any:
        """An attribute of `variable = Class(...)`: the keyword of that name, or the class's own; True for a method."""
        made: Any = self._nodes[variable]
        given = next((keyword.value for keyword in made.value.keywords if keyword.arg == attribute), None)
        return self._evaluate(given) if given else self.attribute(made.value.func.id, attribute)

    def comments(self, name: str) -> dict[str, str]:
        """Field -> the comment at its end, or above it."""
        lines, found = self._text.splitlines(), dict[str, str]()
        for field in getattr(self._nodes.get(name), "body", []):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                end = lines[(field.end_lineno or 1) - 1].encode()[field.end_col_offset or 0 :].decode()
                above = lines[field.lineno - 2].strip()
                comment = end.partition("#")[2] or (above[1:] if above.startswith("#") else "")
                found |= {field.target.id: comment.strip()} if comment else {}
        return found

    def attribute(self, name: str, attribute: str) -> Any:
        """A class attribute, its own or inherited; True for a method."""
        node: Any = self._nodes[name]
        if isinstance(node, ast.ImportFrom):
            return _source(str(node.module)).attribute(_original(node, name), attribute)
        for member in node.body:
            if isinstance(member, ast.FunctionDef) and member.name == attribute:
                return True
            if isinstance(member, (ast.Assign, ast.AnnAssign)) and attribute in _defined(member) and member.value:
                return self._evaluate(member.value)
        for base in node.bases:
            parent: Any = base.value if isinstance(base, ast.Subscript) else base
            with contextlib.suppress(LookupError, AttributeError):
                return self.attribute(parent.id, attribute)
        raise LookupError(attribute)

    def _evaluate(self, expression: ast.expr) -> Any:
        return eval(compile(ast.Expression(expression), "<settings>", "eval"), self)  # noqa: S307 (our own source)


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name.split(".")[0] for alias in node.names]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]


def _class_level(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a class that run when it is defined."""
    for part in ast.iter_child_nodes(node) if isinstance(node, ast.ClassDef) else ():
        if not isinstance(part, ast.FunctionDef):
            yield from ast.walk(part)


def _plain(node: ast.stmt) -> ast.stmt:
    """Functions without annotations, which would pull in whatever types they name."""
    for part in ast.walk(node):
        if isinstance(part, ast.FunctionDef):
            part.returns = None
        elif isinstance(part, ast.arg):
            part.annotation = None
    return node


def _original(node: ast.ImportFrom, name: str) -> str:
    return next(alias.name for alias in node.names if (alias.asname or alias.name) == name)


def _imported(node: ast.ImportFrom, name: str) -> Any:
    module, original = str(node.module), _original(node, name)
    try:
        return value_of(module, original)
    except LookupError:
        return importlib.import_module(f"{module}.{original}")
