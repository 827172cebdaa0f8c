"""The commands `config show` and `config explain`."""

import dataclasses
import importlib
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.console import stop_at
from flows.cli.options import PARAMS, AsJson, Params, Settings, SettingsFile
from pass_core.errors import ConfigError

if TYPE_CHECKING:
    from tasks.config_types import Setting

config_app = typer.Typer(no_args_is_help=True, help="Show or explain the configuration.")
# Sections whose parts are entries of a package.
NAMED = {
    "dataset": "tasks.datasets",
    "extractor": "tasks.extractors",
    "method": "pass_core.methods",
    "audit.attacks": "pass_core.attacks",
}


@config_app.command()
def show(
    section: Annotated[str, typer.Argument(help="Section, such as audit.thresholds. Default: all.")] = "",
    params: Params = PARAMS,
    settings_file: SettingsFile = None,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Print every value in effect and where it comes from."""
    from tasks.config import parse, parse_overrides, read_params
    from tasks.settings_file import read_settings

    from_file = parse_overrides(read_settings(settings_file)) if settings_file else {}
    overrides = parse_overrides(settings or [])
    given = read_params(params, from_file | overrides)
    config, problems = parse(given)
    stop_at(problems)
    sources = {"--set": overrides, str(settings_file): from_file}
    values: dict[str, dict[str, Any]] = {}
    for path, value in _leaves(config, ()):
        dotted = ".".join(path)
        if f"{dotted}.".startswith(f"{section}." if section else ""):
            values[dotted] = {"value": value, "origin": "default"}
            if _holds(given, path):
                origins = [name for name, paths in sources.items() if any(_meet(dotted, one) for one in paths)]
                values[dotted]["origin"] = next(iter(origins), "file")
    if not values:
        raise ConfigError(
            f"{section}: expected a section or setting, found none of that name; see `pass-pipeline config explain`"
        )
    if as_json:
        typer.echo(json.dumps(values, indent=2))
        return
    width = max(map(len, values))
    for dotted, found in values.items():
        typer.echo(f"{dotted:{width}}  {json.dumps(found['value'], ensure_ascii=False):24}  {found['origin']}")


@config_app.command()
def explain(
    path: Annotated[str, typer.Argument(help="Section or setting, such as audit.thresholds. Default: the sections.")] = "",
    as_json: AsJson = False,
) -> None:
    """Explain settings: type, allowed values, default and meaning."""
    settings = explained(path)
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(setting) for setting in settings], indent=2, default=str))
        return
    for setting in settings:
        default = "required" if setting.default == "required" else f"default {json.dumps(setting.default, default=str)}"
        typer.echo(f"{setting.name}: {setting.type}" + ("" if setting.type == "section" else f", {default}"))
        if setting.meaning:
            typer.echo(f"    {setting.meaning}")


def explained(path: str) -> "list[Setting]":
    """The settings below a dotted path, or the one that it names.

    Raises:
        ConfigError: there is no such section or setting.
    """
    from pass_core import discovery
    from tasks.config import Config, nearest
    from tasks.config_types import Setting, entry_value, settings_of, value_of

    kind: Any = Config
    parts, settings = path.split(".") if path else [], settings_of(Config)
    for depth, part in enumerate(parts):
        parent, here = ".".join(parts[:depth]), ".".join(parts[: depth + 1])
        known = {setting.name: setting for setting in settings}
        if parent == "dataset" and part not in known:
            part = "lake"  # noqa: PLW2901 (a section of one's own name)
        if part not in known:
            raise ConfigError(f"{here}: unknown{nearest(part, known)}: expected one of {', '.join(known)}")
        if here in NAMED:
            package = importlib.import_module(NAMED[here])
            names = discovery.available(package)
            settings = [Setting(name, "section", None, entry_value(package, name, "summary")) for name in names]
        elif parent not in NAMED and known[part].type != "section":
            settings = [known[part]]
        else:
            if parent in NAMED:
                kind = entry_value(importlib.import_module(NAMED[parent]), part, "config_type")
            else:
                train = part == "train"
                kind = value_of("pass_core.training.loop", "TrainConfig") if train else kind.__dataclass_fields__[part].type
            settings = settings_of(kind)
    return settings


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    value = value.value if hasattr(value, "reason") else value  # a limit
    if dataclasses.is_dataclass(value):
        parts = {part.name: getattr(value, part.name) for part in dataclasses.fields(value)}
    elif isinstance(value, Mapping) and value:
        parts = dict(value)
    else:
        yield path, list(value) if isinstance(value, tuple) else value
        return
    for name, part in parts.items():
        yield from _leaves(part, (*path, name))


def _meet(one: str, other: str) -> bool:
    """Whether two dotted paths name the same value, or one of them a part of the other."""
    return f"{one}.".startswith(f"{other}.") or other.startswith(f"{one}.")


def _holds(section: Any, path: tuple[str, ...]) -> bool:
    """Whether raw parameters set the value at a path, or a value that contains it."""
    for name in path:
        if not isinstance(section, Mapping):
            return section is not None
        if name not in section:
            return False
        section = section[name]
    return True
