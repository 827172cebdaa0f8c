"""Lake protection as a Prefect flow: one task per batch of partitions, one to publish; files between them, no Prefect caching."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from flows.pipeline import as_task, run_shown, shown_progress  # sets Prefect's environment before Prefect is imported

from prefect import flow, runtime
from prefect.artifacts import create_table_artifact
from pydantic import Field

from flows.policy import PROTECT, PUBLISH
from flows.protect_order import Order, prepare
from pass_core.draws import key_id
from pass_core.errors import DataError, TransientError
from tasks.protecting.backfill import write_plan
from tasks.protecting.manifest import Manifest
from tasks.protecting.plan import Plan
from tasks.protecting.session import Protection
from tasks.step_io import Reporter
from tasks.tracking import track_step

PARTITIONS_PER_WORKER = 8  # of a task: large enough that workers seldom wait for each other


def _run_name() -> str:
    return str(runtime.flow_run.parameters["dataset"])


@flow(name="pass-protect", flow_run_name=_run_name, persist_result=False, validate_parameters=True)
def protect(
    source: Annotated[str, Field(description="The lake to protect: a path or URL.")],
    target: Annotated[str, Field(description="Where the protected lake is published: a path or URL.")],
    dataset: Annotated[str, Field(description="The section of params.yaml (reader: lake) that names the lake's columns.")],
    method: Annotated[str, Field(description="The method whose trained model protects.")] = "pass_substitution",
    root: Annotated[str, Field(description="Where model, pool and audit lie.")] = "data",
    params: Annotated[str, Field(description="The parameter file.")] = "params.yaml",
    settings: Annotated[list[str] | None, Field(description="Replacements of parameters, path=value each.")] = None,
    state: Annotated[str | None, Field(description="Private folder for staging, receipts and ledger.")] = None,
    key_file: Annotated[str | None, Field(description="File with the draw key; default: PASS_DRAW_KEY(_FILE).")] = None,
    key_block: Annotated[str | None, Field(description="Prefect Secret block with the draw key.")] = None,
    workers: Annotated[int | None, Field(description="Processes; default: one per core.")] = None,
    first: Annotated[str | None, Field(description="First partition value to look at.")] = None,
    last: Annotated[str | None, Field(description="Last partition value to look at.")] = None,
    backfill: Annotated[bool, Field(description="Write the plan first; publish what succeeds when something fails.")] = False,
    new_columns: Annotated[bool, Field(description="Let columns in that the source did not have; they do not leave.")] = False,
    drop_missing: Annotated[bool, Field(description="Take partitions out that are gone from the source.")] = False,
    redraw: Annotated[str | None, Field(description="Why records may be drawn more often than the limit.")] = None,
) -> dict[str, int]:
    """Protects what has changed in a lake and publishes it as a new version; counts of partitions and rows."""
    order = Order(
        source, target, dataset, method, root, params, tuple(settings or ()), state, key_file, key_block, workers,
        first, last, backfill, new_columns, drop_missing, redraw,
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
