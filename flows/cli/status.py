"""The command `lake status`: for people, and for monitors by its exit code. Imports nothing heavy."""

import dataclasses
import datetime
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.options import PARAMS, AsJson, Params
from pass_core.errors import ConfigError

if TYPE_CHECKING:
    from tasks.config import Config
    from tasks.production.status import TargetStatus

Targets = Annotated[list[str] | None, typer.Argument(help="Protected lakes. Default: schedule.target.", show_default=False)]
States = Annotated[list[str] | None, typer.Option("--state", help="Private folder, one per TARGET, in order.", metavar="DIR")]
StaleAfter = Annotated[
    str | None, typer.Option("--stale-after", help="Such as 26h. Default: schedule.stale_after.", metavar="SPAN")
]
Notify = Annotated[bool, typer.Option("--notify", help="Report troubles to PASS_WEBHOOK_URL, once a day each.")]


def status(
    targets: Targets = None,
    *,
    state: States = None,
    stale_after: StaleAfter = None,
    notify: Notify = False,
    params: Params = PARAMS,
    as_json: AsJson = False,
) -> None:
    """Check protected lakes; the exit code names the worst trouble."""
    from flows.next_run import next_run
    from tasks.production.notify import ADDRESS
    from tasks.production.options import absolute
    from tasks.production.status import check_target
    from tasks.production.troubles import exit_code

    if notify and ADDRESS not in os.environ:
        raise ConfigError(f"--notify: expected the address of a webhook in {ADDRESS}, found none; set it, or leave --notify out")
    places, folders, longest, config = read_targets(targets, state, stale_after, params)
    now = datetime.datetime.now(datetime.UTC)
    found = []
    for place, folder in zip(places, folders, strict=True):
        one = check_target(place, folder, longest, now)
        found.append(dataclasses.replace(one, next_run=next_run(absolute(place))))
        if notify:
            _report(one, place, folder, config)
    code = exit_code([trouble for one in found for trouble in one.troubles])
    if as_json:
        typer.echo(json.dumps({"exit_code": code, "targets": [dataclasses.asdict(one) for one in found]}))
    else:
        typer.echo("\n\n".join(map(status_text, found)))
    raise typer.Exit(code)


def read_targets(
    targets: list[str] | None, state: list[str] | None, stale_after: str | None, params: Path
) -> "tuple[list[str], list[str | None], datetime.timedelta, Config | None]":
    """The targets, their private folders, the longest age allowed, and the parameters where there are any."""
    config = read_if_there(params)
    schedule = config.schedule if config else None
    places = targets or ([schedule.target] if schedule and schedule.target else [])
    if not places:
        raise ConfigError("expected a TARGET, or schedule.target in params.yaml, found none; name a protected lake")
    if state and len(state) != len(places):
        raise ConfigError(f"--state: expected one for each of {len(places)} target(s), found {len(state)}; give all or none")
    folders: list[str | None] = [*state] if state else [None] * len(places)
    return places, folders, _longest(stale_after, config), config


def read_if_there(params: Path) -> "Config | None":
    """The parameters, without importing the parts that they configure; None where there is no default file."""
    from tasks.config import parse, read_params

    if params == PARAMS and not params.exists():
        return None
    config, problems = parse(read_params(params))
    if config is None or problems:
        raise ConfigError("; ".join(problems))
    return config


def _longest(given: str | None, config: "Config | None") -> datetime.timedelta:
    from tasks.sections.running import ScheduleConfig

    schedule = config.schedule if config else ScheduleConfig()
    return (dataclasses.replace(schedule, stale_after=given) if given else schedule).longest_age


def _report(one: "TargetStatus", place: str, state: str | None, config: "Config | None") -> None:
    from tasks.production.notify import Notice, notify_once
    from tasks.production.options import state_of
    from tasks.sections.running import NotifyConfig

    notices = [Notice(one.dataset, one.target, trouble) for trouble in one.troubles]
    notify_once(notices, state_of(place, state), config.notify if config else NotifyConfig())


def status_text(one: "TargetStatus") -> str:
    """A target's status in a few lines."""
    lines = [f"{one.dataset or 'data set unknown'}  {one.target}"]
    if one.live:
        age = "age unknown" if one.age_hours is None else f"{one.age_hours:.1f} h old"
        lines += [f"{version_text(one.live)}  {age} (at most {one.stale_after_hours:g} h)", *_audit_lines(one.audit or {})]
        lines.append(f"draws per record: at most {one.draws}; quarantined records: {one.quarantined}")
        lines.append(f"partitions that show withdrawn donors: {one.withdrawn_shown}")
    for name, entry in one.quarantined_partitions.items():
        lines.append(f"quarantined since {entry['since']}: {name}: {entry['message']}")
    for name, entry in one.waiting.items():
        found = f"{entry['rows']} row(s) would change, fewer than protect.min_change ({entry['least']})"
        lines.append(f"waiting since {entry['since']}: {name}: {found}")
    if run := one.last_run:
        lines.append(f"last run: {run.outcome or 'no result'}, {run.ended or run.started}")
    lines.append(f"next run: {one.next_run or 'unknown'}")
    lines.append(f"writer: {one.writer or 'none'}; partitions staged by an unfinished run: {one.staged}")
    for trouble in one.troubles:
        lines += [f"{trouble.kind.upper()}: {trouble.reason}", f"    next: {trouble.next}"]
    lines += [one.detail] * bool(one.detail) + ["no trouble"] * (not one.troubles)
    return "\n  ".join(lines)


def _audit_lines(audit: Mapping[str, Any]) -> list[str]:
    if not audit:
        return []
    lines = [f"audit: {audit['verdict']}, {audit['basis']}, {audit['records']} of {audit['of']} new records"]
    lines += [f"audit: {note}"] if (note := audit.get("details", {}).get("note")) else []
    if drift := drift_of(audit):
        figures = (f"{name} {one['value']:g} (at most {one['limit']:g})" for name, one in drift.items())
        lines.append(f"drift beyond chance: {', '.join(figures)}")
    return lines


def drift_of(audit: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """The audit's drift figures with their limits; empty where records carry labels."""
    checks = audit.get("details", {}).get("checks", {})
    return {
        name.removesuffix("_at_most").replace("_", " "): {"value": one["found"]["value"], "limit": one["limit"]}
        for name, one in checks.items()
        if name.endswith("_drift_at_most")
    }


def version_text(one: Mapping[str, Any]) -> str:
    """A version in one line."""
    models, keys = (" ".join(name[:12] for name in one[kind]) for kind in ("models", "keys"))
    notes = [f"repeats version {one['restores']}"] * (one["restores"] is not None) + ["live"] * one["live"]
    counts = f"{one['partitions']} partition(s), {one['rows']} rows"
    time = one["published"] or "time unknown"
    return "  ".join([f"version {one['version']}", time, counts, f"model {models}", f"key {keys}", *notes])
