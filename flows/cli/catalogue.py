"""The commands that list what params.yaml can name: datasets (and `datasets add`), extractors, methods, attacks."""

import dataclasses
import importlib
from typing import Annotated, Any

import typer

from flows.cli.console import out, show, show_json
from flows.cli.options import PARAMS, AsJson, Params, complete_dataset

datasets_app = typer.Typer(invoke_without_command=True, help="List data sets, or put raw data under DVC.")


@datasets_app.callback()
def datasets(context: typer.Context, as_json: AsJson = False) -> None:
    """List data sets and their settings, or add raw data to DVC."""
    if context.invoked_subcommand is None:
        _list("tasks.datasets", "DATASET", as_json)


@datasets_app.command("add")
def add_dataset(
    name: Annotated[str, typer.Argument(help="Data set: a section of params.yaml.", autocompletion=complete_dataset)],
    source: Annotated[str, typer.Argument(help="Folder with the published files, or a URL (s3://, gs://, azure://, ssh://).")],
    push: Annotated[bool, typer.Option("--push", help="Let `dvc push` copy the raw data; default: never.")] = False,
    params: Params = PARAMS,
) -> None:
    """Put raw data under DVC, in data/raw/NAME."""
    from flows.raw_data import add_raw_data
    from tasks.config import load_config
    from tasks.running.progress import configure_logging

    configure_logging()
    pointer = add_raw_data(params.resolve().parent, load_config(params), name, source, push)
    show(f"{pointer}: under DVC, {'pushed with the rest' if push else 'never pushed'}.")
    show(f"Next: git add {pointer}; add {name} to `datasets` in params.yaml; dvc repro")


def extractors(as_json: AsJson = False) -> None:
    """List feature extractors and their settings."""
    _list("tasks.extractors", "EXTRACTOR", as_json)


def methods(as_json: AsJson = False) -> None:
    """List protection methods and their settings."""
    _list("pass_core.methods", "METHOD", as_json)


def attacks(as_json: AsJson = False) -> None:
    """List the audit's attacks and their settings."""
    _list("pass_core.attacks", "ATTACK", as_json)


def _list(package: str, constant: str, as_json: bool) -> None:
    """Prints every entry of a package: its name, summary and settings."""
    from pass_core import discovery
    from tasks.registry import is_generated

    folder, entries = importlib.import_module(package), []
    for name in discovery.available(folder):
        entry = getattr(discovery.load(folder, name), constant)
        found: dict[str, Any] = {"name": name, "summary": entry.summary}
        if constant == "DATASET":
            names = entry.attribute_names
            found |= {"attributes": list(names) if names else None, "generated": is_generated(name)}
        elif constant == "EXTRACTOR":
            found["payloads"] = list(entry.payloads)
        entries.append(found | {"settings": _settings(entry.config_type)})
    if as_json:
        show_json(entries)
        return
    for entry in entries:
        out.print(f"[bold]{entry['name']}[/]  ", end="")
        show(entry["summary"])
        for setting in entry["settings"]:
            value = "required" if "default" not in setting else f"= {setting['default']}"
            show(f"    {setting['name']} {value}  ({setting['type']})")


def _settings(config_type: type[Any]) -> list[dict[str, Any]]:
    """Name, type and default of every setting; a setting without a default is required."""
    found = []
    for field in dataclasses.fields(config_type):
        setting = {"name": field.name, "type": field.type if isinstance(field.type, str) else _type_name(field.type)}
        if field.default is not dataclasses.MISSING:
            setting["default"] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            setting["default"] = field.default_factory()
        found.append(setting)
    return found


def _type_name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not hasattr(kind, "__args__") else str(kind).replace("typing.", "")
