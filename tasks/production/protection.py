"""The parts of a protect run; `execute` in run.py calls them in order."""

import contextlib
import dataclasses
import errno
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from pass_core.channel.draws import key_id
from pass_core.errors import ConfigError, DataError, StorageError
from tasks.expectations.suites import load_library
from tasks.production.attempts import attempt_all
from tasks.production.audit_gate import AuditGate, check_partitions, require_pass
from tasks.production.binding import bind, check_binding, note_version
from tasks.production.crash_points import crash_point
from tasks.production.draw_ledger import Ledger
from tasks.production.erased import Erasures
from tasks.production.evidence import Evidence
from tasks.production.history import open_target
from tasks.production.inputs import Inputs
from tasks.production.interfaces import Executor, Failure, Gate, GateResult, PinnedColumns, SourcePartition
from tasks.production.job import make_job
from tasks.production.ledger_upkeep import require_counted, take_over
from tasks.production.manifest import Manifest, Receipt, Receipts, to_json
from tasks.production.options import ProtectOptions, absolute
from tasks.production.pinned import check_pinned
from tasks.production.plan import Plan, audited_rows, make_plan
from tasks.production.published import PublishedFiles
from tasks.production.quarantine import note_quarantine, raise_failures
from tasks.production.retention import retire
from tasks.production.source import LakeSource, check_drift, pausing
from tasks.production.staging import DATA, Staged, Staging, joined_arrays, make_sample
from tasks.production.waiting import SmallChanges, note_waiting
from tasks.production.withdrawal import read_withdrawal, still_good
from tasks.production.withdrawn import NotedWithdrawal, note_withdrawal
from tasks.production.worker import numerics_of
from tasks.production.writer_lock import Lease
from tasks.running.layout import Layout
from tasks.running.step_io import Reporter
from tasks.storage.files import is_full, storage_errors
from tasks.storage.parquet import TableInfo, count_rows, shards

logger = logging.getLogger(__name__)

SPARE = 2  # times the gate's sample is kept, in case other partitions fail


class Protection:
    """The parts of a run, in order: `plan`, `open` (takes the lock), `work`, `stage`, `publish`."""

    def __init__(
        self, options: ProtectOptions, executor: Executor, progress: Reporter, *, draw_key: bytes, gate: Gate | None
    ) -> None:
        """Opens and checks everything, and writes nothing; `gate` replaces the audit of params.yaml."""
        self.options, self.executor, self._progress = options, executor, progress
        self.config = config = options.load_config()
        self.target = open_target(options.target, options.state, options.target_format)
        self.state = self.target.state
        section = options.section(config)
        layout = Layout(Path(options.models).resolve())  # another model may become the champion while this one protects
        if self.target.plain_lists and section.payload_is_path:
            expected = "expected parquet for a column of paths, found delta, which cannot hold their files"
            raise ConfigError(f"{options.target}: {expected}; give --target-format parquet")
        model, pool = (layout.artefact(name, options.key) for name in ("model", "pool"))
        for path in (model, pool):
            if not path.exists():
                raise DataError(f"{path}: expected a trained model with its pool, found none; run the pipeline, or give --models")
        self._gate = gate or AuditGate.of(config, layout, options.key)
        shape = TableInfo.load(pool).payload.shape
        self._source = LakeSource(dataclasses.replace(section, source=absolute(options.source), payload_shape=shape), draw_key)
        self._manifest = before = self.target.current()
        check_binding(self.target.location, self.state, before)
        self._version = before.version if before else 0
        schema, added = (before.schema, before.added) if before else (self._source.schema, {})
        policy = config.protect.on_schema_change
        columns = PinnedColumns(schema, added, options.new_columns, self._source.used, policy == "ignore_unused")
        with pausing(policy):
            check_drift(options.source, columns, self._source.schema)
        self._receipts, self._ledger = Receipts(self.state / "receipts"), Ledger(options.ledger_folder(config))
        made = config, options.key, self._source, self.target
        self.job = make_job(*made, files=(model, pool), columns=columns, key=draw_key, minutes=options.partition_minutes)
        self._numerics = numerics_of(self.job)
        self._staging, self._withdrawal = Staging(self.job.staging), read_withdrawal(pool)
        self._published, self._erasures = PublishedFiles(self.target), Erasures(self.state)
        self._inputs = Inputs(self.state / "inputs", self._source.files, rehash=options.rehash)
        self._rows: dict[str, int] = {}
        self._done: list[int] = []  # rows of partitions that are staged
        self._started = time.monotonic()
        self.failures: list[Failure] = []
        self.waiting: dict[str, int] = {}  # partitions that wait for more changes, with the rows that would change
        self.judged: GateResult | None = None  # by the audit, also when it did not pass
        self.drawn, self.retries = 0, Counter[str]()  # draws that are new in the ledger; how often partitions were tried again

    def plan(self) -> Plan:
        """What needs work and why."""
        require_counted(self._manifest, self._ledger, self.state / "ledger")
        chosen = {name: one for name, one in self._source.partitions().items() if self.options.covers(name)}
        self.target.check(self._source.released_schema(self.job.release, self.job.plain_lists), list(chosen))
        damaged = self._published.damaged(self._manifest) if self._manifest else ()
        changed = self._inputs.changed({n: self._source.states_of(one) for n, one in chosen.items()}, self._manifest)
        made = chosen, self._manifest, self.job.pins, self.target.holds, self._still_good
        plan = make_plan(*made, changed=changed, damaged=damaged, erased=self._erasures.waiting())
        if self.config.protect.on_schema_change == "pause":
            with pausing("pause"):
                self._source.check_columns(plan.work, self.job.columns)
        return dataclasses.replace(plan, missing=()) if self.options.is_range else plan

    @contextlib.contextmanager
    def open(self, plan: Plan) -> Iterator[Lease]:
        """Rejects too many draws before work starts, takes the lock, and starts or resumes staging; clears it on a full disk."""
        redraws, limit = {p.name: p.redraws for p in plan.work}, self.config.protect.draws_at_most
        self._ledger.refuse_early(self.job.pins.draw, redraws, limit, self.options.redraw)
        try:
            with storage_errors(self.state), self.target.lock(self.options.break_lock) as held:
                crash_point("locked")
                if self.target.current() != self._manifest:
                    raise StorageError(f"{self.state}: another run has published since this one was planned; run again")
                take_over(self.state / "ledger", self._ledger)
                left_out = self._erasures.left_out()
                self.job = dataclasses.replace(self.job, ledger_key=self._ledger.key(), left_out=left_out)
                self._staging.pin(self.job.pins, self._numerics, key_id(self.job.ledger_key), left_out.digest)
                crash_point("pinned")
                if left := self._withdrawal:
                    pool, models = self.job.pins.pool, absolute(self.options.models)
                    noted = NotedWithdrawal(pool=left.pool, after=pool, donors=left.donors, models=models)
                    note_withdrawal(self.state, noted)
                threading.Thread(target=load_library, daemon=True).start()  # takes seconds, while the workers work
                yield held
        except StorageError as error:
            if not is_full(error):
                raise
            self.executor.close()
            self._staging.clear()
            raise StorageError(f"{error}. Staging was cleared; the published versions stay") from error.__cause__

    def idle(self, plan: Plan) -> bool:
        """Whether there is nothing to do; then also removes what a run left that was killed after it had published."""
        if plan.missing and not self.options.drop_missing:  # an accident, unless the user decides otherwise
            found = f"{len(plan.missing)} published partition(s), such as {plan.missing[0]}, are missing from the source"
            raise DataError(f"{found}: restore them, or give --drop-missing to remove them from the target")
        if plan.work or plan.missing:
            return False
        left = self._staging.folder.exists() or self._erasures.unfinished() or self.config.protect.keep_days
        if left and not self.options.is_range:
            with contextlib.suppress(StorageError), self.target.lock():
                self._finish()
        self._inputs.settle()
        note_waiting(self.state, plan, {})
        return True

    def work(self, plan: Plan) -> list[SourcePartition]:
        """The partitions that are not staged yet, each with its share of the gate's sample."""
        self._source.read_footers(plan.work)
        for partition in plan.work:
            try:
                self._rows[partition.name] = self._source.count_rows(partition)
            except DataError as error:
                self.failures.append(Failure(partition.name, str(error), transient=False, kind=type(error).__name__))
        shares = audited_rows(self._rows, SPARE * self.config.protect.audit_records)
        self._staging.forget_damaged()  # of an earlier run
        staged, todo = {n: one for n, one in self._staged(plan).items() if self._inputs.current(one.inputs()[1])}, []
        for partition in (one for one in plan.work if one.name in self._rows):
            done = staged.get(partition.name)
            if done and done.receipt.sampled >= min(shares[partition.name], done.receipt.rows):
                self._done.append(done.receipt.rows)
            else:
                self._staging.forget(partition.name)
                todo.append(dataclasses.replace(partition, sampled=shares[partition.name]))
        files = shards(self.job.pool)
        size = sum(file.stat().st_size for file in files) / max(1, sum(map(count_rows, files)))  # of a row, as in the pool
        self._staging.check_room(int(size * sum(self._rows[partition.name] for partition in todo)))
        self._report()
        return todo

    def stage(self, work: Sequence[SourcePartition]) -> None:
        """Protects partitions that are not staged yet, in one stream; notes those that failed, and tries them when repeated."""
        staged, names = self._staging.finished(), {one.name for one in work}
        self.failures = [one for one in self.failures if one.partition not in names]
        left = [one for one in work if one.name not in staged]
        for outcome in attempt_all(self.executor, self.job, left, self._staging, self.retries):
            if isinstance(outcome, Receipt):
                self._done.append(outcome.rows)
                self._report()
            elif outcome.full:
                raise StorageError(outcome.message) from OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            else:
                logger.warning("%s: %s", outcome.partition, outcome.message)
                self.failures.append(outcome)

    def publish(self, plan: Plan, held: Lease) -> Manifest | None:
        """Checks, audits, counts and publishes what is staged, or raises an error; then deletes old versions.

        None where all of it waits for more changes.
        """
        if before := self._manifest:
            least = 1 if self._erasures.unfinished() else self.config.protect.min_change  # an erasure does not wait
            small = SmallChanges(self.target, self._receipts, self._source.passed_columns, least)
            self.waiting = small.hold(plan, before, self._staged(plan), self.options.publish_few)
        staged = self._topped_up(dataclasses.replace(plan, work=tuple(p for p in plan.work if p.name not in self.waiting)))
        note_quarantine(self.state, plan, self.failures, self._version)
        if not staged and not plan.missing:
            if self.waiting:
                return None
            raise_failures(self.failures, "nothing was published", DataError)
            raise DataError("expected partitions to publish, found none that succeeded; correct the source, then run again")
        crash_point("all staged")
        if staged:
            expected = str(self._source.released_schema(self.job.release, self.job.plain_lists))
            check_partitions(self.job.run, staged.values(), expected, self.state / "docs")
        crash_point("checked")
        check_pinned(self.job)
        result = self._audit(staged)
        crash_point("audited")
        self._staging.refuse_damaged()
        if before:
            self._published.refuse_damaged(before, self._kept(plan).keys() - staged.keys())
        pairs = {name: one.load("draws") for name, one in staged.items()}
        draws, mark = self._ledger.record(self.job.pins.draw, pairs, self.config.protect.draws_at_most, self.options.redraw)
        crash_point("ledger written")
        self.drawn = self._ledger.rows_of(mark)
        receipts = {name: dataclasses.replace(one.receipt, draws=draws[name]) for name, one in staged.items()}
        for name, receipt in receipts.items():
            self._receipts.save(receipt, staged[name].load("donors"))
            self._inputs.save(name, *staged[name].inputs())
        manifest = dataclasses.replace(self._next(plan, receipts, held, result), ledger=dataclasses.asdict(mark))
        note_version(self.state, manifest)
        manifest = self.target.publish(manifest, {n: one.folder / DATA for n, one in staged.items()}, held, self._manifest)
        self._finish(staged)
        crash_point("staging cleared")
        return manifest

    def _finish(self, rewritten: Collection[str] = ()) -> None:
        if live := self.target.current():
            erasing = bool(self._erasures.unfinished())
            retire(self.target, live.version, self.config.protect, erasing=erasing)
            if erasing:
                self._receipts.keep_only(live.partitions.values())
            self._published.settle(live)
            self._erasures.settle(live.version, live.partitions, rewritten)
        self._inputs.settle()
        self._staging.clear()

    def _staged(self, plan: Plan) -> dict[str, Staged]:
        wanted = {p.name: p.digest for p in plan.work}
        return {n: one for n, one in self._staging.finished().items() if wanted.get(n) == one.source}

    def _still_good(self, receipt: Receipt) -> bool:
        return self._withdrawal is not None and still_good(receipt, self.job.pins, self._withdrawal, self._receipts)

    def _topped_up(self, plan: Plan) -> dict[str, Staged]:
        """The staged partitions; with larger samples where others failed and their share of the sample is missing."""
        staged = self._staged(plan)
        short = {name: share for name, share in self._shares(staged).items() if staged[name].receipt.sampled < share}
        for name in short:
            self._staging.forget(name)
        self.stage([dataclasses.replace(one, sampled=short[one.name]) for one in plan.work if one.name in short])
        return self._staged(plan) if short else staged

    def _shares(self, staged: Mapping[str, Staged]) -> dict[str, int]:
        return audited_rows({name: one.receipt.rows for name, one in staged.items()}, self.config.protect.audit_records)

    def _audit(self, staged: Mapping[str, Staged]) -> GateResult:
        if not any(one.receipt.rows for one in staged.values()):  # partitions that are removed or have become empty
            return GateResult(verdict="pass", basis="unlabelled", records=0, of=0, reasons=())
        attributes = self.job.lake.attributes(TableInfo.load(self.job.pool).classes)
        evidence = Evidence(self.state / "audited", self.job.pins.draw, self.config.protect.audit_records)
        new, of = joined_arrays(staged, self._shares(staged)), sum(one.receipt.rows for one in staged.values())
        self.judged = self._gate.judge(make_sample(new, evidence.recent(new), attributes, of), self.job)
        passed = require_pass(self.judged, self.config.protect.accept_undecided)
        evidence.add(self._version + 1, new)
        return passed

    def _kept(self, plan: Plan) -> dict[str, Receipt]:
        gone = plan.missing if self.options.drop_missing else ()
        return {n: receipt for n, receipt in (self._manifest.partitions if self._manifest else {}).items() if n not in gone}

    def _next(self, plan: Plan, receipts: Mapping[str, Receipt], held: Lease, result: GateResult) -> Manifest:
        before, version, pinned = self._manifest, self._version + 1, self.job.columns
        kept = self._kept(plan)
        partitions = dict(sorted({**kept, **receipts}.items()))
        place, binding = self.target.place(version, held), bind(self.target.location, self.state, before)
        places = dict.fromkeys(partitions, place)
        if before and not self.target.carries:
            places |= {name: before.places[name] for name in kept if name not in receipts}
        return Manifest(
            version=version,
            token=held.token,
            target_id=binding.target,
            state_id=binding.state,
            place=place,
            previous=before.place if before else None,
            numerics=self._numerics,
            schema=pinned.schema,
            added=pinned.accepted(self._source.found),
            partitions=partitions,
            places=places,
            audit=to_json(result),
        )

    def _report(self) -> None:
        rows, seconds = sum(self._done), max(1e-9, time.monotonic() - self._started)
        note = f"{len(self._done)} of {len(self._rows)} partitions, {rows / seconds:,.0f} rows/s"
        self._progress(f"protect {self.options.key}", rows, max(1, sum(self._rows.values())), note)
