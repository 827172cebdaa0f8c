"""One executor for all steps: checks, numerics, random streams, staging, publishing, report, provenance, tracking."""

import dataclasses
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pass_core.errors import DataError
from tasks.config import Config
from tasks.running.layout import Layout
from tasks.running.numerics import fixed_numerics
from tasks.running.progress import silent
from tasks.running.provenance import describe
from tasks.running.step_io import Reporter, RunKey, StepIO, StepResult
from tasks.running.tracking import track_step
from tasks.storage.files import digest, publish, read_json, rounded, staging_folder, storage_errors, write_json

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """The versioned record of a step: the same for the same inputs, so without times or places."""

    step: str
    dataset: str
    method: str | None
    counts: Mapping[str, int]
    metrics: Mapping[str, float]
    verdict: str | None
    digests: Mapping[str, str]  # output -> SHA-256
    notes: Sequence[str] = ()

    @classmethod
    def load(cls, path: Path) -> "StepReport":
        """The report of a finished step."""
        return cls(**read_json(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A row of the step table."""

    name: str
    run: Callable[[Config, StepIO], StepResult]
    sections: tuple[str, ...]  # parameters it depends on, as DVC's `params:` names them
    inputs: tuple[str, ...]  # artefacts of `tasks.running.layout.ARTEFACTS`
    outputs: tuple[str, ...]
    per_method: bool

    def watched(self, key: RunKey) -> tuple[str, ...]:
        """The sections for a key: `dataset.{dataset}` filled in."""
        return tuple(section.format(dataset=key.dataset, method=key.method) for section in self.sections)

    def key(self, dataset: str, method: str | None) -> RunKey:
        """The key of this step for a data set and a method."""
        return RunKey(dataset, method if self.per_method else None)


def run_step(
    step: Step, key: RunKey, config: Config, layout: Layout, engine: str, *, progress: Reporter = silent, store: Path = Path()
) -> StepReport:
    """Runs a step; publishes its outputs, each atomically, only after the whole step has succeeded.

    `engine` is the caller, recorded in provenance and MLflow; `store` is the base folder of a relative `tracking.store`.
    """
    inputs = {name: layout.artefact(name, key) for name in step.inputs}
    for name, path in inputs.items():
        if not path.exists() and (name != "raw" or config.dataset[key.dataset].needs_raw):
            advice = "put the published files there, or set PASS_RAW_DATA" if name == "raw" else "run the earlier steps first"
            raise DataError(f"{path}: expected input {name!r} of step {step.name} is missing; {advice}")
    started = time.monotonic()
    staging_name = f"{step.name}-{key}".replace("/", "-")
    with (
        storage_errors(layout.root),
        staging_folder(layout.staging, staging_name) as staging,
        track_step(step.name, key, config.tracking, engine, store) as record,
        fixed_numerics(config.compute.threads),
    ):
        outputs = {name: staging / f"{name}{layout.artefact(name, key).suffix}" for name in step.outputs}
        io = StepIO(
            key=key,
            inputs=inputs,
            outputs=outputs,
            data_docs=layout.data_docs(step.name, key),
            cache=layout.cache,
            seed=config.seed,
            labels=(step.name, str(key)),
            progress=progress,
        )
        result = step.run(config, io)
        report = StepReport(
            step=step.name,
            dataset=key.dataset,
            method=key.method,
            counts=dict(result.counts),
            metrics=rounded(dict(result.metrics)),
            verdict=result.verdict,
            digests={name: digest(path) for name, path in outputs.items()},
            notes=result.notes,
        )
        published = {name: layout.artefact(name, key) for name in outputs}
        for name, path in outputs.items():
            publish(path, published[name])
        write_json(layout.step_report(step.name, key), dataclasses.asdict(report))
        seconds = time.monotonic() - started
        record.log(_parameters(step, key, config), {**report.counts, **report.metrics}, result.epochs, report.digests)
        record.log_outputs(inputs, published, report.verdict)
        write_json(layout.provenance(step.name, key), describe(engine, seconds) | {"mlflow_run": record.run_id})
    for path in result.spent:
        path.unlink(missing_ok=True)
    counts = ", ".join(f"{number} {name}" for name, number in result.counts.items())
    logger.info("%s %s: %s in %.1f s", step.name, key, counts or "done", seconds)
    return report


def _parameters(step: Step, key: RunKey, config: Config) -> dict[str, Any]:
    """The parameters this step depends on, flat: `train.epochs` -> 20."""

    def flatten(path: str, value: Any) -> Iterator[tuple[str, Any]]:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        if isinstance(value, Mapping):
            for name, item in value.items():
                yield from flatten(f"{path}.{name}" if path else str(name), item)
        else:
            yield path, value

    watched = step.watched(key)
    return {path: value for path, value in flatten("", config) if any(f"{path}.".startswith(f"{s}.") for s in watched)}
