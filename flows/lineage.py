"""The lineage of a pipeline run: raw data sets, and the releases and models that it made."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from flows.engines import layout_of
from pass_core.errors import PassError
from tasks.config import Config
from tasks.production.troubles import public_place, reason_of
from tasks.running.lineage import Lineage, LineageDataset
from tasks.running.step import StepReport
from tasks.running.step_io import RunKey
from tasks.sections.lake import LakeConfig
from tasks.storage.parquet import shards

MADE = (("substitute", "protected"), ("train", "model"))  # step and artefact


@contextlib.contextmanager
def traced(config: Config, root: Path, project: Path) -> Iterator[None]:
    """Sends START before the block, and how it ended after it."""
    keys = [RunKey(dataset, method) for dataset in config.datasets for method in config.methods]
    names = f"run-{'-'.join(config.datasets)}-{'-'.join(config.methods)}"
    lineage = Lineage(names, config.lineage, project)
    inputs = [LineageDataset(place=_source(config, root, dataset)) for dataset in config.datasets]
    lineage.send("START", inputs, [])
    try:
        yield
    except BaseException as error:
        lineage.send("FAIL" if isinstance(error, Exception) else "ABORT", inputs, [], reason_of(error))
        raise
    lineage.send("COMPLETE", inputs, _made(root, keys) if lineage.enabled else [])


def _source(config: Config, root: Path, dataset: str) -> str:
    section = config.dataset[dataset]
    if isinstance(section, LakeConfig) and not section.needs_raw:
        return public_place(section.source)
    return str(layout_of(root, dataset).artefact("raw", RunKey(dataset)).resolve())


def _made(root: Path, keys: Sequence[RunKey]) -> list[LineageDataset]:
    """What the run's steps wrote, with the digests that their reports have."""
    found = []
    for key in keys:
        layout = layout_of(root, key.dataset)
        for step, name in MADE:
            with contextlib.suppress(PassError, OSError, pa.ArrowException):
                report, place = StepReport.load(layout.step_report(step, key)), layout.artefact(name, key).resolve()
                release = name == "protected"
                schema = pq.read_schema(shards(place, "*/part-*.parquet")[0]) if release else ()
                columns = {field.name: str(field.type) for field in schema}
                rows = int(report.counts["records"]) if release else None
                found.append(LineageDataset(place=str(place), version=report.digests[name], columns=columns, rows=rows))
    return found
