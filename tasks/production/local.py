"""The local executor: worker processes, one model each; a single worker runs in this process."""

import ctypes
import functools
import os
from collections.abc import Iterator, Sequence

import pyarrow as pa

from pass_core.errors import ConfigError
from tasks.production.interfaces import Failure, Job, SourcePartition
from tasks.production.manifest import Receipt
from tasks.production.worker import Worker
from tasks.running.cores import usable_cores
from tasks.running.processes import WorkerDied, Workers

_workers: dict[int, Worker] = {}  # of a worker process: at most one


class LocalExecutor:
    """Processes of this machine."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or usable_cores()  # by default one per core
        if self.workers < 1:
            raise ConfigError(f"workers: expected at least 1, found {self.workers}; correct --workers")
        self._pool: Workers | None = None
        self._here: Worker | None = None

    def protect(self, job: Job, work: Sequence[SourcePartition]) -> Iterator[Receipt | Failure]:
        if self.workers == 1:
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
    _workers[os.getpid()] = Worker(job)


def _attempt(partition: SourcePartition) -> Receipt | Failure:
    return _workers[os.getpid()].attempt(partition)
