"""How Prefect runs our code: retries and timeouts of each step, tasks without a cache, a server that ends with this process."""

import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import prefect
from prefect import Flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.events.worker import EventsWorker
from prefect.logging.handlers import APILogWorker
from prefect.settings import PREFECT_API_URL, get_current_settings, temporary_settings
from prefect.tasks import Task

from flows.servers import HOST, Servers, require_free
from pass_core.errors import PassError, TransientError
from tasks.running.progress import silent
from tasks.running.step_io import Reporter


@dataclass(frozen=True, slots=True)
class Policy:
    """Retries with a delay, and the longest time a step may take."""

    retries: int
    retry_delay_seconds: int
    timeout_minutes: int


POLICY = {
    "generate": Policy(1, 2, 30),
    "ingest": Policy(2, 5, 240),  # reads disks and networks
    "validate": Policy(1, 2, 60),
    "extract": Policy(1, 5, 24 * 60),
    "sample_pool": Policy(1, 2, 60),
    "train": Policy(1, 5, 48 * 60),
    "substitute": Policy(2, 5, 24 * 60),
    "audit": Policy(1, 5, 24 * 60),
    "report": Policy(1, 2, 30),
}

# The command line's display; Prefect stores a flow's parameters, so it cannot be one of them.
shown_progress: ContextVar[Reporter] = ContextVar("progress", default=silent)


class _OneLine(logging.Filter):
    """Shortens Prefect's report of an error that was raised on purpose: one line, no traceback, here and in its database."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, PassError):
            record.msg, record.args, record.exc_info = str(error), (), None
        return True


for _logger in ("prefect.flow_runs", "prefect.task_runs"):
    logging.getLogger(_logger).addFilter(_OneLine())


def is_transient(error: BaseException) -> bool:
    """Whether another attempt can succeed: a disk or a server may come back, wrong data and parameters stay wrong."""
    # A step that ran out of time and a path that does not exist raise OSErrors too, and would again.
    lasting = TimeoutError | FileNotFoundError | NotADirectoryError | IsADirectoryError
    return isinstance(error, TransientError | OSError) and not isinstance(error, lasting)


def _retry_transient(_task: Task[..., object], _run: TaskRun, state: State) -> bool:
    try:
        state.result()
    except BaseException as error:  # noqa: BLE001 (the error of the task, whatever it is)
        return is_transient(error)
    return False


def run_task(name: str, title: str, body: Callable[[], Any], policy: Policy) -> Any:
    """Runs `body` as a Prefect task without cache and stored result; only transient errors are retried."""
    body.__name__ = name
    decorate = task(
        name=name,
        task_run_name=title,
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=policy.retries,
        retry_delay_seconds=policy.retry_delay_seconds,
        retry_condition_fn=_retry_transient,
        timeout_seconds=policy.timeout_minutes * 60,
    )
    return decorate(body)()


def run_shown(chosen: Flow[..., Any], progress: Reporter, **arguments: object) -> Any:
    """Runs a flow with a progress display, on a temporary server where PREFECT_API_URL names none."""
    token = shown_progress.set(progress)
    try:
        with prefect_server():
            return chosen(**arguments)
    finally:
        shown_progress.reset(token)


@contextlib.contextmanager
def prefect_server(port: int | None = None) -> Iterator[str]:
    """The address of the server that PREFECT_API_URL names, or else of one for the block.

    With a port it has pages and schedules, else neither. Unlike Prefect's own temporary server it cannot outlive this process.
    """
    if elsewhere := PREFECT_API_URL.value():
        yield elsewhere
        return
    if port is not None:
        require_free({"--port": port})
    with Servers() as started:
        if port is not None:
            started.start_prefect(port)
        else:
            with socket.socket() as probe:
                probe.bind((HOST, 0))
                port = int(probe.getsockname()[1])
            settings = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
            settings |= get_current_settings().to_environment_variables(exclude_unset=True)
            factory = ["--app-dir", str(Path(prefect.__file__).parents[1]), "--factory", "prefect.server.api.server:create_app"]
            started.start("Prefect", ["uvicorn", *factory, "--host", HOST, "--port", str(port), "--log-level", "error"], settings)
        address = f"http://{HOST}:{port}/api"
        started.wait_for(f"{address}/health")
        with temporary_settings({PREFECT_API_URL: address}):
            try:
                yield address
            finally:  # what Prefect still has to send would fail once its server is gone, and be printed after our last line
                EventsWorker.drain_all(timeout=5)
                APILogWorker.drain_all(timeout=5)
