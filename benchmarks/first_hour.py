"""What the command line costs before any work: CPU seconds of `--help`, and the time of a wrong configuration.

python benchmarks/first_hour.py [repetitions]: the best of several runs, in processes of their own, so that a busy neighbour
spoils a run and not the figure. Goals: `--help` below 0.7 s of CPU; a typo reported in less than 2 s.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROJECT = Path(__file__).parent.parent
COMMANDS = {
    "help": ["--help"],
    "typo": ["run", "--set", "train.epoch=1"],
    "config_show": ["config", "show"],
    "config_explain": ["config", "explain", "audit.thresholds"],
}


def measure(arguments: list[str], folder: Path) -> tuple[float, float, int]:
    """Wall seconds, CPU seconds and exit code of a command."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [sys.executable, "-m", "flows.cli", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False, env=os.environ | {"PYTHONPATH": str(PROJECT)})
    wall, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.returncode


def main() -> None:
    """Prints one RESULT line."""
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "params.yaml").write_text((PROJECT / "params.yaml").read_text())
        for name, arguments in COMMANDS.items():
            runs = [measure(arguments, Path(folder)) for _ in range(repetitions)]
            expected = 2 if name == "typo" else 0
            if any(code != expected for *_, code in runs):
                raise SystemExit(f"{name}: expected exit code {expected}, found others; run it by hand")
            figures |= {
                f"{name}_wall": round(min(run[0] for run in runs), 2),
                f"{name}_cpu": round(min(run[1] for run in runs), 2),
            }
    print("RESULT " + json.dumps(figures))


if __name__ == "__main__":
    main()
