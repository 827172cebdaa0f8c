"""The pipeline as a Prefect flow: one task per step, files between them, no Prefect caching (DVC is the one cache)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from prefect import flow, runtime
from prefect.artifacts import create_markdown_artifact, create_table_artifact

from flows import EngineName
from flows.engines import Engine, layout_of, make_engine
from flows.lineage import traced
from flows.prefect_setup import POLICY, run_task, shown_progress
from flows.summary import audit_markdown, audit_rows
from tasks.config import load_config, parse_overrides
from tasks.registry import STEPS, is_generated
from tasks.reports.publish import publish_report
from tasks.running.step import Step, StepReport
from tasks.running.step_io import Reporter, RunKey
from tasks.running.tracking import track_pipeline

Runner = Callable[[Step, RunKey], StepReport]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a pipeline run for one data set and method."""

    key: RunKey
    report_path: Path
    verdict: str
    mlflow_run: str | None


def chain(run: Runner, datasets: Sequence[str], methods: Sequence[str]) -> list[StepReport]:
    """Runs every step for every data set and method, in order; the audits' reports, one per data set and method."""
    audits = []
    for dataset in datasets:
        for step in STEPS.values():
            if not step.per_method and (step.name != "generate" or is_generated(dataset)):
                run(step, step.key(dataset, None))
        for method in methods:
            reports = {step.name: run(step, step.key(dataset, method)) for step in STEPS.values() if step.per_method}
            audits.append(reports["audit"])
    return audits


def prefect_runner(engine: Engine, progress: Reporter) -> Runner:
    """Wraps the engine's run in one Prefect task per step."""

    def run(step: Step, key: RunKey) -> StepReport:
        title, policy = f"{step.name} {key}", POLICY[step.name]
        report: StepReport = run_task(step.name, title, lambda: engine.run(step, key, progress), policy)
        return report

    return run


def _run_name() -> str:
    """`synthetic_motion · pass_substitution`, from the flow's parameters."""
    given = runtime.flow_run.parameters
    return " · ".join(", ".join(given[name]) if given.get(name) else f"all {name}" for name in ("datasets", "methods"))


@flow(name="pass-pipeline", flow_run_name=_run_name, persist_result=False, validate_parameters=True)
def pipeline(
    *,
    engine: EngineName = "dvc",
    datasets: list[str] | None = None,
    methods: list[str] | None = None,
    root: str | None = None,
    params: str = "params.yaml",
    settings: list[str] | None = None,
) -> list[Outcome]:
    """Protects data sets and audits the result.

    Args:
        engine: `dvc` runs what has changed in the versioned project; `in-process` runs everything below `root`.
        datasets: names from params.yaml; by default all that it lists.
        methods: names from params.yaml; by default all that it lists.
        root: scratch folder of the in-process engine.
        params: the parameter file; its folder is the project root.
        settings: parameters to override as `path=value`, in-process engine only.
    """
    params_path = Path(params).resolve()
    config = load_config(params_path, parse_overrides(settings or []))
    config = config.with_names(tuple(datasets or config.datasets), tuple(methods or config.methods))
    chosen = make_engine(engine, config, Path(root) if root else None, params_path.parent, overridden=bool(settings))
    title = f"{', '.join(config.datasets)} · {', '.join(config.methods)}"
    project = params_path.parent
    with track_pipeline(title, config.tracking, project) as run_id, traced(config, chosen.root, project):
        audits = chain(prefect_runner(chosen, shown_progress.get()), config.datasets, config.methods)
    keys = [RunKey(audit.dataset, audit.method) for audit in audits]
    return [Outcome(key, publish_audit(chosen, key), str(audit.verdict), run_id) for key, audit in zip(keys, audits, strict=True)]


def publish_audit(engine: Engine, key: RunKey) -> Path:
    """Writes the report and shows the audit in Prefect's UI: figures of attributes, never of records."""
    layout = layout_of(engine.root, key.dataset)
    audit, report = layout.artefact("audit", key), publish_report(layout, key)
    name = f"{key}".replace("/", "-").replace("_", "-")
    create_table_artifact(table=audit_rows(audit), key=f"nag-{name}", description=f"NAG per attribute, {key}")
    create_markdown_artifact(markdown=audit_markdown(audit, report), key=f"audit-{name}", description=f"Audit of {key}")
    return report


if __name__ == "__main__":
    pipeline()
