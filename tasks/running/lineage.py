"""OpenLineage events of a run: START, then COMPLETE, FAIL or ABORT. They name places, columns and counts, never a value.

OpenLineage's own environment variables, or the section `lineage`, say where they go; without either there are none. Nothing that
happens here stops a run: a receiver that is down or slow costs `lineage.seconds` for each event, and one warning.
"""

import datetime
import logging
import os
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from tasks.sections.running import LineageConfig

ENABLING = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT", "OPENLINEAGE__TRANSPORT__TYPE")
PRODUCER = "https://pypi.org/project/pass-pipeline"
THREAD = "openlineage"

logger = logging.getLogger(__name__)
Happened = Literal["START", "COMPLETE", "FAIL", "ABORT"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageDataset:
    """A data set or an artefact that a run reads or writes."""

    place: str  # an absolute path, or a URL without secrets
    version: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)  # name -> type
    rows: int | None = None  # of an output
    files: int | None = None
    bytes: int | None = None


class Lineage:
    """Sends the events of one run."""

    def __init__(self, job: str, config: LineageConfig, base: Path, run: uuid.UUID | None = None) -> None:
        """`base` is the folder of a relative `lineage.file`; `run` is the run's id elsewhere."""
        self._job, self._config, self._run = job, config, str(run or uuid.uuid4())
        self._file = str(base / config.file) if config.file else None
        disabled = os.environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true"
        self.enabled = not disabled and bool(self._file or any(os.environ.get(name) for name in ENABLING))
        self._client: Any = None
        self._warned = False

    def send(
        self,
        happened: Happened,
        inputs: Sequence[LineageDataset],
        outputs: Sequence[LineageDataset],
        reason: str | None = None,
    ) -> None:
        """Sends one event; `reason` is why the run failed, without any value."""
        if not self.enabled:
            return
        problem: list[str] = [f"no answer within {self._config.seconds:g} s"]

        def emit() -> None:
            try:
                self._client = self._client or self._make_client()
                self._client.emit(self._event(happened, inputs, outputs, reason))
                problem.clear()
            except Exception as error:  # noqa: BLE001 (nothing that happens there may stop a run; its text may hold the address)
                problem[0] = type(error).__name__

        # A thread, since a client tries several times, and each time has a time limit of its own.
        thread = threading.Thread(target=emit, name=THREAD, daemon=True)
        thread.start()
        thread.join(self._config.seconds)
        if problem and not self._warned:
            logger.warning("lineage: the receiver did not accept an event (%s)", problem[0])
            self._warned = True

    def _make_client(self) -> Any:
        """A client that says nothing itself: its messages hold addresses, and there would be one for each attempt."""
        from openlineage.client import OpenLineageClient, set_producer
        from openlineage.client.transport.file import FileConfig, FileTransport

        set_producer(PRODUCER)
        for name in ("openlineage.client", "urllib3.connectionpool"):
            for handled in (logging.getLogger(name), *map(logging.getLogger, _children(name))):
                handled.addFilter(_not_of_this_thread)
        client = OpenLineageClient(transport=FileTransport(FileConfig(self._file, append=True)) if self._file else None)
        if client.transport.kind == "console":  # what it falls back to, and its messages are filtered out
            raise LookupError("no transport")
        return client

    def _event(
        self, happened: Happened, inputs: Sequence[LineageDataset], outputs: Sequence[LineageDataset], reason: str | None
    ) -> Any:
        from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
        from openlineage.client.facet_v2 import error_message_run, job_type_job

        kind = job_type_job.JobTypeJobFacet(processingType="BATCH", integration="PASS_PIPELINE", jobType="JOB")
        failed = {"errorMessage": error_message_run.ErrorMessageRunFacet(message=reason, programmingLanguage="Python")}
        return RunEvent(
            eventTime=datetime.datetime.now(datetime.UTC).isoformat(),
            eventType=RunState[happened],
            run=Run(runId=self._run, facets=failed if reason else {}),
            job=Job(namespace=self._namespace, name=self._job, facets={"jobType": kind}),
            inputs=[_input(one) for one in inputs],
            outputs=[_output(one) for one in outputs],
        )

    @property
    def _namespace(self) -> str:
        return os.environ.get("OPENLINEAGE_NAMESPACE") or self._config.namespace


def _input(one: LineageDataset) -> Any:
    from openlineage.client.event_v2 import InputDataset

    return InputDataset(*_named(one.place), facets=_facets(one))


def _output(one: LineageDataset) -> Any:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

    counts = {"outputStatistics": statistics.OutputStatisticsOutputDatasetFacet(one.rows, one.bytes, one.files)}
    return OutputDataset(*_named(one.place), facets=_facets(one), outputFacets={} if one.rows is None else counts)


def _facets(one: LineageDataset) -> dict[str, Any]:
    from openlineage.client.facet_v2 import dataset_version_dataset, schema_dataset

    facets: dict[str, Any] = {}
    if one.columns:
        fields = [schema_dataset.SchemaDatasetFacetFields(name=name, type=kind) for name, kind in one.columns.items()]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=fields)
    if one.version:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=one.version)
    return facets


def _named(place: str) -> tuple[str, str]:
    """A place by OpenLineage's rules of naming: namespace and name."""
    if "://" not in place:
        return "file", place
    parts = urlsplit(place)
    return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/") or "/"


def _children(name: str) -> list[str]:
    return [one for one in logging.root.manager.loggerDict if one.startswith(f"{name}.")]


def _not_of_this_thread(_record: logging.LogRecord) -> bool:
    return threading.current_thread().name != THREAD
