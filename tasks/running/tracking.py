"""MLflow: one run per executed step, grouped per pipeline run; models registered, promoted by their audit.

The only file that imports mlflow. Nothing that holds records (data, pool, linkage) is ever logged.
"""

import contextlib
import datetime
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pass_core.errors import TrackingError
from pass_core.storage.models import describe_model
from pass_core.training.epochs import Epoch
from tasks.running.step_io import RunKey
from tasks.sections.running import TrackingConfig
from tasks.storage.files import digest, read_json

logger = logging.getLogger(__name__)

PARENT_RUN = "PASS_PIPELINE_RUN"  # environment: MLflow run that groups the steps of one pipeline run
CANDIDATE, CHAMPION = "candidate", "champion"


@dataclass(frozen=True, slots=True)
class StepRecord:
    """Receives a step's figures for the active MLflow run; discards them without one, when tracking is off."""

    key: RunKey
    run_id: str | None = None

    def log(
        self, params: Mapping[str, Any], figures: Mapping[str, float], epochs: tuple[Epoch, ...], digests: Mapping[str, str]
    ) -> None:
        """Logs parameters, counts and metrics, loss terms per epoch, and digests of the outputs."""
        if self.run_id is None:
            return
        import mlflow

        mlflow.log_params({name: str(value) for name, value in params.items()})
        mlflow.log_metrics({name: float(value) for name, value in figures.items()})
        mlflow.set_tags({f"digest.{name}": value for name, value in digests.items()})
        for epoch in epochs:
            mlflow.log_metrics(dict(epoch.terms), step=epoch.number)

    def log_outputs(self, inputs: Mapping[str, Path], outputs: Mapping[str, Path], verdict: str | None) -> None:
        """Logs model, audit and report among the outputs as artifacts, and registers the model."""
        if self.run_id is None:
            return
        import mlflow

        registered = f"pass-{self.key}".replace("/", "-")
        if "model" in outputs:
            _register(registered, outputs["model"])
        for name in ("curves", "validation", "audit", "nag_table", "bundle_table", "report"):
            if name in outputs:
                log = mlflow.log_artifacts if outputs[name].is_dir() else mlflow.log_artifact
                log(str(outputs[name]))
        if verdict is not None:
            mlflow.set_tag("verdict", verdict)
            _promote(registered, inputs["model"], verdict, read_json(outputs["audit"])["model_digest"])


@contextlib.contextmanager
def track_step(name: str, key: RunKey, config: TrackingConfig, engine: str, base: Path) -> Iterator[StepRecord]:
    """A run for one step, nested in the pipeline's run when there is one; marked failed when the step fails."""
    if not config.enabled:
        yield StepRecord(key)
        return
    import mlflow

    experiment = _connect(config, base)
    tags = {"step": name, "dataset": key.dataset, "method": key.method or "", "engine": engine}
    # The parent's run is active in another process or in none, so the tag nests this run.
    nesting = {"dvc_stage": os.environ.get("DVC_STAGE"), "mlflow.parentRunId": os.environ.get(PARENT_RUN)}
    tags |= {tag: value for tag, value in nesting.items() if value is not None}
    with (
        _tracking_errors(config),
        mlflow.start_run(experiment_id=experiment, run_name=f"{name} {key}", tags=tags, nested=True) as run,
    ):
        yield StepRecord(key, run.info.run_id)


@contextlib.contextmanager
def track_pipeline(name: str, config: TrackingConfig, base: Path) -> Iterator[str | None]:
    """A run that groups the steps started inside it, in this process and in its children; yields its id."""
    if not config.enabled:
        yield None
        return
    from mlflow.tracking import MlflowClient

    experiment = _connect(config, base)
    with _tracking_errors(config):
        client = MlflowClient()
        run_id = client.create_run(experiment, run_name=name, tags={"pipeline": name}).info.run_id
    before = os.environ.get(PARENT_RUN)
    os.environ[PARENT_RUN] = run_id
    status = "FAILED"
    try:
        yield run_id
        status = "FINISHED"
    finally:
        os.environ.pop(PARENT_RUN)
        if before is not None:
            os.environ[PARENT_RUN] = before
        client.set_terminated(run_id, status)


def tracking_uri(config: TrackingConfig, base: Path) -> str:
    """The store in use: the environment's, else SQLite in the configured folder."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{(base / config.store).resolve() / 'mlflow.db'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVersion:
    """A version of a registered model."""

    dataset: str
    method: str
    version: int
    aliases: tuple[str, ...]
    digest: str
    created: str  # UTC


def registered_models(config: TrackingConfig, base: Path) -> list[ModelVersion]:
    """All registered models, the newest versions first; none where there is no store, which is not made."""
    if not config.enabled or ("MLFLOW_TRACKING_URI" not in os.environ and not (base / config.store / "mlflow.db").exists()):
        return []
    from mlflow.tracking import MlflowClient

    _connect(config, base)
    found = []
    with _tracking_errors(config):
        client = MlflowClient()
        for model in client.search_registered_models():
            dataset, _, method = model.name.removeprefix("pass-").partition("-")
            for one in client.search_model_versions(f"name='{model.name}'"):
                time = datetime.datetime.fromtimestamp(one.creation_timestamp / 1000, datetime.UTC)
                found.append(
                    ModelVersion(
                        dataset=dataset,
                        method=method,
                        version=int(one.version),
                        aliases=tuple(sorted(alias for alias, v in model.aliases.items() if int(v) == int(one.version))),
                        digest=one.tags.get("model_digest", ""),
                        created=time.isoformat(timespec="seconds"),
                    )
                )
    return sorted(found, key=lambda one: (one.dataset, one.method, -one.version))


def _connect(config: TrackingConfig, base: Path) -> str:
    """Opens the store and returns the experiment's id."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    import mlflow

    for noisy in ("mlflow", "alembic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # prints what it raises; we report it once
    uri, given = tracking_uri(config, base), os.environ.get("MLFLOW_TRACKING_URI")
    with _tracking_errors(config):
        folder = (base / config.store).resolve()
        if given is None:
            folder.mkdir(parents=True, exist_ok=True)
        mlflow.set_tracking_uri(uri)
        if given is None:
            os.environ.pop("MLFLOW_TRACKING_URI", None)  # MLflow sets it, too, which would look like the user's choice
        found = mlflow.get_experiment_by_name(config.experiment)
        artifacts = (folder / "artifacts").as_uri() if given is None else None
        return str(found.experiment_id if found else mlflow.create_experiment(config.experiment, artifact_location=artifacts))


@contextlib.contextmanager
def _tracking_errors(config: TrackingConfig) -> Iterator[None]:
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError) as error:
        lines = str(error).strip().splitlines()
        reason = next((line for line in lines if "Error)" in line), lines[0])
        raise TrackingError(
            f"MLflow store {config.store}: {reason}; make it writable, change tracking.store, or set tracking.enabled: false"
        ) from error


def _register(name: str, model: Path) -> Any:
    """Logs a model (safetensors + JSON, with a signature) and registers it as the candidate."""
    import mlflow
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    description = describe_model(model)
    single = np.dtype(np.float32)
    outputs = (-1, description["pool_size"]) if description["has_channel"] else (-1, *description["feature_shape"])
    signature = ModelSignature(
        inputs=Schema([TensorSpec(single, (-1, *description["feature_shape"]))]), outputs=Schema([TensorSpec(single, outputs)])
    )
    with warnings.catch_warnings():
        # MLflow recommends an input example, which would be a person's record.
        warnings.filterwarnings("ignore", message=".*input example was not provided", category=UserWarning)
        info = mlflow.pyfunc.log_model(
            name="model",
            loader_module="tasks.running.mlflow_model",
            data_path=str(model),
            signature=signature,
            pip_requirements=["pass-pipeline"],
        )
    client = mlflow.MlflowClient()
    if not client.search_registered_models(f"name='{name}'"):
        client.create_registered_model(name)
    tags, run = {"model_digest": digest(model)}, mlflow.active_run().info.run_id
    version = client.create_model_version(name, info.model_uri, run, tags=tags, model_id=info.model_id).version
    client.set_registered_model_alias(name, CANDIDATE, version)
    return version


def _promote(name: str, model: Path, verdict: str, model_digest: str) -> None:
    """Makes the audited model the champion when its audit passed; removes the alias when it failed."""
    import mlflow

    client = mlflow.MlflowClient()
    versions = client.search_model_versions(f"name='{name}'")
    audited = [int(v.version) for v in versions if v.tags.get("model_digest") == model_digest]
    # A model restored from DVC's cache was never registered in this store: register it now.
    version = str(max(audited)) if audited else _register(name, model)
    if verdict == "pass":
        client.set_registered_model_alias(name, CHAMPION, version)
    elif CHAMPION in client.get_registered_model(name).aliases:
        champion = client.get_model_version_by_alias(name, CHAMPION)
        if champion.tags.get("model_digest") == model_digest:
            client.delete_registered_model_alias(name, CHAMPION)
