"""The local executor: worker processes, one model each, so that a partition on which one dies does not end the run."""

import ctypes
import functools
import os
from collections.abc import Iterator, Sequence

import pyarrow as pa

from pass_core.errors import ConfigError, PassError
from tasks.production.interfaces import Failure, Job, SourcePartition
from tasks.production.manifest import Receipt
from tasks.production.worker import Worker
from tasks.running.cores import usable_cores
from tasks.running.processes import WorkerDied, Workers

_workers: dict[int, Worker | PassError] = {}  # of a worker process: at most one


class LocalExecutor:
    """Processes of this machine; with 0 workers this process does the work, and dies where a worker would."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = usable_cores() if workers is None else workers  # by default one per core
        if self.workers < 0:
            raise ConfigError(f"workers: expected at least 0, found {self.workers}; correct --workers")
        self._pool: Workers | None = None
        self._here: Worker | None = None

    def protect(self, job: Job, work: Sequence[SourcePartition]) -> Iterator[Receipt | Failure]:
        if not self.workers:
            self._here = self._here or Worker(job)
            for one in work:
                yield self._here.attempt(one)
            return
        self._pool = self._pool or Workers(self.workers, functools.partial(_start, job))
        try:
            for _, outcome in self._pool.each(_attempt, work):
                yield outcome
        except WorkerDied:
            self.close()
            raise

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
        self._pool = self._here = None


def _start(job: Job) -> None:
    pa.set_cpu_count(1)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # keeps the memory of large arrays from block to block: new memory for each takes a tenth longer
        trim_threshold, mmap_threshold = -1, -3
        mallopt(mmap_threshold, 32 * 2**20)
        mallopt(trim_threshold, 512 * 2**20)
    try:
        _workers[os.getpid()] = Worker(job)
    except PassError as error:  # would end as a worker that died, without its message
        _workers[os.getpid()] = error


def _attempt(partition: SourcePartition) -> Receipt | Failure:
    worker = _workers[os.getpid()]
    if isinstance(worker, PassError):
        raise worker
    return worker.attempt_in_time(partition)
