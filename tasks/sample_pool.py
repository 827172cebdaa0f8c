"""Step sample_pool: chooses the donors from the training records."""

import numpy as np
import pyarrow as pa

from pass_core.data import IntArray
from pass_core.errors import DataError
from pass_core.pool import Column, PoolConfig
from pass_core.pool import sample_pool as choose
from pass_core.randomness import stream
from pass_core.validation import learnt_from
from tasks.dataset_config import DatasetConfig
from tasks.encoded import strip_encoded
from tasks.lake import (
    BLOCK,
    CONTEXT_COLUMNS,
    FEATURES,
    PAYLOAD,
    PERSON,
    RECORD_ID,
    SPLIT,
    TableInfo,
    class_indices,
    read_folder,
    shard_path,
    shown_classes,
    take_rows,
    write_table,
)
from tasks.payloads import Payload, column_of, payload_bytes
from tasks.step_io import StepIO, StepResult


def sample_pool(dataset: DatasetConfig, config: PoolConfig, share: float, io: StepIO) -> StepResult:
    """Writes the donors with payload, features and attributes."""
    info = TableInfo.load(io.inputs["features"])
    table = read_folder(io.inputs["features"], [SPLIT, PERSON, BLOCK, *info.classes])
    train = np.flatnonzero(np.array(table.column(SPLIT).to_pylist()) == "train").astype(np.int64)
    blocks = np.unique(np.array(table.column(BLOCK).to_pylist()), return_inverse=True)[1]
    train = learnt_from(train, blocks[train], share, stream(io.seed, "share", io.key.dataset))
    persons = table.column(PERSON).to_pylist()
    attributes = {name: _column(table, name, classes, train, persons) for name, classes in info.classes.items()}
    chosen = train[choose(attributes, dataset.useful, len(train), config, io.rng("donors"))]
    columns = [*CONTEXT_COLUMNS, *info.classes]
    pool = take_rows(io.inputs["features"], [*columns, FEATURES], chosen)
    records = take_rows(io.inputs["records"], [RECORD_ID, PAYLOAD], chosen)
    if records.column(RECORD_ID) != pool.column(RECORD_ID):
        raise DataError(f"{io.inputs['features']}: is not in the order of its records; run extract again")
    payloads = _donated(records.column(PAYLOAD), info.payload)
    folder = io.outputs["pool"]
    pool = pool.select(columns).append_column(PAYLOAD, payloads).append_column(FEATURES, pool.column(FEATURES))
    write_table(pool, shard_path(folder, 0))
    info.save(folder)
    return StepResult(counts={"donors": len(chosen), "persons": len({persons[row] for row in chosen})})


def _column(table: pa.Table, name: str, classes: tuple[str, ...], train: IntArray, persons: list[str]) -> Column:
    labels = class_indices(table, name, classes)
    return Column(classes, labels[train], shown_classes(classes, labels, persons))


def _donated(payloads: pa.ChunkedArray, payload: Payload) -> pa.ChunkedArray | pa.Array:
    """What may leave in a donor's name: the picture or the sound, without what its file says about place and time."""
    if payload.kind == "vector":
        return payloads
    return column_of([strip_encoded(payload.kind, data) for data in payload_bytes(payloads)])
