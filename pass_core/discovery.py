"""One file per thing that can be added: find modules of a package by name, import only the one asked for."""

import importlib
import pkgutil
from types import ModuleType

from pass_core.errors import ConfigError

NOT_ENTRIES = frozenset({"base"})  # the interface every package of entries keeps beside them


def available(package: ModuleType) -> tuple[str, ...]:
    """Names of the entries in `package`, sorted; a file name is a registry name."""
    found = (module.name for module in pkgutil.iter_modules(package.__path__))
    return tuple(sorted(name for name in found if name not in NOT_ENTRIES and not name.startswith("_")))


def load(package: ModuleType, name: str) -> ModuleType:
    """The module `name` of `package`; an unknown name lists the known ones."""
    names = available(package)
    if name not in names:
        kind = package.__name__.rsplit(".", 1)[-1]
        raise ConfigError(f"unknown name {name!r} in {kind}: expected one of {', '.join(names)}")
    return importlib.import_module(f"{package.__name__}.{name}")
