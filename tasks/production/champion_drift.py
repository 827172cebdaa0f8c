"""Whether new partitions of a lake are still like the records that the champion was audited on.

Features and P(x'|x) are compared as the audit without labels does; where the lake has labels, so is the balance of every
attribute's classes.
"""

import dataclasses
import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from pass_core.auditing.drift import FEWEST_RECORDS, RECORDS, Side, find_drift, judge_drift
from pass_core.auditing.findings import Check
from pass_core.channel.substitution import carried_attributes
from pass_core.data import FloatArray, Records
from pass_core.devices import resolve_device
from pass_core.randomness import stream
from tasks.audits.unlabelled import audit_unlabelled, read_labelled_audit, side_of
from tasks.config import Config
from tasks.extractors.loading import checked_features, load_extractor_of
from tasks.payloads.quarantine import Quarantine
from tasks.production.erased import Erasures
from tasks.production.history import open_target
from tasks.production.interfaces import SourcePartition
from tasks.production.options import RetrainOptions, absolute
from tasks.production.source import LakeSource
from tasks.release.protector import Protector, read_protector
from tasks.running.layout import Layout
from tasks.running.numerics import fixed_numerics
from tasks.storage.parquet import FeatureTable, TableInfo, labels_of, read_features, read_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecords:
    """What the check found; `reasons` are sentences of failed checks."""

    partitions: int
    records: int  # that were compared
    checks: tuple[Check, ...] = ()
    reasons: tuple[str, ...] = ()

    def words(self) -> str:
        """The result in a line."""
        found = f"{self.records} record(s) of {self.partitions} partition(s)"
        if not self.checks:
            return f"{found} are too few to be compared: expected at least {FEWEST_RECORDS}"
        return f"{found} {'differ from' if self.reasons else 'are like'} those of the champion's audit"


def check_new_records(options: RetrainOptions, config: Config, champion: Layout, draw_key: bytes) -> NewRecords:
    """Compares a sample of new partitions with the hold-out of the champion's audit; writes nothing."""
    section, key, forbid = options.section(config), options.key, config.pool.forbid
    model, pool, features = (champion.artefact(name, key) for name in ("model", "pool", "features"))
    info = TableInfo.same_features(features, pool)
    protector = read_protector(model, pool, section.attributes(info.classes), resolve_device(config.compute.device))
    carried = carried_attributes(protector.fitted.channel)

    def rng_for(*labels: str) -> np.random.Generator:
        return stream(config.seed, "retrain", str(key), *labels)

    place = dataclasses.replace(section, source=absolute(options.source), payload_shape=info.payload.shape)
    target = open_target(options.target, options.state)
    source = LakeSource(place, draw_key, None, tuple(a.name for a in carried), Erasures(target.state).left_out())
    manifest = target.current()
    chosen = choose_partitions(source.partitions(), manifest.partitions if manifest else {}, options)
    with fixed_numerics(config.compute.threads):
        new, classes = _read(source, chosen, protector, config=config, pool=pool, rng=rng_for("records"))
        if len(new.record_ids) < FEWEST_RECORDS:
            return NewRecords(partitions=len(chosen), records=len(new.record_ids))
        audited = read_features(features, carried)
        side = side_of(protector, new, np.arange(len(new.record_ids)), forbid=forbid)
        reference = side_of(protector, audited, audited.rows("test"), forbid=forbid)
        found = audit_unlabelled(
            protector,
            read_labelled_audit(champion, key),
            reference=reference,
            new=side,
            config=config.audit,
            rng_for=rng_for,
            now=datetime.datetime.now(datetime.UTC),
        )
        known = read_folder(features, list(classes)).take(pa.array(audited.rows("test")))
        checks = [*found.checks]
        for name, values in classes.items():
            sides = _class_sides(known.column(name).to_pylist(), values, reference, side)
            drift = find_drift(*sides, config.audit.depth.permutations, partial(rng_for, name))
            shares = [one for one in drift if one.name == "exposure_drift_at_most"]
            checks += [_about_classes(name, check) for check in judge_drift(shares, config.audit.thresholds)]
    reasons = tuple(check.sentence for check in checks if not check.passed)
    return NewRecords(partitions=len(chosen), records=len(new.record_ids), checks=tuple(checks), reasons=reasons)


def choose_partitions(
    partitions: Mapping[str, SourcePartition], published: Mapping[str, object], options: RetrainOptions
) -> list[SourcePartition]:
    """Those of the range, where one is given; else those that were never published; where none is new, the last ones by name."""
    if options.is_range:
        return [one for name, one in partitions.items() if options.covers(name)]
    new = [one for name, one in partitions.items() if name not in published]
    return new or [partitions[name] for name in sorted(partitions)[-options.latest :]]


def _read(
    source: LakeSource,
    partitions: list[SourcePartition],
    protector: Protector,
    *,
    config: Config,
    pool: Path,
    rng: np.random.Generator,
) -> tuple[FeatureTable, dict[str, list[str]]]:
    """A sample of partitions as features, and their classes by attribute where the lake has labels."""
    lake, dataset = source.config, protector.info.dataset
    extractor = load_extractor_of(pool, lake, config.extractor, config.compute.device, dataset)
    quarantine = Quarantine(lake.corrupt_files_allowed, f"dataset.{dataset}.corrupt_files_allowed")
    columns: list[pa.Table] = []
    features = [np.zeros((0, *protector.info.feature_shape), dtype=np.float32)]
    for records in source.sample(partitions, RECORDS, rng, quarantine):
        if len(records.payloads):
            features.append(checked_features(extractor, records.payloads, config.compute.threads, records.place))
            columns.append(records.columns)
    if not columns:
        return FeatureTable(
            records=Records(features[0], {}),
            record_ids=(),
            persons=(),
            splits=np.zeros(0, np.int64),
            blocks=np.zeros(0, np.int64),
        ), {}
    table = pa.concat_tables(columns)
    ids: list[str] = table.column(lake.record_id).to_pylist()
    persons: list[str] = table.column(lake.person).to_pylist() if lake.person else ids
    blocks = np.unique(np.array(persons), return_inverse=True)[1].astype(np.int64)
    labels = labels_of(table, carried_attributes(protector.fitted.channel))
    found = FeatureTable(
        records=Records(np.concatenate(features), labels),
        record_ids=tuple(ids),
        persons=tuple(persons),
        splits=np.zeros_like(blocks),
        blocks=blocks,
    )
    return found, {name: table.column(name).to_pylist() for name in lake.roles() if name in source.labels}


class _OwnClass:
    """Classes in the place of donors: every record gets its own, so that the sides' shares of donors are those of classes."""

    def __init__(self, rows: FloatArray) -> None:
        self.pool_size = rows.shape[1]
        self._rows = rows

    def blocks(self, features: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
        """All rows at once."""
        yield slice(0, len(features)), self._rows.copy()


def _class_sides(audited: list[str], new: list[str], reference: Side, side: Side) -> tuple[Side, Side]:
    """Both sides with nothing but their classes, also those that the other one has not."""
    _, codes = np.unique(np.array([*audited, *new]), return_inverse=True)
    ones = np.eye(int(codes.max()) + 1, dtype=np.float32)[codes]

    def of(rows: FloatArray, side: Side) -> Side:
        return Side(rows, side.persons, side.blocks, lambda chosen: _OwnClass(rows[chosen]))

    return of(ones[: len(audited)], reference), of(ones[len(audited) :], side)


def _about_classes(name: str, check: Check) -> Check:
    words = check.sentence.replace("the releases show other donors", f"new records have another class of {name}", 1)
    return dataclasses.replace(check, about=name, sentence=words)
