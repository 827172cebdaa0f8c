"""The commands `console ...`: a static site about protected lakes."""

import dataclasses
import datetime
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import PARAMS, Params
from flows.cli.status import StaleAfter, States, Targets, read_targets

console_app = typer.Typer(no_args_is_help=True, help="Write a static site about protected lakes.")

Models = Annotated[list[Path] | None, typer.Option("--models", help="Folder of models. Default: data.", metavar="DIR")]
Out = Annotated[Path, typer.Option("--out", help="Folder of the site; it is replaced as a whole.", metavar="DIR")]


@console_app.callback()
def console() -> None:
    """Commands of the console."""


@console_app.command("build")
def build(
    targets: Targets = None,
    *,
    state: States = None,
    models: Models = None,
    stale_after: StaleAfter = None,
    params: Params = PARAMS,
    out: Out = Path("console"),
) -> None:
    """Write an index of data sets and one page for each."""
    from flows.next_run import next_run
    from tasks.console.collect import by_dataset, collect_target
    from tasks.console.site import write_site
    from tasks.production.options import absolute
    from tasks.running.tracking import registered_models
    from tasks.sections.running import TrackingConfig

    places, folders, longest, config = read_targets(targets, state, stale_after, params)
    now, found = datetime.datetime.now(datetime.UTC), []
    for place, folder in zip(places, folders, strict=True):
        one = collect_target(place, folder, longest, now)
        found.append(dataclasses.replace(one, status=dataclasses.replace(one.status, next_run=next_run(absolute(place)))))
    known = registered_models(config.tracking if config else TrackingConfig(), params.resolve().parent)
    typer.echo(write_site(by_dataset(found, known, models or [Path("data")]), out.resolve(), now))
