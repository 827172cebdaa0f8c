"""Processes on this machine that train together: started, listened to, ended with the first that fails or with their parent."""

import logging
import multiprocessing
import os
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from pass_core.errors import MethodError, PassError
from pass_core.training.context import ignore_epoch
from pass_core.training.epochs import Epoch, OnEpoch
from pass_core.training.parallel import World
from tasks.running.numerics import fixed_numerics

Work = Callable[[World, OnEpoch], None]


def run_ranks(work: Work, processes: int, threads: int, rendezvous: Path, on_epoch: OnEpoch) -> None:
    """Runs `work(world, on_epoch)` in that many processes with so many threads each; `work` must be picklable.

    The first process's epochs and log lines come out here. `rendezvous` is a file that does not exist.

    Raises:
        PassError: what a process raised, or that one of them died.
    """
    context = multiprocessing.get_context("spawn")  # a fork would inherit threads and locks in the middle of their work
    level = logging.getLogger("tasks").getEffectiveLevel()
    ranks: dict[Connection, Any] = {}
    try:
        for rank in range(processes):
            ours, theirs = context.Pipe(duplex=False)
            arguments = (work, World(rank, processes), threads, rendezvous, level, theirs)
            ranks[ours] = context.Process(target=_rank, args=arguments, daemon=True, name=f"rank {rank}")
            ranks[ours].start()
            theirs.close()
        _listen(dict(ranks), on_epoch)
    finally:
        for process in ranks.values():
            process.kill()
            process.join()


def _listen(ranks: dict[Connection, Any], on_epoch: OnEpoch) -> None:
    """Passes on what processes tell until all have ended well."""
    while ranks:
        failures: list[Exception] = []
        for pipe in [ready for ready in wait(list(ranks)) if isinstance(ready, Connection)]:
            process = ranks[pipe]
            try:
                message = pipe.recv()
            except EOFError:
                del ranks[pipe]
                process.join()
                if process.exitcode != 0:
                    failures.append(MethodError(f"{process.name} of the training died (exit code {process.exitcode}): run again"))
                continue
            if isinstance(message, Epoch):
                on_epoch(message)
            elif isinstance(message, logging.LogRecord):
                logging.getLogger(message.name).handle(message)
            else:
                failures.append(message)
        if failures:  # a peer that lost its connection is the consequence, not the cause
            raise next((error for error in failures if isinstance(error, PassError)), failures[0])


def _rank(work: Work, world: World, threads: int, rendezvous: Path, level: int, pipe: Connection) -> None:
    """The life of one process."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    first = world.rank == 0
    if first:
        ours = logging.getLogger("tasks")
        ours.handlers, ours.propagate = [_ToParent(pipe)], False
        ours.setLevel(level)
    else:
        logging.disable()
    try:
        with fixed_numerics(threads):
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            distributed.init_process_group(
                backend, init_method=rendezvous.resolve().as_uri(), rank=world.rank, world_size=world.processes
            )
            work(world, pipe.send if first else ignore_epoch)
            distributed.destroy_process_group()
    except PassError as error:
        pipe.send(error)
    except Exception as error:  # noqa: BLE001 (whatever it is, the parent is to tell it)
        pipe.send(MethodError(f"rank {world.rank} of the training failed: {type(error).__name__}: {error}"))


class _ToParent(logging.Handler):
    """Sends log lines to where they can be seen."""

    def __init__(self, pipe: Connection) -> None:
        super().__init__()
        self._pipe = pipe

    def emit(self, record: logging.LogRecord) -> None:
        record.msg, record.args = record.getMessage(), None
        self._pipe.send(record)


def end_with_parent() -> None:
    """A killed parent cannot end its children: they watch for it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
