"""The servers of one machine, started and ended together: Prefect with a worker, MLflow, and the console's pages.

One process starts them all. They and it share one log; its lock is free again when the last of them has ended, and not before.
"""

import contextlib
import fcntl
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from flows.servers import HOST, Servers, require_free
from pass_core.errors import ConfigError, PassError, TransientError
from tasks.storage.files import storage_errors, write_json

LOG, STATE, SITE = "stack.log", "stack.json", "console"
SECONDS_TO_END = 60.0  # more than each server gets between SIGTERM and SIGKILL, one after the other
SECONDS_BETWEEN_LOOKS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Where each server listens, on this machine only."""

    prefect: int
    mlflow: int
    console: int
    worker: int  # of its health check

    def check(self) -> None:
        """Raises a ConfigError unless all are free."""
        require_free({f"--{name}-port": port for name, port in asdict(self).items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """What to start."""

    folder: Path  # of log, state and the console's pages
    ports: Ports
    pool: str  # work pool of the worker
    store: str  # MLflow's
    build: Sequence[str]  # of `pass-pipeline`: writes the console's pages; empty where no target is known: they stay as they are

    @property
    def pages(self) -> dict[str, str]:
        """The addresses for people."""
        ports = {"Prefect": self.ports.prefect, "MLflow": self.ports.mlflow, "console": self.ports.console}
        return {name: f"http://{HOST}:{port}" for name, port in ports.items()}

    @property
    def health(self) -> dict[str, str]:
        """An address for each server that answers 200 while it is well."""
        worker = f"http://{HOST}:{self.ports.worker}/health"
        pages = self.pages
        health = {"Prefect": f"{pages['Prefect']}/api/health", "MLflow": f"{pages['MLflow']}/health"}
        return health | {"console": f"{pages['console']}/", "worker": worker}

    def run(self, log: IO[bytes], show: Callable[[str], None]) -> None:
        """Runs the servers until this process is interrupted or one of them stops."""
        state: dict[str, Any] = {"process": os.getpid(), "ready": False, "pages": self.pages, "health": self.health}
        write_json(self.folder / STATE, state)
        try:
            with Servers(log) as started:
                self._start(started)
                write_json(self.folder / STATE, state | {"ready": True})
                for line in self.lines():
                    show(line)
                while True:
                    started.check()
                    time.sleep(SECONDS_BETWEEN_LOOKS)
        finally:
            (self.folder / STATE).unlink(missing_ok=True)

    def _start(self, started: Servers) -> None:
        ports, api = self.ports, f"{self.pages['Prefect']}/api"
        started.start_prefect(ports.prefect)
        mlflow = ["mlflow", "server", "--host", HOST, "--port", str(ports.mlflow), "--backend-store-uri", self.store]
        # Jobs of language models, in processes of their own: nobody here uses them.
        started.start("MLflow", [*mlflow, "--workers", "1"], {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"})
        site = ["http.server", str(ports.console), "--bind", HOST, "--directory", str(self.folder / SITE)]
        started.start("console", site)
        started.wait_for(self.health["Prefect"])
        if self.build:
            started.start("console build", ["flows.cli", *self.build], {"PREFECT_API_URL": api})
            started.finish("console build")
        worker = ["prefect", "worker", "start", "--pool", self.pool, "--type", "process", "--with-healthcheck"]
        settings = {"PREFECT_API_URL": api, "PREFECT_WORKER_WEBSERVER_HOST": HOST}
        started.start("worker", worker, settings | {"PREFECT_WORKER_WEBSERVER_PORT": str(ports.worker)})
        for address in (*self.health.values(), f"{api}/work_pools/{self.pool}"):
            started.wait_for(address)

    def lines(self) -> list[str]:
        """What people need to know once everything runs."""
        pages = [f"{name + ':':9} {page}" for name, page in self.pages.items()]
        worker = f"worker:   work pool {self.pool}, health {self.health['worker']}"
        runs = f"To send runs there: export PREFECT_API_URL={self.pages['Prefect']}/api"
        pages[-1] += "" if self.build else " (name a TARGET, or set schedule.target, for pages about it)"
        return [*pages, worker, f"log:      {self.folder / LOG}", runs]


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[IO[bytes]]:
    """The log of a new stack in this folder, empty and locked; every server that is started inherits it, and the lock."""
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / LOG).open("ab+") as log:
            if not _lock(log):
                raise ConfigError(
                    f"{folder}: expected no stack, found that one is running; end it: pass-pipeline down --folder {folder}"
                )
            log.truncate(0)
            (folder / STATE).unlink(missing_ok=True)  # of a stack that was killed
            yield log


def wait_until_ready(folder: Path, process: int) -> None:
    """Returns once the stack of a child process runs; raises a PassError with its last line when it ended."""
    try:
        while not _state(folder).get("ready"):
            if os.waitpid(process, os.WNOHANG)[0]:
                lines = (folder / LOG).read_text(errors="replace").strip().splitlines()
                reason = next((line for line in reversed(lines) if line.startswith("error: ")), "error: it was ended")
                raise PassError(f"{reason.removeprefix('error: ')}; {folder / LOG} says more")
            time.sleep(SECONDS_BETWEEN_LOOKS)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)
        raise


def end_stack(folder: Path) -> bool:
    """Ends all processes of the stack in this folder, also when the one that started them is gone; False where none ran."""
    if not (folder / LOG).exists():
        return False
    with (folder / LOG).open("rb") as log:
        if _lock(log):
            return False
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process := _state(folder).get("process"):
                with contextlib.suppress(ProcessLookupError):  # its servers are ending without it
                    os.kill(process, number)
            deadline = time.monotonic() + SECONDS_TO_END
            while time.monotonic() < deadline:
                if _lock(log):
                    (folder / STATE).unlink(missing_ok=True)
                    return True
                time.sleep(SECONDS_BETWEEN_LOOKS)
    raise TransientError(
        f"{folder}: expected all servers to have ended, found that some still run; `fuser -k {log.name}` ends them"
    )


def _lock(log: IO[bytes]) -> bool:
    """Locks a log that nobody else has locked."""
    try:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _state(folder: Path) -> dict[str, Any]:
    """What the stack has noted; empty before that."""
    with contextlib.suppress(FileNotFoundError):
        return dict(json.loads((folder / STATE).read_text()))
    return {}
