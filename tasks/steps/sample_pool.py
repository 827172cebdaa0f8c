"""Step sample_pool: chooses the donors from the training records."""

import pyarrow as pa
import pyarrow.compute as pc

from pass_core.channel.pool import PoolConfig
from pass_core.errors import DataError
from pass_core.randomness import stream
from tasks.payloads.encoded import strip_encoded
from tasks.payloads.payload import Payload, column_of, payload_bytes
from tasks.running.step_io import StepIO, StepResult
from tasks.sections.dataset import DatasetConfig
from tasks.steps.donor_choice import choose_donors
from tasks.storage.parquet import (
    CONTEXT_COLUMNS,
    FEATURES,
    PAYLOAD,
    PERSON,
    RECORD_ID,
    TableInfo,
    shard_path,
    take_rows,
    write_table,
)


def sample_pool(dataset: DatasetConfig, config: PoolConfig, share: float, io: StepIO) -> StepResult:
    """Writes the donors with payload, features and attributes."""
    info = TableInfo.load(io.inputs["features"])
    share_rng = stream(io.seed, "share", io.key.dataset)
    chosen = choose_donors(io.inputs["features"], dataset.useful, config, share, share_rng, io.rng("donors"))
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
    return StepResult(counts={"donors": len(chosen), "persons": len(pc.unique(pool.column(PERSON)))})


def _donated(payloads: pa.ChunkedArray, payload: Payload) -> pa.ChunkedArray | pa.Array:
    """What may leave in a donor's name: the picture or the sound, without what its file says about place and time."""
    if payload.kind == "vector":
        return payloads
    return column_of([strip_encoded(payload.kind, data) for data in payload_bytes(payloads)])
