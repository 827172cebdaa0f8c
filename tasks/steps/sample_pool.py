"""Step sample_pool: chooses the donors from the training records."""

from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from pass_core.channel import pool as channel_pool
from pass_core.channel.pool import Column, PoolConfig
from pass_core.data import IntArray, shown_classes
from pass_core.errors import DataError
from pass_core.randomness import stream
from pass_core.training.held_out import learnt_from
from tasks.payloads.encoded import strip_encoded
from tasks.payloads.payload import column_of, payload_bytes
from tasks.running.step_io import StepIO, StepResult
from tasks.sections.dataset import DatasetConfig
from tasks.storage import parquet
from tasks.storage.parquet import BLOCK, CONTEXT_COLUMNS, FEATURES, PAYLOAD, PERSON, RECORD_ID, SPLIT, TableInfo


def sample_pool(dataset: DatasetConfig, config: PoolConfig, share: float, io: StepIO) -> StepResult:
    """Writes the donors with payload, features and attributes."""
    features, info = io.inputs["features"], TableInfo.load(io.inputs["features"])
    share_rng = stream(io.seed, "share", io.key.dataset)
    chosen = choose_donors(features, dataset.useful, config, share, share_rng=share_rng, rng=io.rng("donors"))
    columns = [*CONTEXT_COLUMNS, *info.classes]
    pool = parquet.take_rows(features, [*columns, FEATURES], chosen)
    records = parquet.take_rows(io.inputs["records"], [RECORD_ID, PAYLOAD], chosen)
    if records.column(RECORD_ID) != pool.column(RECORD_ID):
        raise DataError(f"{features}: is not in the order of its records; run extract again")
    payloads = records.column(PAYLOAD)
    if info.payload.kind != "vector":  # only the picture or the sound: metadata of a file may hold place and time
        payloads = column_of([strip_encoded(info.payload.kind, data) for data in payload_bytes(payloads)])
    pool = pool.select(columns).append_column(PAYLOAD, payloads).append_column(FEATURES, pool.column(FEATURES))
    parquet.write_table(pool, parquet.shard_path(io.outputs["pool"], 0))
    parquet.copy_description(features, io.outputs["pool"])
    return StepResult(counts={"donors": len(chosen), "persons": len(pc.unique(pool.column(PERSON)))})


def choose_donors(
    features: Path,
    useful: tuple[str, ...],
    config: PoolConfig,
    share: float,
    *,
    share_rng: np.random.Generator,
    rng: np.random.Generator,
) -> IntArray:
    """Rows of the donors in a folder of features, from the share of the training records that the protector may learn from."""
    info = TableInfo.load(features)
    table = parquet.read_folder(features, [SPLIT, PERSON, BLOCK, *info.classes])
    persons = table.column(PERSON).to_pylist()
    train = np.flatnonzero(np.array(table.column(SPLIT).to_pylist()) == "train").astype(np.int64)
    blocks = np.unique(np.array(table.column(BLOCK).to_pylist()), return_inverse=True)[1]
    train = learnt_from(train, blocks[train], share, share_rng)
    attributes = {}
    for name, classes in info.classes.items():
        labels = parquet.class_indices(table, name, classes)
        attributes[name] = Column(classes, labels[train], shown_classes(classes, labels, persons))
    chosen: IntArray = train[channel_pool.sample_pool(attributes, useful, len(train), config, rng)]
    return chosen
