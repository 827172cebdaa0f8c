"""Great Expectations: suites built in code, run before anything expensive; the only file that imports it.

Results are yes or no per expectation and column, so that no value of a record reaches a result or a Data Doc.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from pass_core.errors import ValidationFailed
from tasks.payloads.payload import MAX_FILE_BYTES, Payload, payload_bytes
from tasks.storage.parquet import PAYLOAD, array_of

Expectation = tuple[str, Mapping[str, Any]]  # the name of Great Expectations' class, and its arguments


def in_set(column: str, values: tuple[str, ...]) -> Expectation:
    """Each value is one of these classes."""
    return "ExpectColumnValuesToBeInSet", {"column": column, "value_set": list(values)}


def between(column: str, low: float, high: float) -> Expectation:
    """Each value lies in [low, high]."""
    return "ExpectColumnValuesToBeBetween", {"column": column, "min_value": low, "max_value": high}


def not_null(column: str) -> Expectation:
    """No value is missing."""
    return "ExpectColumnValuesToNotBeNull", {"column": column}


def unique(column: str) -> Expectation:
    """No value occurs twice."""
    return "ExpectColumnValuesToBeUnique", {"column": column}


def row_count(low: int, high: int | None = None) -> Expectation:
    """The number of rows lies in this range."""
    return "ExpectTableRowCountToBeBetween", {"min_value": low, "max_value": high}


def columns(names: tuple[str, ...]) -> Expectation:
    """The table has exactly these columns."""
    return "ExpectTableColumnsToMatchSet", {"column_set": list(names), "exact_match": True}


def class_shares(frame: pd.DataFrame, classes: Mapping[str, tuple[str, ...]]) -> pd.DataFrame:
    """One row: the share of the rarest and of the commonest class of every attribute."""
    row: dict[str, float] = {}
    for name, known in classes.items():
        shares = frame[name].value_counts(normalize=True).reindex(known, fill_value=0.0)
        row |= {f"{name}_min_share": float(shares.min()), f"{name}_max_share": float(shares.max())}
    return pd.DataFrame([row])


def share_expectations(classes: Mapping[str, tuple[str, ...]], low: float) -> list[Expectation]:
    """Class balance: no class of any attribute is (nearly) missing or (nearly) alone."""
    return [between(f"{name}_{end}_share", low, 1 - low) for name in classes for end in ("min", "max")]


def payload_expectations(payload: Payload) -> list[Expectation]:
    """Range of a vector's values, size of an encoded file."""
    if payload.kind != "vector":
        return [between("payload_bytes", 1, MAX_FILE_BYTES)]
    largest = float(np.finfo(np.float32).max)
    limits = -largest if payload.low is None else payload.low, largest if payload.high is None else payload.high
    return [between("payload_min", *limits), between("payload_max", *limits)]


def payload_profile(table: pa.Table, payload: Payload) -> dict[str, Any]:
    """The values that `payload_expectations` check, one per record; a non-finite number counts as out of range."""
    if payload.kind != "vector":
        return {"payload_bytes": [len(data) for data in payload_bytes(table.column(PAYLOAD))]}
    values = array_of(table, PAYLOAD, payload.shape).reshape(len(table), -1)
    finite = np.isfinite(values).all(axis=1)
    ends = {"payload_min": values.min(axis=1), "payload_max": values.max(axis=1)}
    return {name: np.where(finite, end, np.inf) for name, end in ends.items()}


def load_library() -> Any:
    """Imports Great Expectations, which takes seconds."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    import great_expectations

    return great_expectations


def check(name: str, tables: Mapping[str, tuple[pd.DataFrame, list[Expectation]]], data_docs: Path) -> int:
    """Runs one suite per table, builds Data Docs in `data_docs`, returns the number of expectations that held.

    Where some do not hold, ValidationFailed names each column and expectation.
    """
    gx = load_library()
    from great_expectations.data_context.types.base import DataContextConfig, InMemoryStoreBackendDefaults

    # Everything in memory but the pages, which go to `data_docs`; the default leaves temporary folders behind.
    defaults = InMemoryStoreBackendDefaults(init_temp_docs_sites=False)
    context = gx.get_context(mode="ephemeral", project_config=DataContextConfig(store_backend_defaults=defaults))
    context.variables.progress_bars = {"globally": False}
    context.add_data_docs_site(
        site_name="data_docs",
        site_config={
            "class_name": "SiteBuilder",
            "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(data_docs.resolve())},
            "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
        },
    )
    results: list[tuple[str, Any]] = []
    source = context.data_sources.add_pandas(name)
    for table_name, (frame, expectations) in tables.items():
        title = f"{name} {table_name}"
        batch = source.add_dataframe_asset(table_name).add_batch_definition_whole_dataframe("whole")
        suite = context.suites.add(gx.ExpectationSuite(name=title))
        for kind, arguments in expectations:
            suite.add_expectation(getattr(gx.expectations, kind)(**arguments))
        definition = context.validation_definitions.add(gx.ValidationDefinition(name=title, data=batch, suite=suite))
        actions = [gx.checkpoint.UpdateDataDocsAction(name="data_docs", site_names=["data_docs"])]
        checkpoint = gx.Checkpoint(name=title, validation_definitions=[definition], actions=actions, result_format="BOOLEAN_ONLY")
        outcome = context.checkpoints.add(checkpoint).run(batch_parameters={"dataframe": frame})
        results += [(table_name, result) for result in next(iter(outcome.run_results.values())).results]
    failed = [(table_name, result.expectation_config) for table_name, result in results if not result.success]
    if failed:
        places = [(of, one.type, repr(one.kwargs["column"]) if "column" in one.kwargs else "") for of, one in failed]
        named = "; ".join(f"{kind} on {f'column {column}' if column else 'the table'} of {of}" for of, kind, column in places)
        pages = f"see {data_docs / 'index.html'}, correct the data, then run again"
        raise ValidationFailed(f"{name}: {len(failed)} expectation(s) do not hold: {named}; {pages}")
    return len(results)
