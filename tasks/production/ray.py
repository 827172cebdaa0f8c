"""The distributed executor: Ray actors, each with model and pool, on one machine or many. This process publishes.

When a node dies, the partitions that it had in work are assigned again (attempts.py). All nodes must see staging, source, model
and pool under the same paths, and compute with the same arithmetic; both are checked before anything is drawn.
"""

import logging
import os
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from pass_core.errors import ConfigError, PassError, TransientError
from tasks.production.interfaces import Failure, Job, SourcePartition
from tasks.production.manifest import Receipt
from tasks.production.staging import PINNED
from tasks.production.worker import Worker, numerics_of
from tasks.running.processes import WorkerDied


class RayExecutor:
    """Actors of a Ray cluster: the one at `address` (`auto`: this machine's), or one that runs as long as the run."""

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        """`workers`: maximum number of actors; default: one per core of the cluster."""
        try:
            import ray
        except ImportError:
            raise ConfigError("expected the package ray, found none; pip install 'pass-pipeline[distributed]'") from None
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self._ray, self._workers, self._address, self._connected = ray, workers, address, False

    def protect(self, job: Job, work: Sequence[SourcePartition]) -> Iterator[Receipt | Failure]:
        if work and not self._connected:
            self._connect()
        if work:
            yield from self._stream(job, work)

    def close(self) -> None:
        if self._connected:
            self._ray.shutdown()
        self._connected = False

    def _connect(self) -> None:
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
        if self._address is None:  # reachable from this machine only
            quiet |= {"num_cpus": self._workers, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        host, _, port = (self._address or "").removeprefix("ray://").rpartition(":")
        try:
            if host and port.isdigit():  # fails at once where no server listens; Ray itself tries for minutes
                socket.create_connection((host, int(port)), timeout=10).close()
            self._ray.init(self._address, **quiet)
        except (OSError, ValueError, RuntimeError) as error:
            place = self._address or "a cluster of its own"
            raise TransientError(f"ray: cannot reach {place} ({type(error).__name__}); start it or correct --address") from None
        self._connected = True

    def _stream(self, job: Job, work: Sequence[SourcePartition]) -> Iterator[Receipt | Failure]:
        """One partition per actor at a time, until all are done; raises a WorkerDied at the end where actors were lost.

        Ray would wait for a dead node's cores to come back: `attempt_all` assigns the lost partitions again instead.
        """
        ray = self._ray
        cores = int(ray.cluster_resources().get("CPU", 1))
        actor = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(RayWorker)
        # By reference: Ray keeps the arguments of actors and tasks, and may log them; the job has the draw key.
        shared, numerics = ray.put((job, work)), numerics_of(job)
        actors = [actor.remote(shared, numerics) for _ in range(max(1, min(self._workers or cores, cores, len(work))))]
        answers, busy = {one.ready.remote(): one for one in actors}, set[Any]()  # what is expected; partitions among it
        waiting, lost = deque(range(len(work))), ""
        try:
            while answers and (waiting or busy):
                (answer,), _ = ray.wait(list(answers), num_returns=1)
                one, protected = answers.pop(answer), answer in busy
                busy.discard(answer)
                try:
                    outcome = ray.get(answer)
                except ray.exceptions.RayError as error:  # its text is a foreign traceback, which may hold a value
                    lost = type(error).__name__
                    continue
                if protected:
                    yield outcome
                if waiting:
                    answer = one.attempt.remote(waiting.popleft())
                    answers[answer] = one
                    busy.add(answer)
        finally:
            for one in actors:
                ray.kill(one)
        if lost:
            raise WorkerDied(f"ray: a worker died ({lost}); see the cluster's logs, then run again")


class RayWorker:
    """A worker in an actor."""

    def __init__(self, shared: tuple[Job, Sequence[SourcePartition]], numerics: dict[str, Any]) -> None:
        """A node that is unsuitable, or cannot start a worker, reports a failure for each partition."""
        pa.set_cpu_count(1)
        job, self._work = shared
        self._unfit, self._worker = unfit(job, numerics), None
        try:
            self._worker = None if self._unfit else Worker(job)
        except PassError as error:
            self._unfit = str(error)

    def ready(self) -> None:
        """Answers when the worker can be given work."""

    def attempt(self, number: int) -> Receipt | Failure:
        one = self._work[number]
        return self._worker.attempt_in_time(one) if self._worker else Failure(one.name, str(self._unfit), transient=False)


def unfit(job: Job, numerics: dict[str, Any]) -> str | None:
    """Why a node cannot take part."""
    if not (job.staging / PINNED).exists():
        return f"{job.staging}: a node of the cluster does not see this folder; put --state on a file system that all nodes share"
    own = numerics_of(job)
    differ = sorted(name for name in numerics if own.get(name) != numerics[name])
    found = f"a node of the cluster computes with another {', '.join(differ)}, and its draws could differ; remove it"
    return found if differ else None
