"""The command `lake erase`."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.lake_run import (
    DECISIONS,
    LOCKING,
    PLACES,
    PRINTED,
    RUNNING,
    Dataset,
    Target,
    check,
    hooks_of,
    protect_options,
    run_flow,
)
from flows.cli.options import taking
from pass_core.errors import ConfigError, PassError

if TYPE_CHECKING:
    from tasks.production.erasure import Erased
    from tasks.production.options import ProtectOptions

Ids = list[str] | None
Records = Annotated[Ids, typer.Option("--record", help="Record id, or @FILE of ids.", metavar="ID", show_default=False)]
Persons = Annotated[Ids, typer.Option("--person", help="Person id, or @FILE of ids.", metavar="ID", show_default=False)]
Reason = Annotated[str, typer.Option("--reason", help="Why; kept privately.", metavar="TEXT", show_default=False)]
From = Annotated[str | None, typer.Option("--source", help="Lake. Default: that of the last run.", metavar="PLACE")]
DROP: dict[str, tuple[Any, Any]] = {"drop_missing": DECISIONS["drop_missing"]}


@taking(PLACES, RUNNING, DROP, LOCKING, PRINTED)
def erase(
    target: Target,
    dataset: Dataset,
    reason: Reason,
    *,
    record: Records = None,
    person: Persons = None,
    source: From = None,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Erase records or persons, and delete all older versions."""
    from tasks.production.erased import Erasures
    from tasks.production.erasure import erase as erase_records
    from tasks.production.options import state_of

    state = state_of(target, given["state"])
    place = source or _last_source(state, target)
    options = protect_options(place, target, dataset, given)
    check(options)
    ids = _ids(record), _ids(person)
    try:
        with hooks_of(options) as hooks:
            done = erase_records(options, *ids, reason, run=partial(run_flow, quiet=quiet), hooks=hooks)
    except PassError:
        if Erasures(state).unfinished():
            typer.echo("The erasure is noted, but not finished: the next `lake protect` that succeeds finishes it.", err=True)
        raise
    if as_json:
        counts = {name: getattr(done.receipt, name) for name in ("number", "version", "rows", "evidence", "partitions")}
        counts |= {name: getattr(done, name) for name in ("unread", "trained", "donors", "cached")}
        typer.echo(json.dumps(counts | {"waiting": len(done.receipt.waiting)}))
        return
    for line in (*_done(done, options), "", "Not cleaned by this command:", *_left(done, options)):
        typer.echo(line)


def _ids(given: Ids) -> list[str]:
    """Ids as given, and those in files: one per line."""
    found: list[str] = []
    for one in given or ():
        if not one.startswith("@"):
            found.append(one)
            continue
        path = Path(one[1:])
        if not path.is_file():
            raise ConfigError(f"{one}: expected a file with one id per line, found none; correct the path")
        found += [line for line in path.read_text().splitlines() if line.strip()]
    return list(dict.fromkeys(found))


def _last_source(state: Path, target: str) -> str:
    from tasks.production.run_log import read_runs

    runs = [run for run in read_runs(state) if run.outcome in ("published", "unchanged")]
    if not runs:
        raise ConfigError(f"{target}: expected the source of an earlier run, found none in {state}; give --source")
    return runs[-1].source


def _done(done: "Erased", options: "ProtectOptions") -> list[str]:
    one = done.receipt
    given = {"record": one.records, "person": one.persons}
    ids = " and ".join(f"{len(found)} {kind} id(s)" for kind, found in given.items() if found)
    lines = [f"{ids} erased from {options.target}: version {one.version} is live, all older versions are deleted."]
    if one.finished is None:
        lines = [f"{ids} not yet erased from {options.target}: {len(one.waiting)} partition(s) may still show them."]
        lines.append("Next: correct the source, then run `lake protect`, which finishes the erasure.")
    lines.append(f"{one.partitions} partition(s) could show them; {one.evidence} audited record(s) of the state folder deleted.")
    if done.few:
        lines.append(f"Published although fewer than protect.min_change ({done.few}) rows are gone: an erasure does not wait.")
        lines.append("Whoever kept an older version can compare it with this one, and see which rows are gone.")
    if done.unread:
        lines.append(f"{done.unread} partition(s) of the source could not be read, and may hold them.")
    if done.cached:
        lines.append(f"Caches of training below {options.models}/.cache were deleted; they are computed again when needed.")
    lines.append(f"Receipt {one.number} is kept in the state folder. Later runs leave these ids out.")
    return lines


def _left(done: "Erased", options: "ProtectOptions") -> list[str]:
    """What holds the records elsewhere, and the next command for each."""
    data, rows = options.dataset, done.receipt.rows
    lines = [f"- source: {rows} record(s) in {options.source}; delete them there. `lake protect` accepts the changed files."]
    if done.donors:
        places = f"--dataset {data} --models {options.models} --to DIR --target {options.target}"
        command = f"pass-pipeline lake donors withdraw IDS{' --person' * bool(done.receipt.persons)} {places}"
        lines.append(f"- pool: {done.donors} of them are donors, whose records are published: {command}")
    if done.trained:
        command = f"pass-pipeline run --dataset {data} --root DIR"
        lines.append(f"- model: {done.trained} of them are in its training data; delete them there, then train: {command}")
    lines += [
        "- DVC, if the data are versioned: `dvc add` the data without them, then `dvc gc --workspace --cloud`",
        "- MLflow, if it holds models trained on them: delete their runs, then `mlflow gc`",
        "- other targets of this data set: `pass-pipeline lake erase` for each of them",
        "- backups of target and state folder, versions kept by a bucket: let them expire; after restoring one, erase again",
        "- draw ledger: keeps keyed hashes, and no id",
    ]
    return lines
