"""The commands `lake retrain` and `lake models ...`: checking for drift, training candidates, moving the champion."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from flows.cli.console import stop_at
from flows.cli.lake_run import PLACES, PRINTED, RANGE, Dataset, Method, Source, Target, plain
from flows.cli.options import PARAMS, AsJson, Params, read_config, taking
from pass_core.errors import EXIT_FAILED_AUDIT

if TYPE_CHECKING:
    from tasks.production.model_versions import ModelVersions
    from tasks.production.options import RetrainOptions

models_app = typer.Typer(no_args_is_help=True, help="List model versions; add, promote or roll back one.")
Folder = Annotated[Path, typer.Argument(help="Folder of model versions.", show_default=False)]
Version = Annotated[int, typer.Argument(help="Number of the version.", show_default=False)]
Reason = Annotated[str, typer.Option("--reason", help="Why; kept with the decision.", metavar="TEXT", show_default=False)]
To = Annotated[int | None, typer.Option("--to", help="Version. Default: the champion before.", metavar="VERSION")]
Versions = Annotated[Path, typer.Option("--models", help="Folder of model versions.", metavar="DIR", show_default=False)]
Labelled = Annotated[
    str | None, typer.Option("--labelled", help="Fresh labelled sample. Default: the section's source.", metavar="PLACE")
]
Latest = Annotated[int, typer.Option("--latest", help="Partitions to check where none is new.", metavar="N", min=1)]
Force = Annotated[str | None, typer.Option("--force", help="Reason to train without drift.", metavar="TEXT")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only check for drift; code 3 if a candidate is due.")]
OWN = {name: option for name, option in PLACES.items() if name != "models"}


@taking(RANGE, OWN, PRINTED)
def retrain(
    source: Source,
    target: Target,
    dataset: Dataset,
    *,
    models: Versions,
    labelled: Labelled = None,
    latest: Latest = 7,
    force: Force = None,
    dry_run: DryRun = False,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Check new records for drift; train and judge a candidate."""
    from tasks.production.options import RetrainOptions

    own = {"models": str(models), "labelled": labelled, "latest": latest, "force": force, "dry_run": dry_run}
    options = RetrainOptions(source=source, target=target, dataset=dataset, **plain(given) | own)
    _check(options)
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "WARNING")
    from flows.prefect_setup import run_shown
    from flows.retrain import retrain as flow
    from tasks.running.progress import configure_logging, reporter

    configure_logging(quiet)
    with reporter(quiet) as progress:
        found: dict[str, Any] = run_shown(flow, progress, options=options)
    typer.echo(json.dumps(found) if as_json else "\n".join(_lines(found, options)))
    if found["decision"] in ("HOLD", "REJECT") or (dry_run and found["due"]):
        raise typer.Exit(EXIT_FAILED_AUDIT)


def _check(options: "RetrainOptions") -> None:
    """Stops with all problems of the training that can be found before it."""
    from tasks.preflight import check_run
    from tasks.production.options import absolute

    sample = [f"dataset.{options.dataset}.source={absolute(options.labelled)}"] if options.labelled else []
    steps = ("ingest", "extract", "sample_pool") if sample else ("extract",)
    settings = [*options.settings, *sample]
    stop_at(check_run(Path(options.params), settings, datasets=[options.dataset], methods=[options.method], steps=steps))


def _lines(found: dict[str, Any], options: "RetrainOptions") -> list[str]:
    """What was found and decided, for people."""
    lines = [found["drift"]] if found["drift"] else []
    lines += [f"  {reason}" for reason in found["due"]]
    if found["decision"]:
        lines += [f"{found['decision']}: version {found['version']}", *(f"  {reason}" for reason in found["reasons"])]
        lines.append(f"champion: {_number(found['champion'])} in {options.models}")
    elif found["due"]:
        lines.append("A candidate is due: run the same command without --dry-run.")
    else:
        lines.append(f"Nothing to do; champion: {_number(found['champion'])} in {options.models}")
    return lines


@models_app.command("list")
def list_models(folder: Folder, as_json: AsJson = False) -> None:
    """List versions with the decisions about them."""
    import dataclasses

    versions = _open(folder)
    champion, decisions = versions.champion(), versions.decisions()
    if as_json:
        entries = [dataclasses.asdict(one) for one in decisions]
        typer.echo(json.dumps({"champion": champion, "versions": versions.versions(), "decisions": entries}))
        return
    for number in reversed(versions.versions()):
        found = [f"{one.time} {one.decision}: {one.reasons[0]}" for one in decisions if one.version == number]
        typer.echo(f"version {number}{'  champion' * (number == champion)}")
        for line in found or ["not finished"]:
            typer.echo(f"  {line}")
    typer.echo(f"champion: {_number(champion)}; protect with --models {folder / 'champion'}")


@models_app.command()
def add(
    folder: Folder,
    root: Annotated[Path, typer.Argument(help="Root of a run that trained and audited.", show_default=False)],
    dataset: Dataset,
    method: Method = "pass_substitution",
    params: Params = PARAMS,
) -> None:
    """Add a trained root; the first one that passed is the champion."""
    from tasks.running.step_io import RunKey

    versions, key = _open(folder), RunKey(dataset, method)
    with versions.lock():
        number = versions.add(root, key)
    typer.echo(f"{root} is version {number}.")
    if versions.champion() is None:
        _move(versions, number, "PROMOTE", "the first version", params)


@models_app.command()
def promote(folder: Folder, version: Version, reason: Reason, params: Params = PARAMS) -> None:
    """Make a version the champion, such as one that was held."""
    _move(_open(folder), version, "PROMOTE", reason, params)


@models_app.command()
def rollback(folder: Folder, reason: Reason, to: To = None, params: Params = PARAMS) -> None:
    """Make an earlier version the champion again."""
    versions = _open(folder)
    _move(versions, versions.before_champion() if to is None else to, "ROLLBACK", reason, params)


def _open(folder: Path) -> "ModelVersions":
    from tasks.production.model_versions import ModelVersions

    return ModelVersions(folder)


def _move(versions: "ModelVersions", version: int, decision: Literal["PROMOTE", "ROLLBACK"], reason: str, params: Path) -> None:
    """Moves alias and link to a version whose audit passed."""
    from tasks.production.notify import Notice, notify
    from tasks.production.troubles import Trouble

    key, config = versions.key_of(version), read_config(params, None)
    with versions.lock():
        decided = versions.decided(version, decision, (reason,), key)
        versions.settle(decided, config.tracking, params.resolve().parent, {}, {})
    done = f"model version {version} is the champion now (before: {_number(decided.champion)}), by hand"
    look = f"pass-pipeline lake models list {versions.folder}"
    notify(Notice(key.dataset, str(versions.folder), Trouble("promotion", done, look)), config.notify)
    typer.echo(f"Version {version} is the champion of {versions.folder}; before: {_number(decided.champion)}.")
    if decided.champion not in (None, version):
        typer.echo("The next `lake protect` draws published records again: give it --redraw 'the reason'.")


def _number(version: int | None) -> str:
    return "none" if version is None else f"version {version}"
