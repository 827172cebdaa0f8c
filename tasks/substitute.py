"""Step substitute: replaces every record, checks the result, and only then lets it have its name.

What leaves is the payload column and the columns named under `release`, both the donor's. Ids, splits of origin, order and
private attributes stay behind; which released row belongs to which record is kept apart, in the linkage, for the audit.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

import tasks.datasets
from pass_core import discovery
from pass_core.data import FloatArray, IntArray
from pass_core.draws import inverse_cdf, key_id, keyed_order, keyed_words
from pass_core.substitution import SubstitutionChannel
from pass_core.training import Device, resolve_device
from tasks.datasets.base import Dataset, DatasetConfig
from tasks.expectations import Expectation, between, check, columns, in_set, not_null, row_count
from tasks.lake import (
    PAYLOAD,
    RECORD_ID,
    SPLIT,
    SPLITS,
    FeatureTable,
    TableInfo,
    array_of,
    read_features,
    vectors,
    write_table,
)
from tasks.protection import Protector, payload_bytes, read_protector
from tasks.step_io import StepIO, StepResult
from tasks.storage import write_json

STAMP = "reproducible experiment: the draw key comes from the seed in params.yaml; not for release"


@dataclass(frozen=True, slots=True)
class _Release:
    """What is released for one split, in released order."""

    table: pa.Table
    record_ids: list[str]
    donors: IntArray | None  # position in the pool, None for methods that make new records


def substitute(dataset: DatasetConfig, release: tuple[str, ...], device: Device, io: StepIO) -> StepResult:
    """Writes the protected data, hive-partitioned by split, and the secret linkage."""
    attributes = dataset.attributes(TableInfo.load(io.inputs["features"]).classes)
    features = read_features(io.inputs["features"], attributes)
    protector = read_protector(io.inputs["model"], io.inputs["pool"], attributes, resolve_device(device))
    releases = {split: _release_split(protector, features, split, release, io) for split in SPLITS}
    suites = {split: _suite(released, protector, len(features.rows(split)), release, io) for split, released in releases.items()}
    check(f"protected {io.key.dataset} {io.key.method}", suites, io.data_docs)
    for split, released in releases.items():
        _write_partition(released.table, io.outputs["protected"] / f"{SPLIT}={split}", split, io)
    write_table(pa.concat_tables([_linkage(released, split) for split, released in releases.items()]), io.outputs["linkage"])
    rows = {split: len(released.table) for split, released in releases.items()}
    write_json(
        io.outputs["protected"] / "manifest.json",
        {
            "stamp": STAMP,
            "key_id": key_id(io.draw_key()),
            "model_digest": protector.model_digest,
            "pool_digest": protector.pool_digest,
            "rows": rows,
        },
    )
    return StepResult(counts={"records": sum(rows.values()), **rows})


def _release_split(protector: Protector, features: FeatureTable, split: str, release: tuple[str, ...], io: StepIO) -> _Release:
    rows = features.rows(split)
    ids = [features.record_ids[row] for row in rows]
    originals = features.records.features[rows]
    order = keyed_order(io.draw_key(), (io.key.dataset, split), ids)
    shuffled_ids = [ids[position] for position in order]
    channel = protector.fitted.channel
    if channel is None:
        made = protector.fitted.transform(originals, io.rng("transform", split))
        return _Release(pa.table({PAYLOAD: vectors(made[order])}), shuffled_ids, None)
    donors = draw_donors(channel, originals, ids, io.draw_key(), (io.key.dataset, protector.model_digest), io)[order]
    return _Release(protector.pool.select([PAYLOAD, *release]).take(pa.array(donors)), shuffled_ids, donors)


def draw_donors(
    channel: SubstitutionChannel,
    features: FloatArray,
    record_ids: list[str],
    key: bytes,
    scope: tuple[str, ...],
    io: StepIO,
) -> IntArray:
    """The donor of every record: a keyed function of its id, the data set and the model."""
    donors: IntArray = np.empty(len(features), dtype=np.int64)
    for rows, probabilities in channel.blocks(features):
        donors[rows] = inverse_cdf(probabilities, keyed_words(key, "draw", scope, record_ids[rows]))
        io.progress(f"substitute {io.key}", rows.stop, len(features))
    return donors


def _suite(
    released: _Release, protector: Protector, expected: int, release: tuple[str, ...], io: StepIO
) -> tuple[pd.DataFrame, list[Expectation]]:
    """Counts, columns, classes, ranges, and that every payload is a donor's."""
    dataset: Dataset = discovery.load(tasks.datasets, io.key.dataset).DATASET
    low, high = dataset.payload_range
    kept = release if released.donors is not None else ()
    payloads = payload_bytes(released.table.column(PAYLOAD))
    values = array_of(released.table, PAYLOAD, protector.info.payload_shape).reshape(len(payloads), -1)
    frame = released.table.drop_columns([PAYLOAD]).to_pandas()
    frame["payload_min"], frame["payload_max"] = values.min(axis=1), values.max(axis=1)
    expectations = [row_count(expected, expected), between("payload_min", low, high), between("payload_max", low, high)]
    if released.donors is not None:
        known = set(payload_bytes(protector.pool.column(PAYLOAD)))
        frame["payload_is_a_donors"] = ["yes" if payload in known else "no" for payload in payloads]
        expectations.append(in_set("payload_is_a_donors", ("yes",)))
    derived = ("payload_min", "payload_max") + (("payload_is_a_donors",) if released.donors is not None else ())
    expectations += [columns((*kept, *derived))] + [not_null(name) for name in (*kept, *derived)]
    return frame, expectations + [in_set(name, protector.info.classes[name]) for name in kept]


def _write_partition(table: pa.Table, folder: Path, split: str, io: StepIO) -> None:
    """One part file whose name and times tell nothing."""
    name = keyed_words(io.draw_key(), "file name", (io.key.dataset, str(io.key.method)), [split])[0]
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
