"""The local engine: worker processes, one model each; with one worker the work is done in this process."""

import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from multiprocessing.process import BaseProcess

import pyarrow as pa

from pass_core.errors import ConfigError, PassError, TransientError
from tasks.production.interfaces import Failure, Job, Work
from tasks.production.manifest import Receipt
from tasks.production.worker import Worker
from tasks.storage.files import is_full

WATCH_SECONDS = 1.0

_workers: dict[int, Worker] = {}  # of a worker process: at most one


class LocalEngine:
    """Processes of this machine."""

    def __init__(self, workers: int | None = None) -> None:
        """`workers`: as many as there are cores by default."""
        self.workers = workers or len(os.sched_getaffinity(0))
        if self.workers < 1:
            raise ConfigError(f"workers: expected at least 1, found {self.workers}")
        self._pool: ProcessPoolExecutor | None = None
        self._here: Worker | None = None

    def protect(self, job: Job, work: Sequence[Work]) -> Iterator[Receipt | Failure]:
        if self.workers == 1:
            self._here = self._here or Worker(job)
            for one in work:
                yield attempt(self._here, one)
            return
        pool = self.start(job)
        running: dict[Future[Receipt | Failure], Work] = {}
        try:
            waiting = list(work)
            while waiting or running:
                while waiting and len(running) < self.workers + 1:  # a few ahead, so that a failure leaves little behind
                    one = waiting.pop(0)
                    running[pool.submit(_attempt, one)] = one
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    running.pop(future)
                    yield future.result()
        except BrokenProcessPool:
            self.close()
            raise TransientError("a worker died (out of memory, or killed); run again to go on with what is staged") from None
        finally:
            for future in running:
                future.cancel()

    def start(self, job: Job) -> ProcessPoolExecutor:
        """Makes sure that the workers exist."""
        if self._pool is None:
            context, arguments = get_context("spawn"), (job, os.getpid())
            self._pool = ProcessPoolExecutor(self.workers, context, initializer=_start, initargs=arguments)
        return self._pool

    def processes(self) -> list[BaseProcess]:
        """The workers' processes."""
        return [] if self._pool is None else list((self._pool._processes or {}).values())  # noqa: SLF001 (nothing public)

    def close(self) -> None:
        if self._pool is not None:
            processes = self.processes()
            self._pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.terminate()
            for process in processes:
                process.join()
        self._pool = self._here = None


def attempt(worker: Worker, work: Work) -> Receipt | Failure:
    """A worker's receipt, or why there is none; only what nobody foresaw is raised."""
    try:
        return worker.protect(work)
    except PassError as error:
        return Failure(work.partition.name, str(error), isinstance(error, TransientError), is_full(error))


def _start(job: Job, parent: int) -> None:
    """Makes the process's worker; Ctrl-C is the parent's to handle, and a parent that died takes its workers along."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pa.set_cpu_count(1)
    _keep_memory()
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    _workers[os.getpid()] = Worker(job)


def _keep_memory() -> None:
    """Lets large arrays be used again from block to block: asking the system anew for each costs a tenth of the time."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        trim_threshold, mmap_threshold = -1, -3
        mallopt(mmap_threshold, 32 * 2**20)
        mallopt(trim_threshold, 512 * 2**20)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os._exit(1)


def _attempt(work: Work) -> Receipt | Failure:
    return attempt(_workers[os.getpid()], work)
