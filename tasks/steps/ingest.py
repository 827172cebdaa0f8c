"""Step ingest: raw files to a table of records, a batch at a time."""

import pyarrow as pa

import tasks.datasets
from pass_core import discovery
from pass_core.errors import DataError
from tasks.datasets.base import Dataset
from tasks.payloads.payload import column_of
from tasks.payloads.quarantine import Quarantine
from tasks.running.step_io import StepIO, StepResult
from tasks.sections.dataset import DatasetConfig
from tasks.storage.files import write_json
from tasks.storage.parquet import BLOCK, PAYLOAD, PERSON, RECORD_ID, SPLIT, SPLITS, ShardWriter, TableInfo


def ingest(config: DatasetConfig, io: StepIO) -> StepResult:
    """Reads the data set's published layout and writes record_id, split, person, block, payload and attributes.

    Only attributes with a role and those under `kept` are written; no later step can see the others.
    """
    dataset: Dataset = discovery.load(tasks.datasets, config.reader or io.key.dataset).DATASET
    quarantine = Quarantine(config.corrupt_files_allowed, f"dataset.{io.key.dataset}.corrupt_files_allowed")
    reading = dataset.read(io.inputs["raw"], config, quarantine)
    names, folder = config.attribute_names(), io.outputs["records"]
    writer = ShardWriter(folder)
    counts = dict.fromkeys(SPLITS, 0)
    persons: set[str] = set()
    passed: tuple[str, ...] = ()
    for batch in reading.batches:
        if not len(batch):
            continue
        columns = {RECORD_ID: batch.record_ids, SPLIT: batch.splits, PERSON: batch.persons, BLOCK: batch.blocks}
        texts = {name: pa.array(values, pa.string()) for name, values in columns.items()}
        labels = {name: pa.array(batch.labels[name], pa.string()) for name in names}
        writer.add(pa.table({**texts, PAYLOAD: column_of(batch.payloads), **labels, **batch.passed}))
        passed = tuple(batch.passed)
        persons.update(batch.persons)
        for split in SPLITS:
            counts[split] += batch.splits.count(split)
        io.progress(f"ingest {io.key}", min(writer.rows, reading.expected - 1), reading.expected)
    for split, count in counts.items():
        if count == 0:
            raise DataError(f"{io.inputs['raw']}: expected {split} records, found none; the recordings are too short or too few")
    writer.close()
    io.progress(f"ingest {io.key}", reading.expected, reading.expected)
    classes = {name: reading.classes[name] for name in names}
    info = TableInfo(dataset=io.key.dataset, payload=reading.payload, feature_shape=(), classes=classes, pass_through=passed)
    info.save(folder)
    write_json(folder / "quarantine.json", quarantine.entries)
    found = {"quarantined": len(quarantine.entries), **reading.flags}
    counts = {"records": writer.rows, **counts, "persons": len(persons)}
    return StepResult(counts=counts | {name: number for name, number in found.items() if number})
