"""The pipeline as a Prefect flow: one task per step, files between them, no Prefect caching (DVC is the one cache)."""

import os
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Read by Prefect at import: no telemetry, and time for its temporary server on a busy machine.
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "180")
os.environ.setdefault("PREFECT_LOGGING_EXTRA_LOGGERS", "tasks,flows")

from prefect import Flow, flow, runtime, task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import TaskRun
from prefect.states import State
from prefect.tasks import Task

from flows.cli.summary import audit_markdown, audit_rows
from flows.engines import Engine, EngineName, make_engine
from flows.prefect_setup import POLICY, Policy, is_transient
from tasks.config import load_config, parse_overrides
from tasks.registry import STEPS, is_generated
from tasks.reports.publish import publish_report
from tasks.running.layout import layout_at
from tasks.running.progress import silent
from tasks.running.step import Step, StepReport
from tasks.running.step_io import Reporter, RunKey
from tasks.running.tracking import track_pipeline

Runner = Callable[[Step, RunKey], StepReport]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a pipeline run gave for one data set and method."""

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


def _retry_transient(_task: Task[..., object], _run: TaskRun, state: State) -> bool:
    try:
        state.result()
    except BaseException as error:  # noqa: BLE001 (the state's own error, judged here)
        return is_transient(error)
    return False


def prefect_runner(engine: Engine, progress: Reporter) -> Runner:
    """Wraps the engine's run in one Prefect task per step."""

    def run(step: Step, key: RunKey) -> StepReport:
        policy = POLICY[step.name]

        def body() -> StepReport:
            return engine.run(step, key, progress)

        report: StepReport = as_task(body, step.name, f"{step.name} {key}", policy)()
        return report

    return run


def as_task(body: Callable[[], Any], name: str, run_name: str, policy: Policy) -> Task[[], Any]:
    """A Prefect task of our kind: no cache, no stored result, only passing faults tried again."""
    body.__name__ = name
    return task(
        body,
        name=name,
        task_run_name=run_name,
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=policy.retries,
        retry_delay_seconds=policy.retry_delay_seconds,
        retry_condition_fn=_retry_transient,
        timeout_seconds=policy.timeout_minutes * 60,
    )


def _run_name() -> str:
    """`synthetic_motion · pass_substitution`, from the flow's parameters."""
    given = runtime.flow_run.parameters
    return " · ".join(", ".join(given[name]) if given.get(name) else f"all {name}" for name in ("datasets", "methods"))


# What the command line shows; a flow's parameters are stored by Prefect and can hold no such object.
shown_progress: ContextVar[Reporter] = ContextVar("progress", default=silent)


@flow(name="pass-pipeline", flow_run_name=_run_name, persist_result=False, validate_parameters=True)
def pipeline(
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
        datasets: names from params.yaml; all listed there by default.
        methods: names from params.yaml; all listed there by default.
        root: scratch folder of the in-process engine.
        params: the parameter file; its folder is the project's.
        settings: `path=value` replacements of parameters, in-process engine only.
    """
    params_path = Path(params).resolve()
    config = load_config(params_path, parse_overrides(settings or []))
    config = config.with_names(tuple(datasets or config.datasets), tuple(methods or config.methods))
    chosen = make_engine(engine, config, Path(root) if root else None, params_path.parent, overridden=bool(settings))
    with track_pipeline(
        f"{', '.join(config.datasets)} · {', '.join(config.methods)}", config.tracking, params_path.parent
    ) as run_id:
        audits = chain(prefect_runner(chosen, shown_progress.get()), config.datasets, config.methods)
    outcomes = []
    for audit in audits:
        key = RunKey(audit.dataset, audit.method)
        layout = layout_at(chosen.root, raw_data_from_environment=not is_generated(key.dataset))
        path = publish_report(layout, key)
        show_audit(key, layout.artefact("audit", key), path)
        outcomes.append(Outcome(key, path, str(audit.verdict), run_id))
    return outcomes


def show_audit(key: RunKey, audit: Path, report: Path) -> None:
    """The audit in Prefect's UI: figures of attributes, never of records."""
    name = f"{key}".replace("/", "-").replace("_", "-")
    create_table_artifact(table=audit_rows(audit), key=f"nag-{name}", description=f"NAG per attribute, {key}")
    create_markdown_artifact(markdown=audit_markdown(audit, report), key=f"audit-{name}", description=f"Audit of {key}")


def run_pipeline(progress: Reporter, **arguments: object) -> list[Outcome]:
    """Runs the flow with a progress display."""
    outcomes: list[Outcome] = run_shown(pipeline, progress, **arguments)
    return outcomes


def run_shown(chosen: Flow[..., Any], progress: Reporter, **arguments: object) -> Any:
    """Runs a flow with a progress display."""
    token = shown_progress.set(progress)
    try:
        return chosen(**arguments)
    finally:
        shown_progress.reset(token)


if __name__ == "__main__":
    pipeline()
