"""The local engine: worker processes, one model each; with one worker the work is done in this process."""

import errno
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

from pass_core.errors import ConfigError, PassError, StorageError, TransientError
from tasks.protecting.interfaces import Failure, Job, Work
from tasks.protecting.manifest import Receipt
from tasks.protecting.worker import Worker

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
        self._pool = self._pool or ProcessPoolExecutor(
            min(self.workers, max(1, len(work))), get_context("spawn"), initializer=_start, initargs=(job, os.getpid())
        )
        running: dict[Future[Receipt | Failure], Work] = {}
        try:
            waiting = list(work)
            while waiting or running:
                while waiting and len(running) < self.workers + 1:  # a few ahead, so that a failure leaves little behind
                    one = waiting.pop(0)
                    running[self._pool.submit(_attempt, one)] = one
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    one = running.pop(future)
                    yield future.result()
        except BrokenProcessPool:
            self.close()
            raise TransientError("a worker died (out of memory, or killed); run again to go on with what is staged") from None
        finally:
            for future in running:
                future.cancel()

    def close(self) -> None:
        if self._pool is not None:
            processes = list((self._pool._processes or {}).values())  # noqa: SLF001 (nothing public ends a busy worker)
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
        full = isinstance(error, StorageError) and getattr(error.__cause__, "errno", 0) in {errno.ENOSPC, errno.EDQUOT}
        return Failure(work.partition.name, str(error), isinstance(error, TransientError), full)


def _start(job: Job, parent: int) -> None:
    """Makes the process's worker; Ctrl-C is the parent's to handle, and a parent that died takes its workers along."""
    import pyarrow as pa

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pa.set_cpu_count(1)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    _workers[os.getpid()] = Worker(job)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os._exit(1)


def _attempt(work: Work) -> Receipt | Failure:
    return attempt(_workers[os.getpid()], work)
