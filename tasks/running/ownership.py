"""Which folders belong to DVC: what it owns is written by its stages with the parameters of params.yaml, by nothing else."""

from pathlib import Path
from typing import Any

import yaml


def owned_by_dvc(root: Path, project: Path) -> str | None:
    """An output of the project's dvc.yaml that lies in `root` (or that `root` lies in), None when there is none."""
    path = project / "dvc.yaml"
    if not path.exists():
        return None
    stages: dict[str, Any] = yaml.safe_load(path.read_text())["stages"]
    for stage in stages.values():
        for out in [*stage.get("outs", ()), *stage.get("metrics", ()), *stage.get("plots", ())]:
            text = out if isinstance(out, str) else next(iter(out))
            fixed = (project / text.split("${")[0]).resolve()  # the part before the first placeholder
            if fixed.is_relative_to(root) or root.is_relative_to(fixed):
                return text
    return None
