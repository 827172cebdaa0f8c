"""Starts, watches and ends processes of this machine. None of them outlives the process that started it, kill -9 included."""

import contextlib
import functools
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from pass_core.errors import MethodError, PassError, TransientError

if TYPE_CHECKING:
    from pass_core.training.epochs import OnEpoch
    from pass_core.training.parallel import World

Item = TypeVar("Item")
Result = TypeVar("Result")
SECONDS_BETWEEN_LOOKS = 0.2  # at messages, while nothing is finished
_outbox: Any = None  # in a worker: the queue to its parent


class WorkerDied(TransientError):
    """A worker process ended in the middle of its work."""


class Workers(contextlib.AbstractContextManager["Workers"]):
    """Worker processes that are started once and given many pieces of work; they end with the block or with their parent."""

    def __init__(self, number: int, start: Callable[[], None] | None = None) -> None:
        """`start` is called once in every worker, before its first piece of work; it must be picklable."""
        self.number = number
        context = multiprocessing.get_context("spawn")  # a fork would inherit threads and locks in the middle of their work
        self._inbox: Any = context.SimpleQueue()
        self._pool = ProcessPoolExecutor(number, context, initializer=_start_worker, initargs=(self._inbox, start))

    def __exit__(self, *_: object) -> None:
        self.close()

    def each(
        self, work: Callable[[Item], Result], items: Iterable[Item], on_message: Callable[[Any], None] | None = None
    ) -> Iterator[tuple[Item, Result]]:
        """Yields each item with `work(item)` as it is finished, in any order; `on_message` gets what workers `send`."""
        waiting, running = iter(items), dict[Future[Result], Item]()
        try:
            while True:
                # A few items ahead, so that no worker waits and a failure leaves little behind.
                for item in waiting:
                    running[self._pool.submit(work, item)] = item
                    if len(running) > self.number:
                        break
                if not running:
                    return
                done = wait(running, SECONDS_BETWEEN_LOOKS, FIRST_COMPLETED).done
                while not self._inbox.empty():
                    message = self._inbox.get()
                    if on_message:
                        on_message(message)
                for future in done:
                    yield running.pop(future), future.result()
        except BrokenProcessPool:
            self.close()
            raise WorkerDied("a worker died (out of memory, or killed); run the same command again to resume") from None
        finally:
            for future in running:
                future.cancel()

    def processes(self) -> list[Any]:
        """The workers' processes."""
        return list((self._pool._processes or {}).values())  # noqa: SLF001 (nothing public before Python 3.14)

    def close(self) -> None:
        """Ends the workers at once, whatever they are doing."""
        processes = self.processes()
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()
        for process in processes:
            process.join()


def send(message: Any) -> None:
    """In a worker: passes a message to the parent, before the result of the piece of work that it belongs to."""
    _outbox.put(message)


def _start_worker(outbox: Any, start: Callable[[], None] | None) -> None:
    global _outbox  # noqa: PLW0603 (a queue can only be inherited, not handed over with the work)
    _outbox = outbox
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if start:
        start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def start_bound(
    command: Sequence[str], *, env: Mapping[str, str] | None = None, errors: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """Starts a command that ends with this process, with all its children (in sessions of their own, too), however this one ends.

    Ctrl-C in the terminal does not reach the command. `end_bound` ends it earlier. `errors` receives its standard error.
    """
    return subprocess.Popen(
        [sys.executable, "-I", str(Path(__file__).with_name("watchdog.py")), *command],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=errors or subprocess.DEVNULL,
        start_new_session=True,
    )


def end_bound(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Ends commands of `start_bound`, and waits until they have ended."""
    started = list(processes)
    for process in started:
        if process.stdin:
            process.stdin.close()
    for process in started:
        process.wait()


def run_ranks(
    work: "Callable[[World, OnEpoch], Result]", processes: int, threads: int, rendezvous: Path, on_epoch: "OnEpoch"
) -> Result:
    """The first result of several processes that train together: each runs `work(world, on_epoch)` with so many threads.

    The first process's epochs and log lines appear here. `rendezvous` is a file that does not exist; `work` must be picklable.
    Raises a PassError: what a process raised, or that one of them died.
    """
    from pass_core.training.parallel import World

    def received(message: Any) -> None:
        if isinstance(message, logging.LogRecord):
            logging.getLogger(message.name).handle(message)
        else:
            on_epoch(message)

    level = logging.getLogger("tasks").getEffectiveLevel()
    rank = functools.partial(_run_rank, work, threads, rendezvous, level)
    worlds = [World(number, processes) for number in range(processes)]
    with Workers(processes) as workers:
        try:
            return dict(workers.each(rank, worlds, received))[worlds[0]]
        except WorkerDied:
            raise MethodError("a process of the training died (out of memory, or killed): run again") from None


def _run_rank(work: "Callable[[World, OnEpoch], Result]", threads: int, rendezvous: Path, level: int, world: "World") -> Result:
    import torch
    from torch import distributed

    from pass_core.training.context import ignore_epoch
    from tasks.running.numerics import fixed_numerics

    first = world.rank == 0
    if first:
        ours = logging.getLogger("tasks")
        ours.handlers, ours.propagate = [_ToParent()], False
        ours.setLevel(level)
    else:
        logging.disable()
    try:
        with fixed_numerics(threads):
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            meeting = rendezvous.resolve().as_uri()
            distributed.init_process_group(backend, init_method=meeting, rank=world.rank, world_size=world.processes)
            result = work(world, send if first else ignore_epoch)
            distributed.destroy_process_group()
            return result
    except PassError:
        raise
    except Exception as error:  # noqa: BLE001 (whatever it is, the parent reports it)
        raise MethodError(f"rank {world.rank} of the training failed: {type(error).__name__}: {error}") from None


class _ToParent(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        record.msg, record.args = record.getMessage(), None
        send(record)
