"""Step validate: stops the run when the records are not what the data set says they are."""

import numpy as np
import pandas as pd
import pyarrow as pa

import tasks.datasets
from pass_core import discovery
from tasks.datasets.base import Dataset
from tasks.expectations import (
    Expectation,
    between,
    check,
    class_shares,
    columns,
    in_set,
    not_null,
    row_count,
    share_expectations,
    unique,
)
from tasks.lake import CONTEXT_COLUMNS, PAYLOAD, RECORD_ID, SPLIT, SPLITS, TableInfo, array_of, read_table, table_path
from tasks.step_io import StepIO, StepResult
from tasks.storage import write_json

KNOWN = "a known class"


def validate(io: StepIO) -> StepResult:
    """Runs the suite built from the data set's specification; its result is what extract waits for."""
    dataset: Dataset = discovery.load(tasks.datasets, io.key.dataset).DATASET
    info = TableInfo.load(io.inputs["records"])
    table = read_table(table_path(io.inputs["records"]))
    frame = _profile(table, info)
    suites = {"records": (frame, record_expectations(dataset, info))}
    for split in SPLITS:
        shares = class_shares(table.select([SPLIT, *info.classes]).to_pandas().query(f"{SPLIT} == @split"), info.classes)
        suites[f"{split} class shares"] = shares, share_expectations(info.classes, dataset.min_class_share)
    held = check(f"records of {io.key.dataset}", suites, io.data_docs)
    io.outputs["validation"].mkdir()
    write_json(io.outputs["validation"] / "validation.json", {"dataset": io.key.dataset, "expectations_held": held})
    return StepResult(counts={"expectations held": held})


def record_expectations(dataset: Dataset, info: TableInfo) -> list[Expectation]:
    """Schema, ids, splits, classes, and ranges of the payload."""
    low, high = dataset.payload_range
    names = (*CONTEXT_COLUMNS, *info.classes)
    expectations = [columns((*names, "payload_min", "payload_max")), row_count(2), unique(RECORD_ID)]
    expectations += [not_null(name) for name in names]
    expectations += [in_set(SPLIT, SPLITS), between("payload_min", low, high), between("payload_max", low, high)]
    return expectations + [in_set(name, (KNOWN,)) for name in info.classes]


def _profile(table: pa.Table, info: TableInfo) -> pd.DataFrame:
    """The table with the payload replaced by its range, and each class by whether it is a known one.

    Class names can be people's (an identity): said once in an expectation, they would stand in the Data Docs.
    """
    payloads = array_of(table, PAYLOAD, info.payload_shape).reshape(len(table), -1)
    frame: pd.DataFrame = table.drop_columns([PAYLOAD]).to_pandas()
    for name, classes in info.classes.items():
        frame[name] = frame[name].map(
            lambda value, known=frozenset(classes): KNOWN if value in known else "another", na_action="ignore"
        )
    finite = np.isfinite(payloads).all(axis=1)
    frame["payload_min"] = np.where(finite, payloads.min(axis=1), np.inf)
    frame["payload_max"] = np.where(finite, payloads.max(axis=1), np.inf)
    return frame
