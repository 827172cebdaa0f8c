"""Two ways to run a step: through DVC, which skips what is up to date, or in this process below a scratch folder."""

from pathlib import Path
from typing import Protocol

from flows import EngineName
from flows.dvc import run_dvc
from pass_core.errors import EXIT_TRANSIENT, ConfigError, StageFailed, TransientError
from tasks.config import Config
from tasks.registry import is_generated
from tasks.running.layout import Layout, layout_at, owned_by_dvc
from tasks.running.step import Step, StepReport, run_step
from tasks.running.step_io import Reporter, RunKey


class Engine(Protocol):
    """Runs a step and gives its report."""

    root: Path

    def run(self, step: Step, key: RunKey, progress: Reporter) -> StepReport:
        """Raises a PassError when the step fails."""


class InProcessEngine:
    """Runs steps here, below a root that DVC does not own."""

    def __init__(self, config: Config, root: Path, project: Path) -> None:
        owned = owned_by_dvc(root.resolve(), project)
        if owned is not None:
            raise ConfigError(
                f"root {root}: holds {owned}, which DVC owns: expected a scratch folder such as data/runs/NAME, or --engine dvc"
            )
        self.root = root
        self._config = config
        self._project = project

    def run(self, step: Step, key: RunKey, progress: Reporter) -> StepReport:
        layout = layout_of(self.root, key.dataset)
        return run_step(step, key, self._config, layout, "in-process", progress=progress, store=self._project)


class DvcEngine:
    """Runs `dvc repro --single-item` on a step's stage: DVC skips it when nothing it depends on has changed."""

    def __init__(self, project: Path) -> None:
        self.root = project / "data"
        self._project = project

    def run(self, step: Step, key: RunKey, progress: Reporter) -> StepReport:
        del progress  # the stage runs in a process of its own, whose output is logged
        stage = stage_name(step, key)
        code, tail = run_dvc(self._project, "--wait-for-lock", "repro", "--single-item", stage, label=stage)
        if code != 0:
            reason = next((line for line in tail if line.startswith("error: ")), tail[-1] if tail else "no output")
            message = f"stage {stage} failed: {reason.removeprefix('error: ')}"
            # DVC reports the step's exit code in its last line only.
            transient = any(line.endswith(f"exited with {EXIT_TRANSIENT}") for line in tail)
            raise TransientError(message) if transient else StageFailed(message)
        return StepReport.load(layout_at(self.root, raw_data_from_environment=False).step_report(step.name, key))


def layout_of(root: Path, dataset: str) -> Layout:
    """The files below `root`; raw data that are not generated here may lie in PASS_RAW_DATA."""
    return layout_at(root, raw_data_from_environment=not is_generated(dataset))


def make_engine(name: EngineName, config: Config, root: Path | None, project: Path, *, overridden: bool) -> Engine:
    """The engine of that name; a versioned run takes its parameters from params.yaml only."""
    if name == "in-process":
        return InProcessEngine(config, root or project / "data" / "runs" / "default", project)
    if overridden or root is not None:
        raise ConfigError(
            "engine dvc: parameters and paths come from params.yaml and dvc.yaml; use --engine in-process to change them"
        )
    return DvcEngine(project)


def stage_name(step: Step, key: RunKey) -> str:
    """The DVC stage of a step: `train@synthetic_motion-pass_substitution`."""
    return f"{step.name}@{key}".replace("/", "-")
