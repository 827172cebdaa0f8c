"""What a run leaves for others: an entry in the target's log, metrics, a notification when it fails, and lineage events."""

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pass_core.errors import ConfigError, PassError
from tasks.production.interfaces import GateResult
from tasks.production.manifest import Manifest, Receipt, to_json
from tasks.production.metrics import write_metrics
from tasks.production.notify import Notice, notify
from tasks.production.options import ProtectOptions, absolute, state_of
from tasks.production.run_log import RunLog, RunOutcome
from tasks.production.trace import Trace
from tasks.production.troubles import protect_command, public_place, trouble_of
from tasks.sections.running import NotifyConfig


@dataclass(slots=True)
class Progress:
    """How far a run has come; filled by the run."""

    outcome: RunOutcome = "failed"
    judged: GateResult | None = None
    manifest: Manifest | None = None
    done: Sequence[Receipt] = ()  # partitions that were protected and published
    draws: int = 0
    retries: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)  # partitions that failed, by the kind of error
    started: float = field(default_factory=time.monotonic)

    def published(self, manifest: Manifest, done: Sequence[Receipt]) -> None:
        """Takes what was published, and the partitions of it that were protected."""
        self.outcome, self.manifest, self.done = "published", manifest, done

    def entry(self) -> dict[str, Any]:
        """The log's entry; it names no partition."""
        seconds, rows = time.monotonic() - self.started, sum(one.rows for one in self.done)
        entry = {
            "outcome": self.outcome,
            "audit": to_json(self.judged) if self.judged else {},
            "partitions": len(self.done),
            "rows": rows,
            "seconds": round(seconds, 3),
            "rows_per_s": round(rows / max(seconds, 1e-9), 1),
            "bytes": sum(file.bytes for one in self.done for file in one.files),
            "draws": self.draws,
            "retries": self.retries,
            "refused": dict(self.refused),
        }
        if made := self.manifest:
            entry |= {"version": made.version, "published_rows": sum(one.rows for one in made.partitions.values())}
        return entry


@contextlib.contextmanager
def observed(options: ProtectOptions) -> Iterator[Progress]:
    """Notes a run in the target's log, and reports a failure; an interrupted run is noted and not reported."""
    progress, state = Progress(), _state(options)
    log = RunLog(state, public_place(absolute(options.source)), protect_command(options))
    trace = Trace(options, log.run)
    trace.start()
    try:
        yield progress
    except BaseException as error:
        trouble = trouble_of(error, options)
        write_metrics(options, state, log.end(trouble=dataclasses.asdict(trouble), **progress.entry()))
        trace.end("FAIL" if isinstance(error, Exception) else "ABORT", progress.manifest, trouble.reason)
        if isinstance(error, Exception):
            notify(Notice(options.dataset, public_place(absolute(options.target)), trouble), _notify_config(options))
        raise
    write_metrics(options, state, log.end(**progress.entry()))
    trace.end("COMPLETE", progress.manifest)


def report_rejected(options: ProtectOptions, problems: list[str]) -> None:
    """Notes and reports a run that the checks before it rejected."""
    with contextlib.suppress(ConfigError), observed(options):
        raise ConfigError("; ".join(problems))


def _state(options: ProtectOptions) -> Path | None:
    with contextlib.suppress(ConfigError):
        return state_of(options.target, options.state)
    return None


def _notify_config(options: ProtectOptions) -> NotifyConfig:
    """The section `notify`; its defaults where the parameters are what is wrong."""
    with contextlib.suppress(PassError):
        return options.load_config().notify
    return NotifyConfig()
