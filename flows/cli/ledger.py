"""The commands `lake ledger ...`: look after the count of draws."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.options import PARAMS, AsJson, Options, Params, Settings, SettingsFile, overrides, read_config, taking

if TYPE_CHECKING:
    from tasks.production.draw_ledger import Ledger

ledger_app = typer.Typer(no_args_is_help=True, help="Verify, back up or restore the ledger of draws.")

Dataset = Annotated[str, typer.Option("--dataset", help="Section of params.yaml.", metavar="NAME", show_default=False)]
Backup = Annotated[Path, typer.Argument(help="Folder of the backup; private.", metavar="DIR", show_default=False)]
PLACE: Options = {"params": (Params, PARAMS), "settings_file": (SettingsFile, None), "settings": (Settings, None)}
PRINTED: Options = {"as_json": (AsJson, False)}


@ledger_app.command()
@taking(PLACE, PRINTED)
def verify(dataset: Dataset, **given: Any) -> None:
    """Read the whole ledger and check every digest."""
    from tasks.production import ledger_upkeep

    ledger = _ledger(dataset, given)
    _show(ledger.folder, ledger_upkeep.verify(ledger), "is whole", given)


@ledger_app.command()
@taking(PLACE, PRINTED)
def backup(to: Backup, dataset: Dataset, **given: Any) -> None:
    """Copy what a backup does not hold yet, and verify it."""
    from tasks.production import ledger_upkeep

    _show(to, ledger_upkeep.back_up(_ledger(dataset, given), to), "is a whole backup", given)


@ledger_app.command()
@taking(PLACE, PRINTED)
def restore(backup: Backup, dataset: Dataset, **given: Any) -> None:
    """Add what the ledger has lost and a backup holds."""
    from tasks.production import ledger_upkeep

    ledger = _ledger(dataset, given)
    _show(ledger.folder, ledger_upkeep.restore(ledger, backup), "is whole again", given)


@ledger_app.command()
@taking(PLACE, PRINTED)
def restart(
    dataset: Dataset,
    reason: Annotated[str, typer.Option("--reason", help="Why draws are no longer counted.", metavar="TEXT", show_default=False)],
    **given: Any,
) -> None:
    """Go on without draws that were lost, and record why."""
    from tasks.production import ledger_upkeep

    ledger = _ledger(dataset, given)
    _show(ledger.folder, ledger_upkeep.restart(ledger, reason), "goes on", given)


def _ledger(dataset: str, given: dict[str, Any]) -> "Ledger":
    from tasks.production.draw_ledger import Ledger
    from tasks.production.options import ledger_folder

    config = read_config(given["params"], overrides(given)).with_names((dataset,), ())
    return Ledger(ledger_folder(given["params"], config, dataset))


def _show(folder: Path, found: dict[str, Any], state: str, given: dict[str, Any]) -> None:
    text = f"{folder} {state}: {found['draws']} draws in {found['entries']} entries, {found['draws_at_most']} per record at most"
    text += f", {len(found['reasons'])} reason(s) to draw more or go on"
    typer.echo(json.dumps(found) if given["as_json"] else text)
