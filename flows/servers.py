"""Servers of this machine that run as long as a block does, and end with all their children however this process ends."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType

from pass_core.errors import EXIT_INTERRUPTED, PassError, TransientError
from tasks.running.processes import end_bound, start_bound

HOST = "127.0.0.1"  # this machine only: the servers need no password
START_SECONDS = 180.0  # on a busy machine
QUIET = {"DO_NOT_TRACK": "1", "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}


def prefect_server(port: int) -> list[str]:
    """The command of a Prefect server with its pages and its scheduler."""
    return ["prefect", "server", "start", "--host", HOST, "--port", str(port)]


class Servers:
    """Server processes that should all be running."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process; a pipe that nobody reads would fill and block)

    def start(self, command: Sequence[str], settings: Mapping[str, str] | None = None) -> None:
        """Starts `python -m command`, with these environment variables as well."""
        environment = {**os.environ, **QUIET, **(settings or {})}
        self._running.append(start_bound([sys.executable, "-m", *command], env=environment, errors=self._log))

    def check(self) -> None:
        """Raises a PassError with the last line of a server that stopped."""
        if any(process.poll() is not None for process in self._running):
            self._log.seek(0)
            lines = self._log.read().decode(errors="replace").strip().splitlines()
            raise PassError(f"a server stopped: {lines[-1] if lines else 'no message'}; is its port in use?")

    def wait_for(self, address: str) -> None:
        """Returns once an address answers.

        Raises:
            PassError: a server stopped, or did not answer in time.
        """
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            self.check()
            with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(address, timeout=5):  # noqa: S310
                return
            time.sleep(0.5)
        raise TransientError(f"{address}: no answer within {START_SECONDS:.0f} s; try again when the machine is less busy")

    def end(self) -> None:
        """Ends all of them."""
        end_bound(self._running)


@contextlib.contextmanager
def servers() -> Iterator[Servers]:
    """Servers that end with the block, also when this process receives SIGTERM."""
    signal.signal(signal.SIGTERM, _stop)
    started = Servers()
    try:
        yield started
    finally:
        started.end()


def _stop(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(EXIT_INTERRUPTED)
