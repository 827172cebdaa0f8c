"""Lake protection as a Prefect flow: one task per batch of partitions, one to publish; files between them, no Prefect caching."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flows.prefect_setup import PROTECT, PUBLISH, as_task, run_shown, shown_progress

from prefect import flow, runtime
from prefect.artifacts import create_table_artifact

from flows.cli.lake_order import EngineName, Order, prepare
from pass_core.channel.draws import key_id
from pass_core.errors import DataError, TransientError
from tasks.production.backfill import write_plan
from tasks.production.manifest import Manifest
from tasks.production.plan import Plan
from tasks.production.run import Protection
from tasks.production.versions import TargetFormat
from tasks.running.step_io import Reporter
from tasks.running.tracking import track_step

PARTITIONS_PER_WORKER = 8  # of a task: large enough that workers seldom wait for each other


def _run_name() -> str:
    return str(runtime.flow_run.parameters["dataset"])


@flow(name="pass-protect", flow_run_name=_run_name, persist_result=False, validate_parameters=True)
def protect(
    source: str,
    target: str,
    dataset: str,
    method: str = "pass_substitution",
    root: str = "data",
    params: str = "params.yaml",
    settings: list[str] | None = None,
    state: str | None = None,
    key_file: str | None = None,
    key_block: str | None = None,
    workers: int | None = None,
    first: str | None = None,
    last: str | None = None,
    backfill: bool = False,
    new_columns: bool = False,
    drop_missing: bool = False,
    redraw: str | None = None,
    engine: EngineName = "local",
    address: str | None = None,
    target_format: TargetFormat | None = None,
) -> dict[str, int]:
    """Protects what has changed in a lake and publishes it as a new version; counts of partitions and rows.

    Args:
        source: the lake to protect: a path or URL.
        target: where the protected lake is published: a path or URL.
        dataset: the section of params.yaml (reader: lake) that names the lake's columns.
        method: the method whose trained model protects.
        root: where model, pool and audit lie.
        params: the parameter file.
        settings: replacements of parameters, path=value each.
        state: private folder for staging, receipts and ledger.
        key_file: file with the draw key; default: PASS_DRAW_KEY(_FILE).
        key_block: the Prefect Secret block with the draw key.
        workers: processes; default: one per core.
        first: first partition value to look at.
        last: last partition value to look at.
        backfill: write the plan first; publish what succeeds when something fails.
        new_columns: let columns in that the source did not have; they do not leave.
        drop_missing: take partitions out that are gone from the source.
        redraw: why records may be drawn more often than the limit.
        engine: processes of this machine, or a Ray cluster.
        address: the Ray cluster's head, host:port; default: one that lives as long as the run.
        target_format: parquet or delta; default: what the target is, parquet where nothing is.
    """
    order = Order(
        source, target, dataset, method, root, params, tuple(settings or ()), state, key_file, key_block, workers,
        first, last, backfill, new_columns, drop_missing, redraw, engine, address, target_format,
    )  # fmt: skip
    run = prepare(order, shown_progress.get())
    plan = run.plan()
    if run.idle(plan):
        return {"partitions": 0, "rows": 0, "unchanged": len(plan.unchanged)}
    base = Path(order.params).resolve().parent
    with track_step("protect", run.request.key, run.config.tracking, "local", base) as record:
        manifest = _run(run, plan, order)
        done = [receipt for name, receipt in manifest.partitions.items() if name in {p.partition.name for p in plan.work}]
        counts = {"partitions": len(done), "rows": sum(receipt.rows for receipt in done), "unchanged": len(plan.unchanged)}
        pins = run.job.pins
        parameters = {"source": source, "target": target, "key_id": key_id(run.request.draw_key), "version": manifest.version}
        figures = counts | {"audited": manifest.audit["records"], "failed": len(run.failures)}
        record.log(parameters, figures, (), {"model": pins.model, "pool": pins.pool})
    _show(manifest, plan)
    _raise_left(run)
    return counts


def _run(run: Protection, plan: Plan, order: Order) -> Manifest:
    on_paper = run.request.state / "backfill.json" if order.backfill else None
    if on_paper:
        write_plan(on_paper, plan)
    try:
        with run.open(plan) as held:
            work = run.work(plan)
            size = PARTITIONS_PER_WORKER * (order.workers or len(os.sched_getaffinity(0)))
            for start in range(0, len(work), size):
                _stage(run, work[start : start + size], start, len(work))
            body = lambda: run.publish(plan, held)  # noqa: E731 (what the task runs)
            manifest: Manifest = as_task(body, "publish", f"publish {order.dataset}", PUBLISH)()
    finally:
        run.close()
        if on_paper:
            failures = {failure.partition: failure for failure in run.failures}
            write_plan(on_paper, plan, run.target.current(), failures)
    return manifest


def _stage(run: Protection, batch: Sequence[Any], start: int, total: int) -> None:
    def body() -> None:
        run.stage(batch)

    as_task(body, "protect", f"partitions {start + 1} to {start + len(batch)} of {total}", PROTECT)()


def _raise_left(run: Protection) -> None:
    """A backfill that published what it could still ends with an error, so that somebody looks."""
    if run.failures:
        first = run.failures[0]
        kind = TransientError if all(failure.transient for failure in run.failures) else DataError
        raise kind(f"{len(run.failures)} partition(s) failed, the others are published; {first.partition}: {first.message}")


def _show(manifest: Manifest, plan: Plan) -> None:
    """The run in Prefect's UI: counts and digests, never a value of a record."""
    rows = [{"reason": reason, "partitions": number} for reason, number in plan.reasons().items()]
    create_table_artifact(table=rows, key="protected-lake", description=f"Version {manifest.version}")


def run_protect(progress: Reporter, order: Order) -> dict[str, int]:
    """Runs the flow with a progress display."""
    arguments = {name: getattr(order, name) for name in order.__slots__}
    counts: dict[str, int] = run_shown(protect, progress, **arguments | {"settings": list(order.settings)})
    return counts
