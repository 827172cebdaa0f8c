"""The commands that list what params.yaml can name: datasets (and `datasets add`), extractors, methods, attacks."""

import dataclasses
import importlib
from typing import Annotated, Any

import typer

from flows.cli.console import out, show, show_json
from flows.cli.options import PARAMS, AsJson, Params, complete_dataset, read_config

datasets_app = typer.Typer(invoke_without_command=True, help="List data sets, or put raw data under DVC.")


@datasets_app.callback()
def datasets(context: typer.Context, as_json: AsJson = False) -> None:
    """List data sets and their settings, or add raw data to DVC."""
    if context.invoked_subcommand is None:
        _list("tasks.datasets", as_json)


@datasets_app.command("add")
def add_dataset(
    name: Annotated[str, typer.Argument(help="Data set: a section of params.yaml.", autocompletion=complete_dataset)],
    source: Annotated[str, typer.Argument(help="Folder with the published files, or a URL (s3://, gs://, azure://, ssh://).")],
    push: Annotated[bool, typer.Option("--push", help="Let `dvc push` copy the raw data; default: never.")] = False,
    params: Params = PARAMS,
) -> None:
    """Put raw data under DVC, in data/raw/NAME."""
    from flows.raw_data import add_raw_data
    from tasks.running.progress import configure_logging

    configure_logging()
    pointer = add_raw_data(params.resolve().parent, read_config(params, None), name, source, push)
    show(f"{pointer}: under DVC, {'pushed with the rest' if push else 'never pushed'}.")
    show(f"Next: git add {pointer}; add {name} to `datasets` in params.yaml; dvc repro")


def extractors(as_json: AsJson = False) -> None:
    """List feature extractors and their settings."""
    _list("tasks.extractors", as_json)


def methods(as_json: AsJson = False) -> None:
    """List protection methods and their settings."""
    _list("pass_core.methods", as_json)


def attacks(as_json: AsJson = False) -> None:
    """List the audit's attacks and their settings."""
    _list("pass_core.attacks", as_json)


def _list(package: str, as_json: bool) -> None:
    """Prints every entry of a package: its name, summary and settings. The source is read, so that torch is not imported."""
    from pass_core import discovery
    from tasks.config_types import REQUIRED, entry_value, settings_of

    folder = importlib.import_module(package)
    entries: dict[str, dict[str, Any]] = {}
    for name in discovery.available(folder):
        settings = settings_of(entry_value(folder, name, "config_type"))
        entries[name] = {"name": name, "summary": entry_value(folder, name, "summary"), "settings": settings}
    if as_json:
        for name, entry in entries.items():
            entry["settings"] = [dataclasses.asdict(setting) for setting in entry["settings"]]
            if package == "tasks.extractors":
                entry["payloads"] = entry_value(folder, name, "payloads")
            elif package == "tasks.datasets":
                from tasks.registry import is_generated

                entry |= {"attributes": entry_value(folder, name, "attribute_names"), "generated": is_generated(name)}
        show_json(list(entries.values()))
        return
    for entry in entries.values():
        out.print(f"[bold]{entry['name']}[/]", end="  ")
        show(entry["summary"])
        for setting in entry["settings"]:
            default = "required" if setting.default is REQUIRED else f"default {setting.default}"
            show(f"    {setting.name} ({setting.type}, {default}){': ' + setting.meaning if setting.meaning else ''}")
