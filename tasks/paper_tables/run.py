"""Computing the missing cells of plans: spread over processes, with one progress bar and an MLflow run per cell."""

import contextlib
import dataclasses
import functools
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pass_core.errors import StageFailed
from pass_core.training.epochs import Epoch
from tasks.paper_tables.cells import Cell, Control, FeatureSet, Store
from tasks.paper_tables.compute import THREADS, compute
from tasks.paper_tables.plan import Plan
from tasks.running.processes import WorkerDied, Workers, send
from tasks.running.provenance import describe
from tasks.running.step_io import Reporter, RunKey
from tasks.running.tracking import track_pipeline, track_step
from tasks.sections.running import TrackingConfig
from tasks.storage.files import read_json, storage_errors, write_json

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What computing needs besides the plans."""

    store: Store
    workers: int
    tracking: TrackingConfig
    project: Path  # base folder of a relative `tracking.store`
    progress: Reporter


def compute_plans(plans: Sequence[Plan], bench: Bench) -> None:
    """Computes all cells that are missing in the store: classifiers of originals first, then the cells compared with them.

    Raises:
        StageFailed: a worker died; finished cells are kept.
    """
    features = {plan.features.digest: plan.features for plan in plans}
    name = f"bench {', '.join(plan.name for plan in plans)}"
    phases: list[dict[str, Cell | Control]] = [
        {control.digest: control for plan in plans for control in plan.controls()},
        {cell.digest: cell for plan in plans for cell in plan.cells()},
    ]
    tally = _Tally(name, {digest: cell for phase in phases for digest, cell in phase.items()}, bench)
    if all(bench.store.has(cell) and _recorded(cell, bench) for phase in phases for cell in phase.values()):
        return
    with storage_errors(bench.store.root), track_pipeline(name, bench.tracking, bench.project):
        for phase in phases:
            missing = [cell for cell in phase.values() if not bench.store.has(cell)]
            waiting = sorted(missing, key=lambda cell: -cell.effort)  # the longest first, so that the last ones are short
            (_run_here if bench.workers == 1 else _run_spread)(waiting, features, bench, tally)
            for cell in phase.values():  # also those of a run that was killed before it could log them
                _record(cell, bench)


class _Tally:
    """The progress of all cells together."""

    def __init__(self, name: str, cells: Mapping[str, Cell | Control], bench: Bench) -> None:
        self._name, self._bench = name, bench
        missing = {digest: cell for digest, cell in cells.items() if not bench.store.has(cell)}
        self._efforts = {digest: cell.effort for digest, cell in missing.items()}
        self._shares = dict.fromkeys(missing, 0.0)
        if len(missing) < len(cells):
            logger.info("%s: %d of %d cells are computed already", name, len(cells) - len(missing), len(cells))

    def report(self, digest: str, share: float) -> None:
        """Reports the finished share of a cell."""
        self._shares[digest] = share
        done = sum(share * self._efforts[cell] for cell, share in self._shares.items())
        note = f"{sum(share == 1.0 for share in self._shares.values())} of {len(self._shares)} cells"
        self._bench.progress(self._name, round(done), sum(self._efforts.values()), note)


def _run_here(waiting: list[Cell | Control], features: Mapping[str, FeatureSet], bench: Bench, tally: _Tally) -> None:
    for cell in waiting:
        started = time.monotonic()
        compute(cell, features[cell.features], bench.store, _listener(tally, cell.digest))
        _finish(cell, time.monotonic() - started, bench, tally)


def _listener(tally: _Tally, digest: str) -> Callable[[float], None]:
    # A cell is finished only when it is in the store.
    return lambda share: tally.report(digest, min(share, 0.99))


def _run_spread(waiting: list[Cell | Control], features: Mapping[str, FeatureSet], bench: Bench, tally: _Tally) -> None:
    if not waiting:
        return
    work = functools.partial(_work, bench.store)
    items = [(cell, features[cell.features]) for cell in waiting]
    with _pinned_threads(), Workers(min(bench.workers, len(waiting))) as workers:
        try:
            for (cell, _), seconds in workers.each(work, items, lambda message: _listener(tally, message[0])(message[1])):
                _finish(cell, seconds, bench, tally)
        except WorkerDied as error:
            raise StageFailed(f"bench: {error}, with fewer --workers if memory was short") from None


@contextlib.contextmanager
def _pinned_threads() -> Iterator[None]:
    """Sets the variables that libraries read when a worker loads them."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, str(THREADS)))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _work(store: Store, item: tuple[Cell | Control, FeatureSet]) -> float:
    """What a worker does; the seconds it took."""
    started, (cell, features), digest = time.monotonic(), item, item[0].digest
    compute(cell, features, store, lambda share: send((digest, share)))
    return time.monotonic() - started


def _finish(cell: Cell | Control, seconds: float, bench: Bench, tally: _Tally) -> None:
    if not bench.store.has(cell):  # a worker reads the code when it starts, and names results by its digest
        raise StageFailed("bench: expected the same code in all workers, found that it changed; run the same command again")
    write_json(bench.store.note(cell), describe("bench", seconds))
    _record(cell, bench)
    tally.report(cell.digest, 1.0)
    logger.info("bench %s: %.0f s", cell, seconds)


def _record(cell: Cell | Control, bench: Bench) -> None:
    """Logs the cell's MLflow run, once; only the parent process writes to MLflow."""
    if _recorded(cell, bench):
        return
    note = bench.store.note(cell)
    known = read_json(note) if note.exists() else describe("bench")
    method = cell.method if isinstance(cell, Cell) else "unprotected"
    with track_step("bench", RunKey(cell.dataset, method), bench.tracking, "bench", bench.project) as record:
        curves = bench.store.get(cell).curves if isinstance(cell, Cell) else {}
        epochs = tuple(
            Epoch(number + 1, len(values), dict(zip(curves, values, strict=True)))
            for number, values in enumerate(zip(*curves.values(), strict=True))
        )
        settings = _flat(cell.recipe()["settings"])
        record.log(settings, bench.store.figures(cell) | {"seconds": known["seconds"] or 0.0}, epochs, {"cell": cell.digest})
        write_json(note, known | {"mlflow_run": record.run_id})


def _recorded(cell: Cell | Control, bench: Bench) -> bool:
    note = bench.store.note(cell)
    return not bench.tracking.enabled or (note.exists() and read_json(note).get("mlflow_run") is not None)


def _flat(settings: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """{"attack": {"epochs": 8}} -> {"attack.epochs": 8}."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= _flat(value, f"{path}{name}.") if isinstance(value, Mapping) else {f"{path}{name}": value}
    return flat
