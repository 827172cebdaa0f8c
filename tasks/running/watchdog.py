"""Runs a command until it ends or standard input closes, whichever comes first; `processes.start_bound` starts it.

A script of the standard library alone: it stays small, and starts in a few milliseconds. The process that started it holds the
other end of standard input, which the system closes however that process ends.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
from types import FrameType

SECONDS_TO_END = 10.0  # between SIGTERM and SIGKILL
SECONDS_BETWEEN_LOOKS = 0.2


def main() -> int:
    """The command's exit code."""
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)
    stopped = False

    def stop(_signal: int, _frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    while child.poll() is None and not stopped:
        stopped = stopped or bool(select.select([sys.stdin], [], [], SECONDS_BETWEEN_LOOKS)[0])
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(SECONDS_TO_END)
        os.killpg(child.pid, signal.SIGKILL)  # children that outlived the command
    return child.wait()


if __name__ == "__main__":
    sys.exit(main())
