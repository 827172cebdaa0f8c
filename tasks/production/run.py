"""Protects a lake from end to end: the one run that the command line, the Prefect flow and the tests execute."""

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pass_core.errors import ConfigError, PartitionsQuarantined
from tasks.production.draw_key import find_key
from tasks.production.interfaces import Executor, Gate
from tasks.production.local import LocalExecutor
from tasks.production.manifest import Manifest, Receipt
from tasks.production.observed import Progress, observed
from tasks.production.options import LakeOptions, ProtectOptions
from tasks.production.plan import Plan, write_plan
from tasks.production.protection import Protection
from tasks.production.quarantine import note_quarantine, raise_failures
from tasks.running.progress import silent
from tasks.running.step_io import Reporter
from tasks.running.tracking import track_step


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What a caller adds around a run; the same bytes are published with any of them."""

    progress: Reporter = silent
    call: Callable[[str, str, Callable[[], Any]], Any] = lambda _name, _title, body: body()  # runs the partitions, or publishing
    published: Callable[[Manifest, Plan], None] = lambda _manifest, _plan: None
    secret: Callable[[], str] | None = None  # reads the draw key from a secret store
    gate: Gate | None = None  # another one than the audit of params.yaml


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did; `manifest` is None when there was nothing to do."""

    plan: Plan
    manifest: Manifest | None = None
    waiting: Mapping[str, int] = field(default_factory=dict)  # partition -> rows that would change

    def done(self) -> list[Receipt]:
        """The partitions that were protected and published."""
        names = {planned.name for planned in self.plan.work} - set(self.waiting)
        return [one for name, one in self.manifest.partitions.items() if name in names] if self.manifest else []

    def counts(self) -> dict[str, int]:
        """Partitions and rows that were protected, partitions that did not change, and rows that wait for more changes."""
        done = self.done()
        counts = {"partitions": len(done), "rows": sum(one.rows for one in done), "unchanged": len(self.plan.unchanged)}
        return counts | ({"waiting": sum(self.waiting.values())} if self.waiting else {})


def plan_of(options: ProtectOptions, hooks: Hooks | None = None) -> Plan:
    """What a run would do, and why; checks everything that can be checked before, and writes nothing."""
    return _prepared(options, hooks or Hooks()).plan()


def execute(options: ProtectOptions, hooks: Hooks | None = None) -> Outcome:
    """Protects what has changed in a lake, audits it and publishes it as a new version.

    Raises:
        AuditFailed: the gate did not pass; nothing is published.
        PartitionsQuarantined, TransientError: partitions failed; the others are published.
        DataError: nothing could be published.
    """
    with observed(options) as progress:
        return _executed(options, hooks or Hooks(), progress)


def _executed(options: ProtectOptions, hooks: Hooks, progress: Progress) -> Outcome:
    run = _prepared(options, hooks)
    plan = run.plan()
    if run.idle(plan):
        note_quarantine(run.state, plan)  # a partition may have been restored to what is published
        progress.outcome = "unchanged"
        return Outcome(plan)
    with track_step("protect", options.key, run.config.tracking, "local", Path(options.params).resolve().parent) as record:
        try:
            manifest, pins = _protect(run, plan, hooks), run.job.pins
        finally:
            progress.judged, progress.draws, progress.retries = run.judged, run.drawn, run.retries.total()
            progress.refused = Counter(failure.kind for failure in run.failures)
        outcome = Outcome(plan, manifest, run.waiting)
        if manifest is None:
            progress.outcome = "waiting"
            raise_failures(run.failures, "the others wait for more changes", PartitionsQuarantined)
            return outcome
        progress.published(manifest, outcome.done())
        parameters = {"source": options.source, "target": options.target, "key_id": pins.key, "version": manifest.version}
        figures = outcome.counts() | {"audited": manifest.audit["records"], "failed": len(run.failures)}
        record.log(parameters, figures, (), {"model": pins.model, "pool": pins.pool})
    hooks.published(manifest, plan)
    raise_failures(run.failures, "the others are published", PartitionsQuarantined)
    return outcome


def draw_key_of(options: LakeOptions, hooks: Hooks) -> bytes:
    """The draw key of a run: from a secret store, a file or the environment."""
    secret = hooks.secret() if hooks.secret else None
    return find_key(Path(options.key_file) if options.key_file else None, os.environ, secret)


def _prepared(options: ProtectOptions, hooks: Hooks) -> Protection:
    draw_key = draw_key_of(options, hooks)
    executor: Executor
    if options.executor == "ray":
        from tasks.production.ray import RayExecutor

        executor = RayExecutor(options.workers, options.address)
    elif options.address:
        raise ConfigError("address: expected none with the local executor, found one; give --executor ray")
    else:
        executor = LocalExecutor(options.workers)
    return Protection(options, executor, hooks.progress, draw_key=draw_key, gate=hooks.gate)


def _protect(run: Protection, plan: Plan, hooks: Hooks) -> Manifest | None:
    options, paper = run.options, run.state / "backfill.json"
    manifest: Manifest | None = None
    if options.backfill:
        write_plan(paper, plan, None, ())
    try:
        with run.open(plan) as held:
            if work := run.work(plan):  # one stream: no worker waits for others before the last partition
                hooks.call("protect", f"{len(work)} partition(s)", lambda: run.stage(work))
            manifest = hooks.call("publish", f"publish {options.dataset}", lambda: run.publish(plan, held))
    finally:
        run.executor.close()
        if options.backfill:
            write_plan(paper, plan, manifest, run.failures, run.waiting)
    return manifest
