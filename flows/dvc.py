"""DVC, as a subprocess: the only file that calls it."""

import logging
import os
import signal
import subprocess
import sys
from collections import deque
from pathlib import Path

logger = logging.getLogger(__name__)


def run_dvc(project: Path, *arguments: str, label: str) -> tuple[int, list[str]]:
    """Runs a DVC command in `project`, its lines passed on to the log; the exit code and the last lines."""
    # The virtual environment's python first: a stage's command says `python -m tasks`.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    tail: deque[str] = deque(maxlen=30)
    process = subprocess.Popen(
        [sys.executable, "-m", "dvc", *arguments],
        cwd=project,
        env={**os.environ, "PATH": path, "DVC_NO_ANALYTICS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # DVC and the step it runs are one group, which a timeout or Ctrl-C ends as one
    )
    try:
        for line in process.stdout or ():
            tail.append(line.rstrip())
            logger.info("%s | %s", label, line.rstrip())
        process.wait()
    except BaseException:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
        raise
    finally:
        if process.stdout:
            process.stdout.close()
    return process.returncode, list(tail)
