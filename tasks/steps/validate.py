"""Step validate: stops the run when records differ from what their data set declares."""

import pandas as pd
import pyarrow as pa

from tasks.expectations import suites
from tasks.running.step_io import StepIO, StepResult
from tasks.sections.dataset import DatasetConfig
from tasks.storage.files import write_json
from tasks.storage.parquet import CONTEXT_COLUMNS, PAYLOAD, RECORD_ID, SPLIT, SPLITS, TableInfo, read_table, shards

KNOWN = "a known class"


def validate(config: DatasetConfig, io: StepIO) -> StepResult:
    """Runs the suite built from the data set's specification; step extract needs its result."""
    info = TableInfo.load(io.inputs["records"])
    frames, shares = [], []
    for path in shards(io.inputs["records"]):  # one file at a time: only the profile of payloads is kept
        table = read_table(path)
        frames.append(_profile(table, info))
        shares.append(table.select([SPLIT, *info.classes]).to_pandas())
    labels = pd.concat(shares, ignore_index=True)
    judged = {name: info.classes[name] for name in config.roles()}  # attributes under `kept` may be rare
    tables = {"records": (pd.concat(frames, ignore_index=True), record_expectations(info))}
    for split in SPLITS:
        rarest = suites.class_shares(labels.query(f"{SPLIT} == @split"), judged)
        tables[f"{split} class shares"] = rarest, suites.share_expectations(judged, config.min_class_share)
    held = suites.check(f"records of {io.key.dataset}", tables, io.data_docs)
    write_json(io.outputs["validation"] / "validation.json", {"dataset": io.key.dataset, "expectations_held": held})
    return StepResult(counts={"expectations held": held})


def record_expectations(info: TableInfo) -> list[suites.Expectation]:
    """Expectations of schema, ids, splits, classes and payloads."""
    names, measured = (*CONTEXT_COLUMNS, *info.classes), suites.payload_expectations(info.payload)
    whole = suites.columns((*names, *(str(arguments["column"]) for _, arguments in measured)))
    expectations = [whole, suites.row_count(2), suites.unique(RECORD_ID), *map(suites.not_null, names)]
    return [*expectations, suites.in_set(SPLIT, SPLITS), *measured, *(suites.in_set(name, (KNOWN,)) for name in info.classes)]


def _profile(table: pa.Table, info: TableInfo) -> pd.DataFrame:
    """The table with the payload replaced by its profile, and each class by whether it is known.

    Class names can be names of people (an identity), and the Data Docs would show those in an expectation.
    """
    frame: pd.DataFrame = table.drop_columns([PAYLOAD, *info.pass_through]).to_pandas()
    for name, classes in info.classes.items():
        frame[name] = frame[name].map(
            lambda value, known=frozenset(classes): KNOWN if value in known else "another", na_action="ignore"
        )
    return frame.assign(**suites.payload_profile(table, info.payload))
