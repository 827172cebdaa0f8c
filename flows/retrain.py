"""Drift, retrain, promote as a Prefect flow: checks new records, trains a candidate where it must, and decides about it."""

import dataclasses
import shlex
from functools import partial
from pathlib import Path
from typing import Any

from prefect import flow, runtime
from prefect.artifacts import create_table_artifact

from flows.engines import InProcessEngine
from flows.pipeline import chain, prefect_runner, publish_audit
from flows.prefect_setup import Policy, run_task, shown_progress
from flows.protect import secret_of
from pass_core.errors import DataError
from pass_core.storage.audits import read_audit
from tasks.config import Config
from tasks.production.champion_drift import NewRecords, check_new_records
from tasks.production.hold_out import audit_on
from tasks.production.model_versions import CHAMPION, Decided, ModelVersions
from tasks.production.notify import Notice, notify
from tasks.production.options import RetrainOptions, absolute
from tasks.production.promotion import Measured, decide, figures_of
from tasks.production.run import Hooks, draw_key_of
from tasks.production.troubles import Trouble, lake_command, public_place, reason_of
from tasks.running.step import Step, StepReport
from tasks.running.step_io import RunKey
from tasks.running.tracking import track_pipeline
from tasks.sections.running import NotifyConfig

POLICIES = {"drift": Policy(1, 5, 24 * 60), "compare": Policy(1, 5, 24 * 60), "promote": Policy(0, 0, 60)}


def _run_name() -> str:
    options = runtime.flow_run.parameters["options"]
    return str(options["dataset"] if isinstance(options, dict) else options.dataset)


@flow(name="pass-retrain", flow_run_name=_run_name, persist_result=False, validate_parameters=True)
def retrain(options: RetrainOptions) -> dict[str, Any]:
    """Checks new records for drift; trains a candidate where they drifted, and promotes, holds or rejects it.

    Args:
        options: the lake, its target, the data set's section of params.yaml, the model versions, and a fresh labelled sample.
    """
    notice = NotifyConfig()
    try:
        config = options.load_config()
        notice = config.notify
        return _retrained(options, config)
    except Exception as error:
        reason = f"the retraining failed: {reason_of(error)}; its log says more"
        _report(options, Trouble("failed", reason, lake_command("retrain", options)), notice)
        raise


def _retrained(options: RetrainOptions, config: Config) -> dict[str, Any]:
    models = ModelVersions(Path(options.models))
    champion, found = models.champion(), None
    if champion is not None:
        found = run_task("drift", f"drift {options.key}", partial(_check, options, config, models), POLICIES["drift"])
    due = _due(options, found)
    shown = {"drift": found.words() if found else None, "due": list(due), "champion": champion, "decision": None}
    if options.dry_run or not due:
        return shown
    with models.lock():
        decided = _candidate(options, config, models, drifted=bool(found and found.reasons))
    _report(options, _promotion(options, decided), config.notify)
    table = [{"reason": reason} for reason in decided.reasons]
    create_table_artifact(table=table, key="promotion", description=f"{decided.decision}: version {decided.version}")
    return (
        shown
        | {"champion": models.champion(), "decision": decided.decision, "version": decided.version}
        | {"reasons": list(decided.reasons)}
    )


def _check(options: RetrainOptions, config: Config, models: ModelVersions) -> NewRecords:
    secret = partial(secret_of, options.key_block) if options.key_block else None
    champion = models.layout(models.champion() or 0)
    return check_new_records(options, config, champion, draw_key_of(options, Hooks(secret=secret)))


def _due(options: RetrainOptions, found: NewRecords | None) -> tuple[str, ...]:
    """Why a candidate is to be trained; empty where it is not."""
    missing = () if found else ("there is no champion yet",)
    asked = (f"on request: {options.force}",) if options.force else ()
    return (*missing, *(found.reasons if found else ()), *asked)


def _candidate(options: RetrainOptions, config: Config, models: ModelVersions, *, drifted: bool) -> Decided:
    """Trains and audits a candidate, compares it with the champion on its hold-out, and settles the decision."""
    key, project, version = options.key, Path(options.params).resolve().parent, models.next()
    config = options.with_sample(config)
    with track_pipeline(f"retrain {key}", config.tracking, project):
        # The audit's own MLflow run would make a model that passes the champion at once: here the decision does that.
        quiet = dataclasses.replace(config, tracking=dataclasses.replace(config.tracking, enabled=False))
        training, judging = (InProcessEngine(c, models.root(version), project) for c in (config, quiet))
        runs = prefect_runner(training, shown_progress.get()), prefect_runner(judging, shown_progress.get())

        def run(step: Step, of: RunKey) -> StepReport:
            return runs[step.name in ("audit", "report")](step, of)

        chain(run, [options.dataset], [options.method])
        publish_audit(judging, key)
        compared: tuple[Measured, Measured | str | None] = run_task(
            "compare", f"compare {key}", partial(_compare, config, models, version, key), POLICIES["compare"]
        )
        promotion = decide(*compared, drifted=drifted)
        decided = models.decided(version, promotion.decision, promotion.reasons, key)
        figures = figures_of(zip(("candidate", "champion"), compared, strict=True))
        facts = {"drifted": str(drifted), "forced": options.force or ""}
        settle = partial(models.settle, decided, config.tracking, project, figures, facts)
        run_task("promote", f"{decided.decision} {key}", settle, POLICIES["promote"])
    return decided


def _compare(config: Config, models: ModelVersions, version: int, key: RunKey) -> tuple[Measured, Measured | str | None]:
    """Candidate and champion on the candidate's hold-out; a text where the champion cannot be measured there."""
    candidate, champion = models.layout(version), models.champion()
    measured = Measured.of(read_audit(candidate.artefact("audit", key)))
    if champion is None or measured.verdict != "pass":
        return measured, None
    try:
        return measured, Measured.of(audit_on(candidate, models.layout(champion), key, config, shown_progress.get()))
    except DataError as error:
        return measured, str(error)


def _promotion(options: RetrainOptions, decided: Decided) -> Trouble:
    """The notification of a decision: numbers of versions, and never a figure."""
    number, folder = decided.version, absolute(options.models)
    stays = "no version is the champion" if decided.champion is None else f"version {decided.champion} stays the champion"
    if decided.decision == "PROMOTE":
        again = options.model_copy(update={"models": f"{folder}/{CHAMPION}"})
        reason = f"model version {number} is the champion now (before: {decided.champion or 'none'}); it draws records anew"
        return Trouble("promotion", reason, f"{lake_command('protect', again)} --redraw 'the reason'")
    if decided.decision == "HOLD":
        words = ["pass-pipeline", "lake", "models", "promote", folder, str(number), "--reason", "the reason"]
        return Trouble("promotion", f"model version {number} is held: somebody has to decide; {stays}", shlex.join(words))
    return Trouble(
        "promotion", f"model version {number} was rejected; {stays}", f"pass-pipeline lake models list {shlex.quote(folder)}"
    )


def _report(options: RetrainOptions, trouble: Trouble, config: NotifyConfig) -> None:
    notify(Notice(options.dataset, public_place(absolute(options.target)), trouble), config)
