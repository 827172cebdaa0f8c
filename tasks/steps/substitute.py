"""Step substitute: replaces every record, checks the result, and only then publishes it.

A split is released as a partition, by the code that production uses: the payload column and the columns named under `release`,
both the donor's, and the original's columns that a lake passes through. Ids, order and private attributes are not released. The
linkage says which released row belongs to which record; only the audit reads it. A method that makes new records releases
features as its payload.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from pass_core.channel.draws import key_id
from pass_core.channel.pool import Forbidden
from pass_core.devices import Device, resolve_device
from tasks.expectations import suites
from tasks.payloads.payload import Payload, payload_bytes, vectors
from tasks.release.draw import KeyedRelease
from tasks.release.protector import STAMP, Protector, read_protector
from tasks.release.rows import ReleasedRows, write_rows
from tasks.running.step_io import StepIO, StepResult
from tasks.sections.dataset import DatasetConfig
from tasks.storage import parquet
from tasks.storage.files import write_json
from tasks.storage.parquet import PAYLOAD, RECORD_ID, SPLIT, SPLITS, FeatureTable


def substitute(dataset: DatasetConfig, release: tuple[str, ...], forbid: Forbidden, device: Device, io: StepIO) -> StepResult:
    """Writes the protected data, hive-partitioned by split, and the secret linkage."""
    info = parquet.TableInfo.same_features(io.inputs["features"], io.inputs["pool"])
    attributes = dataset.attributes(info.classes)
    protector = read_protector(io.inputs["model"], io.inputs["pool"], attributes, resolve_device(device))
    splits = _Splits(
        features=parquet.read_features(io.inputs["features"], attributes),
        passed=parquet.read_folder(io.inputs["features"], list(info.pass_through)) if info.pass_through else None,
        protector=protector,
        keyed=KeyedRelease(run=io.key, model=protector.model_digest, forbid=forbid, key=io.draw_key()),
        release=release,
    )
    links = [splits.write(split, io) for split in SPLITS]
    parquet.write_table(pa.concat_tables(links), io.outputs["linkage"])
    io.outputs["linkage"].chmod(0o600)
    splits.check(dataset.min_class_share, io)
    rows = {split: len(link) for split, link in zip(SPLITS, links, strict=True)}
    made_with = {"model_digest": protector.model_digest, "pool_digest": protector.pool_digest, "forbid": forbid}
    manifest = {"stamp": STAMP, "key_id": key_id(io.draw_key()), **made_with, "rows": rows}
    write_json(io.outputs["protected"] / "manifest.json", manifest)
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
        originals, pool = self.features.records.features[rows], self.protector.pool
        channel = self.protector.channel_for(self.features, rows, self.keyed.forbid)
        if channel is None:
            made = self.protector.fitted.transform(originals, io.rng("transform", split))
            columns = {} if passed is None else dict(zip(passed.column_names, passed.columns, strict=True))
            donors, table = pa.nulls(len(ids), pa.int64()), pa.table({PAYLOAD: vectors(made[order]), **columns})
        else:
            drawn = self.keyed.donors(channel, originals, ids, lambda done: io.progress(f"substitute {io.key}", done, len(ids)))
            fields = [*pool.select([PAYLOAD, *self.release]).schema, *(() if passed is None else passed.schema)]
            released = ReleasedRows(self.keyed, pool, self.protector.info.payload, pa.schema(fields))
            donors, table = pa.array(drawn[order], pa.int64()), released.rows(drawn[order], passed, split)
        folder = io.outputs["protected"] / f"{SPLIT}={split}"
        folder.mkdir(parents=True)
        path = folder / self.keyed.file_names([split])[0]
        write_rows(path, table.schema, range(len(table)), lambda group: table.slice(group.start, len(group)), dictionaries=True)
        links = {RECORD_ID: [ids[position] for position in order], SPLIT: [split] * len(ids), "row": np.arange(len(ids))}
        return pa.table({**links, "donor": donors})

    def check(self, min_class_share: float, io: StepIO) -> None:
        """Runs the suite of the protected data on what was written, before it is published."""
        from_pool = self.protector.fitted.channel is not None
        classes = {name: self.protector.info.classes[name] for name in self.release} if from_pool else {}
        tables: dict[str, tuple[pd.DataFrame, list[suites.Expectation]]] = {}
        for split in SPLITS:
            expected = len(self.features.rows(split))
            frame, expectations = self._suite(parquet.read_partition(io.outputs["protected"], split), classes)
            tables[split] = frame, [suites.row_count(expected, expected), *expectations]
            if classes:
                shares = suites.share_expectations(classes, min_class_share)
                tables[f"{split} class shares"] = suites.class_shares(frame, classes), shares
        suites.check(f"protected {io.key.dataset} {io.key.method}", tables, io.data_docs)

    def _suite(self, table: pa.Table, classes: dict[str, tuple[str, ...]]) -> tuple[pd.DataFrame, list[suites.Expectation]]:
        """Columns, classes, ranges, and, where there is a pool, that every payload is a donor's."""
        info, from_pool = self.protector.info, self.protector.fitted.channel is not None
        # Features of encoded files have no range of their own; those of signal windows are the windows.
        original = from_pool or info.payload.shape == info.feature_shape
        released = info.payload if original else Payload("vector", info.feature_shape)
        derived: dict[str, Any] = suites.payload_profile(table, released)
        expectations = suites.payload_expectations(released)
        if from_pool:
            known = set(payload_bytes(self.protector.pool.column(PAYLOAD)))
            found = payload_bytes(table.column(PAYLOAD))
            derived["payload_is_a_donors"] = ["yes" if payload in known else "no" for payload in found]
            expectations.append(suites.in_set("payload_is_a_donors", ("yes",)))
        whole = suites.columns((*classes, *derived, *info.pass_through))
        expectations += [whole, *map(suites.not_null, (*classes, *derived)), *(suites.in_set(*item) for item in classes.items())]
        return table.drop_columns([PAYLOAD]).to_pandas().assign(**derived), expectations
