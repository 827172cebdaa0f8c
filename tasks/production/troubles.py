"""What can be wrong with a protected lake: one kind each, with its exit code, its reason and the next command.

A reason is a fixed sentence with counts: it may be sent to other systems, so it never repeats an error's own text, which names
files and partitions.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from pass_core.errors import (
    AuditFailed,
    ConfigError,
    DataError,
    DrawsRefused,
    DriftFound,
    PartitionsQuarantined,
    SchemaPaused,
    TransientError,
)
from tasks.production.options import LakeOptions, ProtectOptions, absolute

Kind = Literal[
    "damaged",
    "unreachable",
    "withdrawn",
    "erasing",
    "draws",
    "audit",
    "drift",
    "failed",
    "paused",
    "quarantined",
    "never",
    "late",
    "stale",
    "promotion",
]
# The most urgent first: a check of several targets ends with the first code of this table that applies. A promotion is reported
# and is no trouble of a target: it has no code.
EXIT_CODES: dict[Kind, int] = {
    "damaged": 10,  # the manifest or the private state cannot be read
    "unreachable": 11,  # the store does not answer
    "withdrawn": 12,  # readers can still see a donor who has withdrawn
    "erasing": 21,  # readers may still see erased records
    "draws": 13,  # the last run was refused by the ledger
    "audit": 14,  # the last run's audit did not pass, or the live version's did not
    "drift": 15,  # the last run's records differ from those that were audited
    "failed": 16,  # the last run ended with another error, or without a result
    "paused": 22,  # the source's columns have changed, and protect.on_schema_change is pause
    "quarantined": 20,  # some partitions could not be protected; the others are published
    "never": 17,  # nothing was ever published
    "late": 18,  # no run has succeeded for longer than schedule.stale_after
    "stale": 19,  # runs succeed, and found nothing to publish for longer than schedule.stale_after
}
QUARANTINED = "some partitions could not be protected and are quarantined; the others are published"


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that is wrong, and what to do."""

    kind: Kind
    reason: str
    next: str  # a command


def exit_code(troubles: Sequence[Trouble]) -> int:
    """0 where there is no trouble, else the code of the most urgent one."""
    kinds = {trouble.kind for trouble in troubles}
    return next((code for kind, code in EXIT_CODES.items() if kind in kinds), 0)


def kind_of(error: BaseException) -> Kind:
    """The kind of trouble that ended a run."""
    kinds: tuple[tuple[type[BaseException], Kind], ...] = (
        (DrawsRefused, "draws"),
        (DriftFound, "drift"),
        (AuditFailed, "audit"),
        (PartitionsQuarantined, "quarantined"),
        (SchemaPaused, "paused"),
    )
    return next((kind for known, kind in kinds if isinstance(error, known)), "failed")


def trouble_of(error: BaseException, options: ProtectOptions) -> Trouble:
    """What a run's error means for the person on call."""
    kind, again = kind_of(error), protect_command(options)
    if kind == "draws":
        reason = "the ledger refused the run: records would be drawn more often than protect.draws_at_most allows"
        return Trouble(kind, f"{reason}; nothing was published", f"{again} --redraw 'the reason'")
    if kind in ("audit", "drift"):
        found = "the audit did not pass" if kind == "audit" else "the new records differ from those that were audited (drift)"
        return Trouble(kind, f"{found}; nothing was published", status_command(options.target, options.state))
    if kind == "quarantined":
        return Trouble(kind, QUARANTINED, again)
    if kind == "paused":
        reason = "the source's columns have changed, and protect.on_schema_change is pause; nothing was published"
        return Trouble(kind, reason, again.replace("lake protect", "lake plan", 1))
    return Trouble(kind, f"the run failed: {reason_of(error)}; its log says more", again)


def audit_trouble(error: BaseException, again: str) -> Trouble:
    """What the error of a scheduled audit means; `again` is the command that repeats it."""
    if isinstance(error, AuditFailed):
        return Trouble("audit", "the scheduled audit of the model did not pass; its report says why", again)
    return Trouble("failed", f"the scheduled audit failed: {reason_of(error)}; its log says more", again)


def reason_of(error: BaseException) -> str:
    """What went wrong, without the error's own text."""
    if isinstance(error, TransientError):
        return "a temporary failure (disk, network or another writer)"
    if isinstance(error, ConfigError):
        return "the parameters, the key or an option were rejected"
    if isinstance(error, DataError):
        return "the source or another file is not what was expected"
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        return "it was interrupted"
    return f"an unexpected error ({type(error).__name__})"


def protect_command(options: ProtectOptions) -> str:
    """The command that repeats a run."""
    return lake_command("backfill" if options.backfill else "protect", options)


def lake_command(name: str, options: LakeOptions) -> str:
    """A command over a lake, without overrides, key and range: those may hold what nobody else should see."""
    options = options.absolute()
    given = {"--dataset": options.dataset, "--method": options.method, "--models": options.models, "--params": options.params}
    given |= {"--state": options.state} if options.state else {}
    given |= {"--from": "FIRST", "--to": "LAST"} if options.is_range else {}
    words = ["pass-pipeline", "lake", name, public_place(options.source), public_place(options.target)]
    return shlex.join([*words, *(word for pair in given.items() for word in pair)])


def status_command(target: str, state: str | None) -> str:
    """The command that shows a target's state in full."""
    words = ["pass-pipeline", "lake", "status", public_place(absolute(target)), "--json"]
    return shlex.join([*words, *(["--state", state] if state else [])])


def public_place(place: str) -> str:
    """A path or URL without user, password and options: a URL of a store may hold its secret."""
    if "://" not in place:
        return place
    parts = urlsplit(place)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
