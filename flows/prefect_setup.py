"""How Prefect runs our code: retries and timeouts of each step, tasks without a cache, a server that ends with the run."""

import contextlib
import socket
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import prefect
from prefect import Flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.settings import PREFECT_API_URL, get_current_settings, temporary_settings
from prefect.tasks import Task

from flows.servers import HOST, servers
from pass_core.errors import TransientError
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

PROTECT = Policy(1, 5, 24 * 60)  # a batch of a lake's partitions
PUBLISH = Policy(0, 0, 24 * 60)  # not retried: a new run reuses the staged partitions

# The command line's display; Prefect stores a flow's parameters, so it cannot be one of them.
shown_progress: ContextVar[Reporter] = ContextVar("progress", default=silent)


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


def as_task(body: Callable[[], Any], name: str, run_name: str, policy: Policy) -> Callable[[], Any]:
    """A Prefect task without cache and stored result; only transient errors are retried."""
    body.__name__ = name
    decorate = task(
        name=name,
        task_run_name=run_name,
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=policy.retries,
        retry_delay_seconds=policy.retry_delay_seconds,
        retry_condition_fn=_retry_transient,
        timeout_seconds=policy.timeout_minutes * 60,
    )
    return cast("Callable[[], Any]", decorate(body))


def run_shown(chosen: Flow[..., Any], progress: Reporter, **arguments: object) -> Any:
    """Runs a flow with a progress display, on a temporary server where PREFECT_API_URL names none."""
    token = shown_progress.set(progress)
    try:
        with temporary_server():
            return chosen(**arguments)
    finally:
        shown_progress.reset(token)


@contextlib.contextmanager
def temporary_server() -> Iterator[None]:
    """A Prefect server without pages and schedules for the block. Unlike Prefect's own it cannot outlive this process."""
    if PREFECT_API_URL.value():
        yield
        return
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = str(probe.getsockname()[1])
    settings = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
    settings |= get_current_settings().to_environment_variables(exclude_unset=True)
    folder = str(Path(prefect.__file__).parents[1])
    factory = ["--app-dir", folder, "--factory", "prefect.server.api.server:create_app"]
    with servers() as started:
        started.start(["uvicorn", *factory, "--host", HOST, "--port", port, "--log-level", "error"], settings)
        started.wait_for(f"http://{HOST}:{port}/api/health")
        with temporary_settings({PREFECT_API_URL: f"http://{HOST}:{port}/api"}):
            yield
