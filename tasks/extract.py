"""Step extract: payloads to features."""

import numpy as np

import tasks.extractors
from pass_core import discovery
from tasks.datasets.base import DatasetConfig
from tasks.extractors.base import Extractor
from tasks.lake import FEATURES, PAYLOAD, TableInfo, array_of, read_table, table_path, vectors, write_table
from tasks.step_io import StepIO, StepResult

RECORDS_AT_ONCE = 1024


def extract(config: DatasetConfig, io: StepIO) -> StepResult:
    """Runs the data set's extractor over validated records; everything but the payload is kept."""
    extractor: Extractor = discovery.load(tasks.extractors, config.extractor).EXTRACTOR
    info = TableInfo.load(io.inputs["records"])
    table = read_table(table_path(io.inputs["records"]))
    payloads = array_of(table, PAYLOAD, info.payload_shape)
    parts = []
    for start in range(0, len(payloads), RECORDS_AT_ONCE):
        parts.append(extractor.extract(payloads[start : start + RECORDS_AT_ONCE]))
        io.progress(f"extract {io.key}", min(start + RECORDS_AT_ONCE, len(payloads)), len(payloads))
    features = np.concatenate(parts)
    folder = io.outputs["features"]
    write_table(table.drop_columns([PAYLOAD]).append_column(FEATURES, vectors(features)), table_path(folder))
    shape = extractor.feature_shape(info.payload_shape)
    TableInfo(info.dataset, info.payload_shape, shape, info.classes).save(folder)
    return StepResult(counts={"records": len(table), "features": int(features[0].size)})
