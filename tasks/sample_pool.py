"""Step sample_pool: chooses the donors from the training records."""

import pyarrow as pa

from pass_core.data import with_role
from pass_core.errors import DataError
from pass_core.pool import PoolConfig
from pass_core.pool import sample_pool as choose
from tasks.datasets.base import DatasetConfig
from tasks.lake import FEATURES, PAYLOAD, RECORD_ID, TableInfo, read_features, read_table, table_path, write_table
from tasks.step_io import StepIO, StepResult


def sample_pool(dataset: DatasetConfig, config: PoolConfig, io: StepIO) -> StepResult:
    """Writes the donors with payload, features and attributes."""
    info = TableInfo.load(io.inputs["features"])
    attributes = dataset.attributes(info.classes)
    features = read_features(io.inputs["features"], attributes)
    train = features.rows("train")
    chosen = train[choose(features.subset(train).labels, with_role(attributes, "useful"), len(train), config, io.rng("donors"))]
    table = read_table(table_path(io.inputs["features"])).take(pa.array(chosen))
    records = read_table(table_path(io.inputs["records"]), [RECORD_ID, PAYLOAD]).take(pa.array(chosen))
    if records.column(RECORD_ID) != table.column(RECORD_ID):
        raise DataError(f"{io.inputs['features']}: is not in the order of its records; run extract again")
    folder = io.outputs["pool"]
    columns = [name for name in table.column_names if name != FEATURES]
    pool = table.select(columns).append_column(PAYLOAD, records.column(PAYLOAD)).append_column(FEATURES, table.column(FEATURES))
    write_table(pool, table_path(folder))
    info.save(folder)
    persons = len({features.persons[row] for row in chosen})
    return StepResult(counts={"donors": len(chosen), "persons": persons})
