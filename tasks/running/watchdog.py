"""Runs a command until it ends or standard input closes, whichever comes first; `processes.start_bound` starts it.

A script of the standard library alone: it stays small, and starts in a few milliseconds. The process that started it holds the
other end of standard input, which the system closes however that process ends.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

SECONDS_TO_END = 10.0  # between SIGTERM and SIGKILL
SECONDS_BETWEEN_LOOKS = 0.2
ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER: processes whose parent has ended become children of this one
LINUX = sys.platform == "linux"


def main() -> int:
    """The command's exit code."""
    if LINUX:
        ctypes.CDLL(None).prctl(ADOPT_ORPHANS, 1, 0, 0, 0)
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)
    stopped = False

    def stop(_signal: int, _frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    while child.poll() is None and not stopped:
        stopped = stopped or bool(select.select([sys.stdin], [], [], SECONDS_BETWEEN_LOOKS)[0])
        _reap(child.pid)
    _send(signal.SIGTERM, child.pid)
    deadline = time.monotonic() + SECONDS_TO_END
    while _any_left(child) and time.monotonic() < deadline:
        time.sleep(SECONDS_BETWEEN_LOOKS / 10)
    while _any_left(child):
        _send(signal.SIGKILL, child.pid)
        time.sleep(SECONDS_BETWEEN_LOOKS / 10)
    return child.wait()


def _any_left(child: "subprocess.Popen[bytes]") -> bool:
    if child.poll() is None:
        return True
    _reap(child.pid)
    if LINUX:
        return any(_below(os.getpid()))
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, 0)
        return True
    return False


def _send(number: signal.Signals, child: int) -> None:
    """Sends a signal once to all that the command has started: sessions of their own hide them from its group, not from /proc."""
    kill, processes = (os.kill, [*_below(os.getpid())]) if LINUX else (os.killpg, [child])
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            kill(process, number)


def _below(process: int) -> Iterator[int]:
    """All processes that a process started or adopted, and those below them."""
    for thread in Path(f"/proc/{process}/task").glob("*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            for found in map(int, (thread / "children").read_text().split()):
                yield found
                yield from _below(found)


def _reap(child: int) -> None:
    """Forgets adopted processes that have ended; the exit code of the command is kept for its `Popen`."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid != child:
            os.waitpid(ended.si_pid, 0)


if __name__ == "__main__":
    sys.exit(main())
