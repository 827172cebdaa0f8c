"""What a run leaves for others: an entry in the target's log, a notification when it fails, and lineage events."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pass_core.errors import ConfigError, PassError
from tasks.production.interfaces import GateResult
from tasks.production.manifest import Manifest, to_json
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
    partitions: int = 0
    rows: int = 0

    def published(self, manifest: Manifest, counts: Mapping[str, int]) -> None:
        """Takes what was published, with the numbers of partitions and rows that were protected."""
        self.outcome, self.manifest = "published", manifest
        self.partitions, self.rows = counts["partitions"], counts["rows"]

    def entry(self) -> dict[str, Any]:
        """The log's entry; it names no partition."""
        made = self.manifest
        published = {} if made is None else {
            "version": made.version,
            "published_rows": sum(one.rows for one in made.partitions.values()),
            "partitions": self.partitions,
            "rows": self.rows,
        }  # fmt: skip
        return {"outcome": self.outcome, "audit": to_json(self.judged) if self.judged else {}, **published}


@contextlib.contextmanager
def observed(options: ProtectOptions) -> Iterator[Progress]:
    """Notes a run in the target's log, and reports a failure; an interrupted run is noted and not reported."""
    progress, log = Progress(), RunLog(_state(options), public_place(absolute(options.source)), protect_command(options))
    trace = Trace(options, log.run)
    trace.start()
    try:
        yield progress
    except BaseException as error:
        trouble = trouble_of(error, options)
        log.end(trouble=dataclasses.asdict(trouble), **progress.entry())
        trace.end("FAIL" if isinstance(error, Exception) else "ABORT", progress.manifest, trouble.reason)
        if isinstance(error, Exception):
            notify(Notice(options.dataset, public_place(absolute(options.target)), trouble), _notify_config(options))
        raise
    log.end(**progress.entry())
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
