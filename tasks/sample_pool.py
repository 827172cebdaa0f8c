"""Step sample_pool: chooses the donors from the training records."""

import pyarrow as pa

from pass_core.data import with_role
from pass_core.errors import DataError
from pass_core.pool import PoolConfig
from pass_core.pool import sample_pool as choose
from tasks.dataset_config import DatasetConfig
from tasks.encoded import strip_encoded
from tasks.lake import CONTEXT_COLUMNS, FEATURES, PAYLOAD, RECORD_ID, TableInfo, read_features, shard_path, take_rows, write_table
from tasks.payloads import Payload, column_of, payload_bytes
from tasks.step_io import StepIO, StepResult


def sample_pool(dataset: DatasetConfig, config: PoolConfig, io: StepIO) -> StepResult:
    """Writes the donors with payload, features and attributes."""
    info = TableInfo.load(io.inputs["features"])
    attributes = dataset.attributes(info.classes)
    features = read_features(io.inputs["features"], attributes)
    train = features.rows("train")
    chosen = train[choose(features.subset(train).labels, with_role(attributes, "useful"), len(train), config, io.rng("donors"))]
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
    persons = len({features.persons[row] for row in chosen})
    return StepResult(counts={"donors": len(chosen), "persons": persons})


def _donated(payloads: pa.ChunkedArray, payload: Payload) -> pa.ChunkedArray | pa.Array:
    """What may leave in a donor's name: the picture or the sound, without what its file says about place and time."""
    if payload.kind == "vector":
        return payloads
    return column_of([strip_encoded(payload.kind, data) for data in payload_bytes(payloads)])
