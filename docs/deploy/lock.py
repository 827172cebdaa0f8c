"""Writes requirements.lock and torch.lock from what pip resolves: `python docs/deploy/lock.py` on Linux, Python 3.11."""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTORCH = ("torch", "torchaudio", "torchvision")  # whose build is chosen by COMPUTE
HEADER = "# Made by docs/deploy/lock.py with pip on Linux x86-64, Python 3.11: do not edit.\n"


def main() -> None:
    """Resolves the package with the extras that production needs, and writes every version with its digest."""
    project = f"{HERE.parents[1]}[distributed,lineage]"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-", project]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["install"]
    pins = {one["metadata"]["name"].lower().replace("_", "-").replace(".", "-"): one for one in found}
    pins.pop("pass-pipeline")
    versions = {name: one["metadata"]["version"].partition("+")[0] for name, one in sorted(pins.items())}
    hashed = [
        f"{name}=={version} --hash=sha256:{pins[name]['download_info']['archive_info']['hashes']['sha256']}\n"
        for name, version in versions.items()
        if name not in PYTORCH
    ]
    (HERE / "requirements.lock").write_text(HEADER + "".join(hashed))
    (HERE / "torch.lock").write_text(HEADER + "".join(f"{name}=={versions[name]}\n" for name in PYTORCH))


if __name__ == "__main__":
    main()
