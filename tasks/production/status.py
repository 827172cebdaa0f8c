"""The state of a protected lake, for people and monitors: made from its manifest, receipts and private state alone.

Nothing here loads torch, Prefect or MLflow: a check takes a second, and works when all of them are down.
"""

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pass_core.errors import DataError, PassError, TransientError
from tasks.production.binding import version_times
from tasks.production.erased import Erasures
from tasks.production.history import describe_version, open_target
from tasks.production.manifest import RECEIPT, Manifest
from tasks.production.options import absolute, state_of
from tasks.production.quarantine import read_quarantine
from tasks.production.run_log import RunRecord, read_runs
from tasks.production.troubles import QUARANTINED, Trouble, public_place, status_command
from tasks.production.waiting import read_waiting
from tasks.production.withdrawn import NotedWithdrawal, noted_withdrawals, still_shown
from tasks.production.writer_lock import read_lease


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetStatus:
    """What is known of one target; times are UTC."""

    target: str
    dataset: str | None = None
    live: Mapping[str, Any] | None = None  # the version that readers see, as `lake versions` lists it
    age_hours: float | None = None  # of the live version
    stale_after_hours: float = 0.0
    audit: Mapping[str, Any] | None = None  # that the live version was published on
    draws: int | None = None  # of the record that was drawn most often, as the ledger counted
    withdrawn_shown: int = 0  # partitions that show a donor who has withdrawn
    quarantined: int = 0  # records
    waiting: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # partitions that wait, with rows and first day
    quarantined_partitions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # with message and first day
    writer: str | None = None
    staged: int = 0  # partitions that an unfinished run has staged
    last_run: RunRecord | None = None
    next_run: str | None = None  # from a Prefect server, where one is known
    detail: str = ""  # an error's own text, for the terminal
    troubles: tuple[Trouble, ...] = field(default=())


def check_target(place: str, state: str | None, longest: datetime.timedelta, now: datetime.datetime) -> TargetStatus:
    """The status of one target; what cannot be read is a trouble, too."""
    folder = state_of(place, state)
    known: dict[str, Any] = {"target": public_place(absolute(place)), "stale_after_hours": longest.total_seconds() / 3600}
    look = status_command(place, state)
    try:
        manifest = open_target(place, state).current()
        return _found(manifest, folder, known, longest, now)
    except (TransientError, OSError) as error:
        trouble = Trouble("unreachable", "the target or its private state cannot be read now", look)
        return TargetStatus(**known, troubles=(trouble,), detail=_one_line(error))
    except Exception as error:  # noqa: BLE001 (libraries of table formats raise errors of their own for damage)
        trouble = Trouble("damaged", "the target or its private state is damaged or is no protected lake; restore it", look)
        return TargetStatus(**known, troubles=(trouble,), detail=_one_line(error))


def _found(
    manifest: Manifest | None, state: Path, known: dict[str, Any], longest: datetime.timedelta, now: datetime.datetime
) -> TargetStatus:
    if manifest is not None and not state.is_dir():
        raise DataError(
            f"{state}: expected the target's private folder (ledger, receipts), found none; restore it or give --state"
        )
    runs = read_runs(state)
    alive = [run for run in runs if run.ended is None and run.is_running(state)]
    # The last to end, not to start: a run that was rejected while another one was writing says nothing about that one.
    over = [run for run in reversed(runs) if run not in alive]  # of several in one second the one that started last counts
    last = max(over, key=lambda run: run.ended or run.started, default=None)
    known |= {"writer": read_lease(state) or (alive[0].writer if alive else None), "last_run": last}
    known["staged"] = len(list(state.glob(f"staging/*/{RECEIPT}")))
    if manifest is None:
        command = last.command if last else f"pass-pipeline lake protect SOURCE {known['target']} --dataset NAME"
        never = Trouble("never", "nothing was ever published", command)
        return TargetStatus(**known, troubles=(*_last_run(last, None), never))
    receipts = list(manifest.partitions.values())
    published = version_times(state).get(manifest.version)
    withdrawals = noted_withdrawals(state)
    shown = still_shown(manifest, state, withdrawals)
    dataset = receipts[0].pins.dataset if receipts else None
    source = last.source if last else "SOURCE"
    protect_again = f"pass-pipeline lake protect {source} {known['target']} --dataset {dataset or 'NAME'}"
    command = last.command if last else protect_again
    poisoned, erasing = read_quarantine(state), Erasures(state).unfinished()
    age = None if (time := _time(published)) is None else now - time
    troubles = [
        *_withdrawn(len(shown), withdrawals, protect_again),
        *_erasing(len(erasing), command),
        *_audit(manifest, known["target"]),
        *_last_run(last, published),
        *([Trouble("quarantined", QUARANTINED, command)] if poisoned else []),
        *_late(age, [run for run in runs if run.outcome in ("published", "unchanged", "waiting")], longest, now, command=command),
    ]
    return TargetStatus(
        **known,
        dataset=dataset,
        live=describe_version(manifest, published, live=True),
        age_hours=None if age is None else round(age.total_seconds() / 3600, 2),
        audit=dict(manifest.audit),
        draws=max((one.draws for one in receipts), default=0),
        withdrawn_shown=len(shown),
        quarantined_partitions=poisoned,
        waiting=read_waiting(state),
        quarantined=sum(one.quarantined for one in receipts),
        troubles=tuple(troubles),
    )


def _withdrawn(shown: int, withdrawals: list[NotedWithdrawal], command: str) -> Iterator[Trouble]:
    if shown:
        again = f"{command} --models {withdrawals[-1].models} --redraw 'donors have withdrawn'"
        yield Trouble("withdrawn", f"{shown} published partition(s) show donors who have withdrawn", again)


def _erasing(unfinished: int, command: str) -> Iterator[Trouble]:
    if unfinished:
        yield Trouble("erasing", f"{unfinished} erasure(s) are not finished: readers may still see erased records", command)


def _audit(manifest: Manifest, target: str) -> Iterator[Trouble]:
    verdict = manifest.audit.get("verdict")
    if verdict != "pass" and not manifest.audit.get("details", {}).get("accepted_undecided"):
        reason = f"the live version was published on an audit whose verdict is {verdict}"
        yield Trouble("audit", reason, f"pass-pipeline lake rollback {target}")


def _last_run(last: RunRecord | None, published: str | None) -> Iterator[Trouble]:
    """What the last run that is over reported, or that it reported nothing; one that was killed after publishing is well."""
    if last is None:
        return
    if last.trouble and last.trouble.kind == "quarantined":
        return  # the private state knows which partitions are left
    if last.trouble:
        yield last.trouble
    elif last.ended is None and (published or "") < last.started:
        yield Trouble("failed", "the last run ended without a result: it was killed, or its machine stopped", last.command)


def _late(
    age: datetime.timedelta | None,
    succeeded: list[RunRecord],
    longest: datetime.timedelta,
    now: datetime.datetime,
    *,
    command: str,
) -> Iterator[Trouble]:
    ended = [time for run in succeeded if (time := _time(run.ended))]
    fresh = min([now - time for time in ended] + ([age] if age is not None else []), default=None)
    if fresh is None:
        yield Trouble("late", "nobody knows when this version was published: the times in the state folder are lost", command)
    elif fresh > longest:
        yield Trouble("late", f"no run has succeeded for {hours(fresh)}; at most {hours(longest)} allowed", command)
    elif age is None or age > longest:
        reason = f"runs succeed, but nothing was published for {hours(age) if age else 'an unknown time'}"
        yield Trouble("stale", f"{reason}; at most {hours(longest)} allowed", command.replace("lake protect", "lake plan", 1))


def hours(span: datetime.timedelta) -> str:
    """A span as people read it."""
    total = span.total_seconds() / 3600
    if total < 2:
        return f"{60 * total:.0f} min"
    return f"{total:.0f} h" if total < 72 else f"{total / 24:.0f} days"


def _time(text: str | None) -> datetime.datetime | None:
    try:
        found = datetime.datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return found if found.tzinfo else None


def _one_line(error: Exception) -> str:
    text = str(error) if isinstance(error, PassError) else type(error).__name__
    return text.splitlines()[0] if text else type(error).__name__
