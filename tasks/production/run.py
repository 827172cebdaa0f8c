"""Protecting a lake from end to end: plan, stage, check, audit, count, publish, retire."""

import contextlib
import dataclasses
import errno
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

from pass_core.devices import resolve_device
from pass_core.errors import AuditFailed, DataError, PassError, StorageError, TransientError
from tasks.config import Config
from tasks.expectations.suites import load_library
from tasks.production.checks import check_partitions
from tasks.production.crash_points import crash_point
from tasks.production.draw_ledger import Ledger, refuse_past
from tasks.production.interfaces import Engine, Failure, Gate, GateResult, Held, PinnedColumns, Target, Work
from tasks.production.manifest import Manifest, Receipt, to_json
from tasks.production.plan import Plan, audited_rows, make_plan, refuse_missing
from tasks.production.receipts import Receipts
from tasks.production.request import Request, lake_section, make_job
from tasks.production.source import LakeSource, check_drift
from tasks.production.staging import Staged, Staging, joined_sample
from tasks.production.withdrawal import read_withdrawal
from tasks.production.worker import THREADS
from tasks.running.numerics import fingerprint
from tasks.running.step_io import Reporter
from tasks.storage.files import is_full, storage_errors
from tasks.storage.parquet import TableInfo, count_rows, shards

logger = logging.getLogger(__name__)

SPARE = 2  # times the gate's sample are put aside, in case other partitions fail


class Protection:
    """One run. `open` takes the lock; `stage` may be called for several batches; `publish` ends it."""

    def __init__(self, request: Request, config: Config, target: Target, engine: Engine, gate: Gate, progress: Reporter) -> None:
        self.request, self.config, self.target = request, config, target
        self._engine, self._gate, self._progress = engine, gate, progress
        self._source = LakeSource(lake_section(config, request))
        self._manifest = target.current()
        before = self._manifest
        columns = PinnedColumns(
            before.schema if before else self._source.schema, before.added if before else {}, request.new_columns
        )
        check_drift(request.source, columns, self._source.schema)
        self._numerics = fingerprint(resolve_device(config.compute.device), THREADS)
        self._receipts = Receipts(request.state / "receipts")
        self._ledger = Ledger(request.state / "ledger")
        self.job = make_job(request, config, self._source, columns, target.plain_lists)
        self._staging = Staging(self.job.staging)
        self._withdrawal = read_withdrawal(self.job.pool)
        self._rows: dict[str, int] = {}
        self._done: list[int] = []  # rows of partitions that are staged
        self._started = time.monotonic()
        self.failures: list[Failure] = []

    def plan(self) -> Plan:
        """What needs work and why."""
        partitions = self._source.partitions()
        only, manifest = self.request.only, self._manifest
        chosen = {name: part for name, part in partitions.items() if only is None or only(name)}

        def holds(name: str) -> bool:
            return manifest is not None and self.target.holds(manifest, name)

        plan = make_plan(chosen, manifest, self.job.pins, holds, self._still_good)
        return plan if only is None else dataclasses.replace(plan, missing=())

    @contextlib.contextmanager
    def open(self, plan: Plan) -> Iterator[Held]:
        """Refuses what must be refused before work begins, takes the lock, begins or resumes staging."""
        refuse_missing(plan, self.request.drop_missing)
        limit = self.config.protect.draws_at_most
        refuse_past(limit, {p.partition.name: p.redraws for p in plan.work}, self.request.redraw)
        with self._room_made(), storage_errors(self.request.state), self.target.lock() as held:
            crash_point("locked")
            now = self.target.current()
            if (now.version if now else 0) != (self._manifest.version if self._manifest else 0):
                raise StorageError(f"{self.request.state}: another run has published since this one was planned; run again")
            self._staging.pin(self.job.pins, self._numerics)
            crash_point("pinned")
            self.job = dataclasses.replace(self.job, ledger_key=self._ledger.key())
            threading.Thread(target=load_library, daemon=True).start()  # seconds that pass while the workers work
            yield held

    @contextlib.contextmanager
    def _room_made(self) -> Iterator[None]:
        """A full disk is not left full."""
        try:
            yield
        except StorageError as error:
            if not is_full(error):
                raise
            self.close()
            self._staging.clear()
            raise StorageError(f"{error}. Staging was cleared; what is published stays") from error.__cause__

    def execute(self, plan: Plan) -> Manifest | None:
        """The whole run; None when there is nothing to do."""
        if self.idle(plan):
            return None
        try:
            with self.open(plan) as held:
                self.stage(self.work(plan))
                return self.publish(plan, held)
        finally:
            self.close()

    def idle(self, plan: Plan) -> bool:
        """Whether there is nothing to do; what a run left that was killed after it had published is then tidied away."""
        refuse_missing(plan, self.request.drop_missing)
        if plan.work or plan.missing:
            return False
        if self.request.only is None and self._staging.folder.exists():
            with contextlib.suppress(StorageError), self.target.lock():
                self._finish()
        return True

    def close(self) -> None:
        """Ends the workers; what is staged stays."""
        self._engine.close()

    def work(self, plan: Plan) -> list[Work]:
        """The partitions that are not staged yet, with the share of the gate's sample that each gives."""
        for planned in plan.work:
            try:
                self._rows[planned.partition.name] = self._source.count_rows(planned.partition)
            except DataError as error:
                self.failures.append(Failure(planned.partition.name, str(error), transient=False))
        shares = audited_rows(self._rows, SPARE * self.config.protect.audit_records)
        staged = self._staged(plan)
        todo = []
        for planned in (p for p in plan.work if p.partition.name in self._rows):
            name = planned.partition.name
            done = staged.get(name)
            if done and done.receipt.sampled >= shares[name]:
                self._done.append(done.receipt.rows)
            else:
                self._staging.forget(name)
                todo.append(Work(planned.partition, shares[name]))
        self._check_room(todo)
        self._tell()
        return todo

    def stage(self, work: Sequence[Work]) -> list[Receipt]:
        """Protects partitions that are not staged yet; those that failed, twice where trying again may help, are in `failures`.

        Raises:
            StorageError: the disk is full; staging was cleared.
        """
        receipts, failures = self._attempt(work)
        again = {failure.partition for failure in failures if failure.transient}
        more, still = self._attempt([one for one in work if one.partition.name in again]) if again else ([], [])
        self.failures += [failure for failure in failures if failure.partition not in again] + still
        for failure in self.failures:
            logger.warning("%s: %s", failure.partition, failure.message)
        return receipts + more

    def _attempt(self, work: Sequence[Work]) -> tuple[list[Receipt], list[Failure]]:
        receipts: list[Receipt] = []
        failures: list[Failure] = []
        staged = self._staging.finished()
        for outcome in self._engine.protect(self.job, [one for one in work if one.partition.name not in staged]):
            if isinstance(outcome, Receipt):
                receipts.append(outcome)
                self._done.append(outcome.rows)
                self._tell()
            elif outcome.full:
                raise StorageError(outcome.message) from OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            else:
                failures.append(outcome)
        return receipts, failures

    def publish(self, plan: Plan, held: Held) -> Manifest:
        """Checks, audits, counts and publishes what is staged; then old versions go.

        Raises:
            AuditFailed: the gate did not pass; nothing is published.
            ConfigError: records would be drawn too often.
        """
        self._raise_failures()
        staged = self._topped_up(plan)
        if not staged and not plan.missing:
            raise DataError("nothing was staged: no partition could be protected")
        crash_point("all staged")
        self._check(staged)
        crash_point("checked")
        finding = self._audit(staged)
        crash_point("audited")
        receipts = self._count(staged)
        version = (self._manifest.version if self._manifest else 0) + 1
        if staged:
            hashes = [one.hashes() for one in staged.values()]
            self._ledger.record(self.job.pins.draw, version, hashes, self.request.redraw)
        crash_point("ledger written")
        manifest = self._next(plan, receipts, version, held, finding)
        self.target.publish(manifest, {name: one.data for name, one in staged.items()}, held)
        self._finish()
        crash_point("staging cleared")
        return manifest

    def _finish(self) -> None:
        self.target.retire(self.config.protect.keep_versions)
        self._staging.clear()

    def _staged(self, plan: Plan) -> dict[str, Staged]:
        wanted = {p.partition.name: p.partition.digest for p in plan.work}
        return {n: one for n, one in self._staging.finished().items() if wanted.get(n) == one.receipt.input_digest}

    def _still_good(self, receipt: Receipt) -> bool:
        """Whether a partition may stay as it is: it was made before donors left, and shows none of them."""
        left = self._withdrawal
        if left is None or set(receipt.pins.changes(self.job.pins)) - {"model", "pool"}:
            return False
        if receipt.pins.pool != left.pool or receipt.pins.model not in left.models:
            return False
        return not self._receipts.donors(receipt)[list(left.donors)].any()

    def _check_room(self, todo: Sequence[Work]) -> None:
        """Before hours of work, not after them."""
        files = shards(self.job.pool)
        size = sum(file.stat().st_size for file in files) / max(1, sum(map(count_rows, files)))
        needed = int(size * sum(self._rows[work.partition.name] for work in todo))
        free = self.target.free_bytes()
        if free is not None and free < needed:
            raise StorageError(
                f"{self.request.state}: expected about {needed // 2**20} MB of free space for what is to be published, found "
                f"{free // 2**20} MB: free some, then run again"
            )

    def _raise_failures(self) -> None:
        if not self.failures or self.request.partial:
            return
        first, many = self.failures[0], len(self.failures)
        message = f"{many} partition(s) failed and nothing was published; the first: {first.partition}: {first.message}"
        kind: type[PassError] = TransientError if all(f.transient for f in self.failures) else DataError
        raise kind(f"{message}. The others are staged; run again to go on")

    def _check(self, staged: Mapping[str, Staged]) -> None:
        if staged:
            expected = str(self._source.released_schema(self.job.release, self.job.plain_lists))
            schemas = {name: one.columns() for name, one in staged.items()}
            receipts = {name: one.receipt for name, one in staged.items()}
            docs = self.request.state / "docs"
            check_partitions(f"protected lake {self.job.dataset} {self.job.method}", receipts, schemas, expected, docs)

    def _topped_up(self, plan: Plan) -> dict[str, Staged]:
        """What is staged; where others failed and their share of the sample is missing, with larger samples."""
        staged = self._staged(plan)
        shares = self._shares(staged)
        short = {name for name, one in staged.items() if one.receipt.sampled < shares[name]}
        for name in short:
            self._staging.forget(name)
        self.stage([Work(p.partition, shares[p.partition.name]) for p in plan.work if p.partition.name in short])
        return self._staged(plan) if short else staged

    def _shares(self, staged: Mapping[str, Staged]) -> dict[str, int]:
        return audited_rows({name: one.receipt.rows for name, one in staged.items()}, self.config.protect.audit_records)

    def _audit(self, staged: Mapping[str, Staged]) -> GateResult:
        if not staged:
            return GateResult("pass", "unlabelled", 0, 0, ())
        attributes = self.job.lake.attributes(TableInfo.load(self.job.pool).classes)
        shares = self._shares(staged)
        sample = joined_sample(staged, shares, attributes)
        finding = self._gate.judge(sample, self.job)
        if finding.verdict != "pass":
            raise AuditFailed(f"the audit of what was about to be published failed: {'; '.join(finding.reasons)}")
        return finding

    def _count(self, staged: Mapping[str, Staged]) -> dict[str, Receipt]:
        """Receipts with the number of draws; refuses what was drawn too often."""
        draws = {name: self._ledger.draws(one.hashes(), self.job.pins.draw) for name, one in staged.items()}
        refuse_past(self.config.protect.draws_at_most, draws, self.request.redraw)
        receipts = {name: dataclasses.replace(one.receipt, draws=draws[name]) for name, one in staged.items()}
        for name, receipt in receipts.items():
            self._receipts.save(receipt, staged[name].donors())
        return receipts

    def _next(self, plan: Plan, receipts: Mapping[str, Receipt], version: int, held: Held, finding: GateResult) -> Manifest:
        before = self._manifest
        gone = plan.missing if self.request.drop_missing else ()
        kept = {name: receipt for name, receipt in (before.partitions if before else {}).items() if name not in gone}
        partitions = dict(sorted({**kept, **receipts}.items()))
        places = dict.fromkeys(partitions, self.target.place(version, held.token))
        if before and not self.target.carries:
            places |= {name: before.places[name] for name in kept if name not in receipts}
        pinned = self.job.columns
        return Manifest(
            version=version,
            token=held.token,
            numerics=self._numerics,
            schema=pinned.schema,
            added={**pinned.added, **{n: kind for n, kind in self._source.schema.items() if n not in pinned.schema}},
            partitions=partitions,
            places=places,
            audit=to_json(finding),
        )

    def _tell(self) -> None:
        rows, seconds = sum(self._done), max(1e-9, time.monotonic() - self._started)
        note = f"{len(self._done)} of {len(self._rows)} partitions, {rows / seconds:,.0f} rows/s"
        self._progress(f"protect {self.request.key}", rows, max(1, sum(self._rows.values())), note)
