"""Servers on this machine that end with the process that started them, however that one ends."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import IO

from pass_core.errors import EXIT_INTERRUPTED, ConfigError, PassError, TransientError
from tasks.running.processes import end_bound, start_bound

HOST = "127.0.0.1"  # this machine only: the servers need no password
START_SECONDS = 180.0  # on a busy machine
QUIET = {"DO_NOT_TRACK": "1", "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}


class Servers:
    """Servers that run as long as a block does, and end with all their children however this process ends."""

    def __init__(self, log: IO[bytes] | None = None) -> None:
        """`log` receives what they say; default: a temporary file."""
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._log = log or tempfile.TemporaryFile()  # noqa: SIM115 (it is deleted with this object)

    def __enter__(self) -> "Servers":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_INTERRUPTED))
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._running.values()):  # one that uses another was started after it
            end_bound([process])

    def start(self, name: str, command: Sequence[str], settings: Mapping[str, str] | None = None) -> None:
        """Starts `python -m command`, with these environment variables as well."""
        environment = {**os.environ, **QUIET, **(settings or {})}
        self._running[name] = start_bound([sys.executable, "-m", *command], env=environment, errors=self._log)

    def start_prefect(self, port: int) -> None:
        """Starts a Prefect server with its pages and its scheduler; its database stays in PREFECT_HOME."""
        settings = {"PREFECT_API_URL": f"http://{HOST}:{port}/api"}  # for its pages
        self.start("Prefect", ["prefect", "server", "start", "--host", HOST, "--port", str(port)], settings)

    def check(self) -> None:
        """Raises a PassError with the last line of a server that stopped."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise PassError(f"{name} stopped: {self._last_line()}")

    def finish(self, name: str) -> None:
        """Waits for a command that ends by itself; raises a PassError with its last line when it failed."""
        code = self._running.pop(name).wait()
        if code:
            raise PassError(f"{name} failed: {self._last_line().removeprefix('error: ')}")

    def wait_for(self, address: str) -> None:
        """Returns once an address answers; raises a PassError when a server stopped, or did not answer in time."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            self.check()
            with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(address, timeout=5):  # noqa: S310
                return
            time.sleep(0.5)
        raise TransientError(f"{address}: no answer within {START_SECONDS:.0f} s; try again when the machine is less busy")

    def _last_line(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no message"


def require_free(ports: Mapping[str, int]) -> None:
    """Raises a ConfigError unless each port, named by its option, is free and is named once."""
    for option, port in ports.items():
        if twice := [other for other, same in ports.items() if same == port and other != option]:
            raise ConfigError(f"{option} and {twice[0]}: expected two ports, found {port} for both; choose another")
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the port of a server that has just ended is free
            try:
                probe.bind((HOST, port))
            except OSError:
                raise ConfigError(
                    f"{option}: expected a free port, found that another program uses {port}; end it, or choose another port"
                ) from None
