"""A stack of servers for tests: ports that are free, and every process that belongs to it."""

import contextlib
import os
import socket
import sys
import urllib.request
from pathlib import Path

from tests.conftest import PROJECT

MARK = "PASS_TEST_STACK"  # in the environment of all that a test starts
NAMES = ("prefect", "mlflow", "console", "worker")


def free_ports(number: int) -> list[int]:
    """Ports that nobody uses."""
    found = [socket.socket() for _ in range(number)]
    for one in found:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in found]
    for one in found:
        one.close()
    return ports


def port_options(ports: list[int]) -> list[str]:
    """The options of `up` that choose these ports."""
    return [word for name, port in zip(NAMES, ports, strict=True) for word in (f"--{name}-port", str(port))]


def environment_of(folder: Path, **more: str) -> dict[str, str]:
    """An environment with a Prefect database of its own, whose processes `left_of` finds."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return kept | {
        MARK: str(folder),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")])),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PREFECT_HOME": str(folder / "prefect"),
        "OMP_NUM_THREADS": "1",
        **more,
    }


def left_of(folder: Path) -> list[str]:
    """The commands of all processes that were started with `environment_of(folder)`."""
    found, mark = [], f"{MARK}={folder}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is not ours; a zombie has no environment
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append(f"{process.name} {(process / 'cmdline').read_bytes().replace(bytes(1), b' ').decode()}")
    return found


def answers(address: str) -> bool:
    """Whether a server says that it is well."""
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
