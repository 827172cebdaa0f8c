"""Step substitute: replaces every record, checks the result, and only then publishes it.

A split is released as a partition, by the code that production uses: the payload column and the columns named under `release`,
both the donor's, and the original's columns that a lake passes through. Ids, order and private attributes are not released. The
linkage says which released row belongs to which record; only the audit reads it. A method that makes new records releases
features as its payload.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa

from pass_core.channel.draws import key_id
from pass_core.channel.pool import Forbidden
from pass_core.data import IntArray
from pass_core.devices import Device, resolve_device
from tasks.expectations.payloads import payload_expectations, payload_profile
from tasks.expectations.suites import Expectation, check, class_shares, columns, in_set, not_null, row_count, share_expectations
from tasks.payloads.payload import Payload, payload_bytes, vectors
from tasks.release.draw import KeyedRelease
from tasks.release.protector import STAMP, Protector, read_protector
from tasks.release.rows import ReleasedRows, write_rows
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


def substitute(dataset: DatasetConfig, release: tuple[str, ...], forbid: Forbidden, device: Device, io: StepIO) -> StepResult:
    """Writes the protected data, hive-partitioned by split, and the secret linkage."""
    info = TableInfo.load(io.inputs["features"])
    attributes = dataset.attributes(info.classes)
    protector = read_protector(io.inputs["model"], io.inputs["pool"], attributes, resolve_device(device))
    splits = _Splits(
        features=read_features(io.inputs["features"], attributes),
        passed=read_folder(io.inputs["features"], list(info.pass_through)) if info.pass_through else None,
        protector=protector,
        keyed=KeyedRelease(run=io.key, model=protector.model_digest, forbid=forbid, key=io.draw_key()),
        release=release,
    )
    links = [splits.write(split, io) for split in SPLITS]
    write_table(pa.concat_tables(links), io.outputs["linkage"])
    io.outputs["linkage"].chmod(0o600)
    _check(protector, splits.features, release, dataset.min_class_share, io)
    rows = {split: len(link) for split, link in zip(SPLITS, links, strict=True)}
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Splits:
    """Releases the splits of an experiment as partitions."""

    features: FeatureTable
    passed: pa.Table | None
    protector: Protector
    keyed: KeyedRelease
    release: tuple[str, ...]

    def write(self, split: str, io: StepIO) -> pa.Table:
        """Writes the partition of a split; its linkage."""
        rows = self.features.rows(split)
        ids = [self.features.record_ids[row] for row in rows]
        order = np.argsort(self.keyed.order_words(split, ids), kind="stable")
        passed = None if self.passed is None else self.passed.take(pa.array(rows[order]))
        originals = self.features.records.features[rows]
        channel = self.protector.channel_for(self.features, rows, self.keyed.forbid)
        donors: IntArray | None = None
        if channel is None:
            made = self.protector.fitted.transform(originals, io.rng("transform", split))
            table = pa.table({PAYLOAD: vectors(made[order])})
            for name, column in [] if passed is None else zip(passed.column_names, passed.columns, strict=True):
                table = table.append_column(name, column)
        else:
            drawn = self.keyed.donors(channel, originals, ids, lambda done: io.progress(f"substitute {io.key}", done, len(ids)))
            donors = drawn[order]
            table = self._rows().rows(donors, passed, split)
        folder = io.outputs["protected"] / f"{SPLIT}={split}"
        folder.mkdir(parents=True)
        path = folder / self.keyed.file_names([split])[0]
        write_rows(path, table.schema, range(len(table)), lambda group: table.slice(group.start, len(group)), dictionaries=True)
        return pa.table(
            {
                RECORD_ID: pa.array([ids[position] for position in order]),
                SPLIT: pa.array([split] * len(ids)),
                "row": pa.array(np.arange(len(ids))),
                "donor": pa.nulls(len(ids), pa.int64()) if donors is None else pa.array(donors, pa.int64()),
            }
        )

    def _rows(self) -> ReleasedRows:
        pool = self.protector.pool
        fields = list(pool.select([PAYLOAD, *self.release]).schema)
        fields += [] if self.passed is None else list(self.passed.schema)
        return ReleasedRows(self.keyed, pool, self.protector.info.payload, pa.schema(fields))


def _check(protector: Protector, features: FeatureTable, release: tuple[str, ...], min_class_share: float, io: StepIO) -> None:
    """Runs the suite of the protected data on what was written, before it is published."""
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
