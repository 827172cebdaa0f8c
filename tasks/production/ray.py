"""The distributed executor: Ray Data actors, each with model and pool, on one machine or many. This process publishes.

When a node dies, the partitions in work are assigned again (attempts.py). All nodes must see staging, source, model and pool
under the same paths, and compute with the same arithmetic; both are checked before anything is drawn.
"""

import json
import logging
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from pass_core.errors import ConfigError, TransientError
from tasks.production.interfaces import Failure, Job, SourcePartition
from tasks.production.manifest import Receipt, read_receipt, to_json
from tasks.production.staging import PINNED
from tasks.production.worker import Worker, numerics_of
from tasks.running.processes import WorkerDied


class RayExecutor:
    """Actors of a Ray cluster: the one at `address` (`auto`: this machine's), or one that runs as long as the run."""

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        """`workers`: maximum number of actors; default: one per core of the cluster."""
        try:
            import ray.data
        except ImportError:
            raise ConfigError("expected the package ray, found none; pip install 'pass-pipeline[distributed]'") from None
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self._ray, self._workers, self._address, self._connected = ray, workers, address, False

    def protect(self, job: Job, work: Sequence[SourcePartition]) -> Iterator[Receipt | Failure]:
        if work and not self._connected:
            self._connect()
        try:
            yield from self._round(job, {one.name: one for one in work}) if work else ()
        except self._ray.exceptions.RayError as error:  # its text is a foreign traceback, which may hold a value
            raise WorkerDied(f"ray: a worker died ({type(error).__name__}); see the cluster's logs, then run again") from None

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
        logging.getLogger("ray.data").setLevel(logging.WARNING)
        context = self._ray.data.DataContext.get_current()
        context.max_errored_blocks = 0  # a failed block is never dropped
        context.enable_progress_bars = False

    def _round(self, job: Job, work: Mapping[str, SourcePartition]) -> Iterator[Receipt | Failure]:
        """Assigns partitions, one per block; raises a RayError when a worker is lost, and with it the rest of the round."""
        cores = int(self._ray.cluster_resources().get("CPU", 1))
        actors = max(1, min(self._workers or cores, cores, len(work)))
        numerics = numerics_of(job)
        rows = self._ray.data.from_items([{"partition": name} for name in work], override_num_blocks=len(work))
        done = rows.map(
            RayWorker,
            fn_constructor_args=(job, numerics, work),
            compute=self._ray.data.ActorPoolStrategy(size=actors),
            num_cpus=1,
            # Ray would wait for a dead node's cores to come back: `protect` assigns the partitions again instead.
            ray_remote_args_fn=lambda: {"max_restarts": 0, "max_task_retries": 0},
        )
        for row in done.iter_rows():
            raw = json.loads(row["outcome"])
            yield Failure(**raw) if "message" in raw else read_receipt(raw)


class RayWorker:
    """A worker in an actor."""

    def __init__(self, job: Job, numerics: dict[str, Any], work: Mapping[str, SourcePartition]) -> None:
        """An unsuitable node reports a failure for each partition: Ray restarts an actor that raises for ever."""
        pa.set_cpu_count(1)
        self._work, self._unfit = work, unfit(job, numerics)
        self._worker = None if self._unfit else Worker(job)

    def __call__(self, row: dict[str, str]) -> dict[str, str]:
        name = row["partition"]
        failed = Failure(name, str(self._unfit), transient=False)
        return {"outcome": json.dumps(to_json(self._worker.attempt(self._work[name]) if self._worker else failed))}


def unfit(job: Job, numerics: dict[str, Any]) -> str | None:
    """Why a node cannot take part."""
    if not (job.staging / PINNED).exists():
        return f"{job.staging}: a node of the cluster does not see this folder; put --state on a file system that all nodes share"
    own = numerics_of(job)
    differ = sorted(name for name in numerics if own.get(name) != numerics[name])
    found = f"a node of the cluster computes with another {', '.join(differ)}, and its draws could differ; remove it"
    return found if differ else None
