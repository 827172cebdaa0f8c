"""Step validate: stops the run when the records are not what the data set says they are."""

import numpy as np
import pandas as pd
import pyarrow as pa

import tasks.datasets
from pass_core import discovery
from tasks.datasets.base import Dataset
from tasks.expectations import Expectation, between, check, columns, in_set, not_null, row_count, unique
from tasks.lake import CONTEXT_COLUMNS, PAYLOAD, RECORD_ID, SPLIT, SPLITS, TableInfo, array_of, read_table, table_path
from tasks.step_io import StepIO, StepResult
from tasks.storage import write_json


def validate(io: StepIO) -> StepResult:
    """Runs the suite built from the data set's specification; its result is what extract waits for."""
    dataset: Dataset = discovery.load(tasks.datasets, io.key.dataset).DATASET
    info = TableInfo.load(io.inputs["records"])
    table = read_table(table_path(io.inputs["records"]))
    held = check(
        f"records of {io.key.dataset}",
        {
            "records": (_profile(table, info), record_expectations(dataset, info)),
            "class shares": (_class_shares(table, info), share_expectations(dataset, info)),
        },
        io.data_docs,
    )
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
    return expectations + [in_set(name, classes) for name, classes in info.classes.items()]


def share_expectations(dataset: Dataset, info: TableInfo) -> list[Expectation]:
    """Class balance: no class of any attribute is (nearly) missing from a split, none is all of it."""
    low = dataset.min_class_share
    return [row_count(2, 2)] + [between(f"{name}_{end}_share", low, 1 - low) for name in info.classes for end in ("min", "max")]


def _profile(table: pa.Table, info: TableInfo) -> pd.DataFrame:
    """The table with the payload replaced by its range; a missing or non-finite number becomes a missing range."""
    payloads = array_of(table, PAYLOAD, info.payload_shape).reshape(len(table), -1)
    frame: pd.DataFrame = table.drop_columns([PAYLOAD]).to_pandas()
    finite = np.isfinite(payloads).all(axis=1)
    frame["payload_min"] = np.where(finite, payloads.min(axis=1), np.inf)
    frame["payload_max"] = np.where(finite, payloads.max(axis=1), np.inf)
    return frame


def _class_shares(table: pa.Table, info: TableInfo) -> pd.DataFrame:
    """One row per split: share of the rarest and of the commonest class of every attribute."""
    frame = table.select([SPLIT, *info.classes]).to_pandas()
    rows = []
    for split in SPLITS:
        part = frame[frame[SPLIT] == split]
        row: dict[str, float] = {}
        for name, classes in info.classes.items():
            shares = part[name].value_counts(normalize=True).reindex(classes, fill_value=0.0)
            row |= {f"{name}_min_share": float(shares.min()), f"{name}_max_share": float(shares.max())}
        rows.append(row)
    return pd.DataFrame(rows)
