"""Step substitute: replaces every record, checks the result, and only then lets it have its name.

What leaves is the payload column and the columns named under `release`, both the donor's, partitioned by split, and the
original's columns that a lake passes through. Ids, order and private attributes stay behind; which released row belongs to
which record is kept apart, in the linkage, for the audit. A method that makes new records releases features as its payload.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from pass_core.channel.draws import key_id, keyed_order, keyed_words
from pass_core.channel.pool import Forbidden
from pass_core.data import IntArray
from pass_core.devices import Device, resolve_device
from tasks.expectations.payloads import payload_expectations, payload_profile
from tasks.expectations.suites import Expectation, check, class_shares, columns, in_set, not_null, row_count, share_expectations
from tasks.payloads.payload import Payload, payload_bytes, vectors
from tasks.release.protector import STAMP, Protector, draw_donors, draw_scope, order_scope, read_protector
from tasks.running.step_io import StepIO, StepResult
from tasks.sections.dataset import DatasetConfig
from tasks.storage.files import write_json
from tasks.storage.parquet import (
    PAYLOAD,
    RECORD_ID,
    SPLIT,
    SPLITS,
    FeatureTable,
    TableInfo,
    read_features,
    read_folder,
    read_partition,
    write_table,
)


@dataclass(frozen=True, slots=True)
class _Release:
    """What is released for one split, in released order."""

    table: pa.Table
    record_ids: list[str]
    donors: IntArray | None  # position in the pool, None for methods that make new records


def substitute(dataset: DatasetConfig, release: tuple[str, ...], forbid: Forbidden, device: Device, io: StepIO) -> StepResult:
    """Writes the protected data, hive-partitioned by split, and the secret linkage."""
    info = TableInfo.load(io.inputs["features"])
    attributes = dataset.attributes(info.classes)
    features = read_features(io.inputs["features"], attributes)
    passed = read_folder(io.inputs["features"], list(info.pass_through)) if info.pass_through else None
    protector = read_protector(io.inputs["model"], io.inputs["pool"], attributes, resolve_device(device))
    releases = {split: _release_split(protector, features, passed, split, release, forbid, io) for split in SPLITS}
    for split, released in releases.items():
        _write_partition(released.table, io.outputs["protected"] / f"{SPLIT}={split}", protector, split, io)
    write_table(pa.concat_tables([_linkage(released, split) for split, released in releases.items()]), io.outputs["linkage"])
    io.outputs["linkage"].chmod(0o600)
    _check(protector, features, release, dataset.min_class_share, io)
    rows = {split: len(released.table) for split, released in releases.items()}
    write_json(
        io.outputs["protected"] / "manifest.json",
        {
            "stamp": STAMP,
            "key_id": key_id(io.draw_key()),
            "model_digest": protector.model_digest,
            "pool_digest": protector.pool_digest,
            "forbid": forbid,
            "rows": rows,
        },
    )
    return StepResult(counts={"records": sum(rows.values()), **rows})


def _release_split(
    protector: Protector,
    features: FeatureTable,
    passed: pa.Table | None,
    split: str,
    release: tuple[str, ...],
    forbid: Forbidden,
    io: StepIO,
) -> _Release:
    rows = features.rows(split)
    ids = [features.record_ids[row] for row in rows]
    originals = features.records.features[rows]
    order = keyed_order(io.draw_key(), order_scope(io.key, protector.model_digest, split, forbid), ids)
    shuffled_ids = [ids[position] for position in order]
    channel = protector.channel_for(features, rows, forbid)
    if channel is None:
        made = protector.fitted.transform(originals, io.rng("transform", split))
        donors, table = None, pa.table({PAYLOAD: vectors(made[order])})
    else:
        scope = draw_scope(io.key, protector.model_digest, forbid)

        def finished(done: int) -> None:
            io.progress(f"substitute {io.key}", done, len(ids))

        donors = draw_donors(channel, originals, ids, io.draw_key(), scope, finished)[order]
        table = protector.pool.select([PAYLOAD, *release]).take(pa.array(donors))
    if passed is not None:
        for name in passed.column_names:
            table = table.append_column(name, passed.column(name).take(pa.array(rows[order])))
    return _Release(table, shuffled_ids, donors)


def _check(protector: Protector, features: FeatureTable, release: tuple[str, ...], min_class_share: float, io: StepIO) -> None:
    """Reads back what was written and runs the suite of the protected data, before any of it gets its name."""
    from_pool = protector.fitted.channel is not None
    classes = {name: protector.info.classes[name] for name in release} if from_pool else {}
    suites: dict[str, tuple[pd.DataFrame, list[Expectation]]] = {}
    for split in SPLITS:
        table = read_partition(io.outputs["protected"], split)
        expected = len(features.rows(split))
        frame, expectations = _suite(table, protector, classes)
        suites[split] = frame, [row_count(expected, expected), *expectations]
        if classes:
            suites[f"{split} class shares"] = class_shares(frame, classes), share_expectations(classes, min_class_share)
    check(f"protected {io.key.dataset} {io.key.method}", suites, io.data_docs)


def _suite(
    table: pa.Table, protector: Protector, classes: Mapping[str, tuple[str, ...]]
) -> tuple[pd.DataFrame, list[Expectation]]:
    """Columns, classes, ranges, and, where there is a pool, that every payload is a donor's."""
    info = protector.info
    from_pool = protector.fitted.channel is not None
    # Features of encoded files have no range of their own; those of signal windows are the windows.
    released = info.payload if from_pool or info.payload.shape == info.feature_shape else Payload("vector", info.feature_shape)
    frame: pd.DataFrame = table.drop_columns([PAYLOAD]).to_pandas()
    for name, values in payload_profile(table, released).items():
        frame[name] = values
    expectations = payload_expectations(released)
    if from_pool:
        known = set(payload_bytes(protector.pool.column(PAYLOAD)))
        frame["payload_is_a_donors"] = ["yes" if payload in known else "no" for payload in payload_bytes(table.column(PAYLOAD))]
        expectations.append(in_set("payload_is_a_donors", ("yes",)))
    derived = [name for name in frame.columns if name.startswith("payload_")]
    expectations += [columns((*classes, *derived, *info.pass_through)), *(not_null(name) for name in (*classes, *derived))]
    return frame, expectations + [in_set(name, values_of) for name, values_of in classes.items()]


def _write_partition(table: pa.Table, folder: Path, protector: Protector, split: str, io: StepIO) -> None:
    """One part file whose name and times tell nothing."""
    name = keyed_words(io.draw_key(), "file name", (io.key.dataset, protector.model_digest), [split])[0]
    path = folder / f"part-{name:016x}.parquet"
    write_table(table, path)
    os.utime(path, (0, 0))


def _linkage(released: _Release, split: str) -> pa.Table:
    n = len(released.record_ids)
    donors = pa.nulls(n, pa.int64()) if released.donors is None else pa.array(released.donors, pa.int64())
    return pa.table(
        {
            RECORD_ID: pa.array(released.record_ids),
            SPLIT: pa.array([split] * n),
            "row": pa.array(np.arange(n)),
            "donor": donors,
        }
    )
