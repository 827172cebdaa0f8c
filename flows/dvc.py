"""Runs DVC as a subprocess; the only file that calls it."""

import logging
import os
import signal
import subprocess
import sys
from collections import deque
from pathlib import Path

logger = logging.getLogger(__name__)


def run_dvc(project: Path, *arguments: str, label: str) -> tuple[int, list[str]]:
    """Runs a DVC command in `project` and logs its output; returns the exit code and the last lines."""
    # A stage's command is `python -m tasks`: the virtual environment's python must come first.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    tail: deque[str] = deque(maxlen=30)
    environment = {**os.environ, "PATH": path, "DVC_NO_ANALYTICS": "1"}
    command = [sys.executable, "-m", "dvc", *arguments]
    # A new session is one group with the step it runs: a timeout or Ctrl-C ends both.
    with subprocess.Popen(
        command, cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            for line in process.stdout or ():
                tail.append(line.rstrip())
                logger.info("%s | %s", label, line.rstrip())
            process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            raise
    return process.returncode, list(tail)
