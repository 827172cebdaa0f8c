"""One file per thing that can be added: find modules of a package by name, import only the one asked for."""

import importlib
import pkgutil
from types import ModuleType

from pass_core.errors import ConfigError

NOT_ENTRIES = frozenset({"base", "loading"})  # what a package of entries keeps beside them


def available(package: ModuleType) -> tuple[str, ...]:
    """Names of the entries in `package`, sorted; a file name is a registry name."""
    found = pkgutil.iter_modules(package.__path__)  # sub-folders hold what several entries share
    return tuple(sorted(m.name for m in found if not m.ispkg and m.name not in NOT_ENTRIES and not m.name.startswith("_")))


def load(package: ModuleType, name: str) -> ModuleType:
    """The module `name` of `package`; an unknown name lists the known ones."""
    names = available(package)
    if name not in names:
        kind = package.__name__.rsplit(".", 1)[-1]
        raise ConfigError(f"unknown name {name!r} in {kind}: expected one of {', '.join(names)}")
    return importlib.import_module(f"{package.__name__}.{name}")
