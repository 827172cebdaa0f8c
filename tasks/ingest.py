"""Step ingest: raw files to one table of records."""

import pyarrow as pa

import tasks.datasets
from pass_core import discovery
from pass_core.errors import DataError
from tasks.datasets.base import DatasetConfig
from tasks.lake import BLOCK, PAYLOAD, PERSON, RECORD_ID, SPLIT, SPLITS, TableInfo, table_path, vectors, write_table
from tasks.step_io import StepIO, StepResult


def ingest(config: DatasetConfig, io: StepIO) -> StepResult:
    """Reads the data set's published layout and writes record_id, split, person, block, payload and attributes."""
    dataset = discovery.load(tasks.datasets, io.key.dataset).DATASET
    raw = dataset.read(io.inputs["raw"], config)
    counts = {split: raw.splits.count(split) for split in SPLITS}
    for split, count in counts.items():
        if count == 0:
            raise DataError(f"{io.inputs['raw']}: no {split} records; the recordings are too short or too few")
    columns = {
        RECORD_ID: pa.array(raw.record_ids),
        SPLIT: pa.array(raw.splits),
        PERSON: pa.array(raw.persons),
        BLOCK: pa.array(raw.blocks),
        PAYLOAD: vectors(raw.payloads),
    }
    columns |= {name: pa.array(values) for name, values in raw.labels.items()}
    folder = io.outputs["records"]
    write_table(pa.table(columns), table_path(folder))
    TableInfo(io.key.dataset, tuple(raw.payloads.shape[1:]), (), dict(raw.classes)).save(folder)
    return StepResult(counts={"records": len(raw.record_ids), **counts, "persons": len(set(raw.persons))})
