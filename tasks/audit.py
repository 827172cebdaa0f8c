"""Step audit: attacks what was released, and gives a verdict."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

import pass_core.attacks
from pass_core import discovery
from pass_core.audit import AuditReport, NamedAttack, Subject, Thresholds, run_audit
from pass_core.data import Attribute, FloatArray, IntArray
from pass_core.devices import Device, resolve_device
from pass_core.epochs import Epoch
from pass_core.errors import ChecksumMismatch
from pass_core.exact import ChannelLaw, channel_law, substitution_confusion
from pass_core.pool import Forbidden
from tasks.dataset_config import DatasetConfig
from tasks.lake import (
    FEATURES,
    PAYLOAD,
    PERSON,
    RECORD_ID,
    SPLIT,
    SPLITS,
    FeatureTable,
    TableInfo,
    array_of,
    labels_of,
    read_features,
    read_partition,
    read_table,
    shown_classes,
)
from tasks.payloads import payload_bytes
from tasks.protection import Protector, read_protector
from tasks.step_io import StepIO, StepResult
from tasks.storage import digest, read_json, rounded, write_json


def audit(
    dataset: DatasetConfig,
    attacks: Mapping[str, Any],
    thresholds: Thresholds,
    draws: int,
    forbid: Forbidden,
    device: Device,
    io: StepIO,
) -> StepResult:
    """Writes audit.json, the figures that DVC tracks, and the table of NAG."""
    attributes = dataset.attributes(TableInfo.load(io.inputs["features"]).classes)
    features = read_features(io.inputs["features"], attributes)
    protector = read_protector(io.inputs["model"], io.inputs["pool"], attributes, resolve_device(device))
    manifest = read_json(io.inputs["protected"] / "manifest.json")
    if (manifest["model_digest"], manifest["pool_digest"]) != (protector.model_digest, protector.pool_digest):
        raise ChecksumMismatch(f"{io.inputs['protected']}: was made with another model or pool than given; run substitute again")
    if manifest.get("forbid") != forbid:
        raise ChecksumMismatch(f"{io.inputs['protected']}: was made with another pool.forbid than given; run substitute again")
    links = read_table(io.inputs["linkage"])
    subject = _subject(features, attributes, protector, links, draws, forbid, io)
    named = tuple(NamedAttack(name, discovery.load(pass_core.attacks, name).ATTACK, config) for name, config in attacks.items())

    def on_attack(work: str, epoch: Epoch) -> None:
        io.progress(f"audit {io.key}, {work}", epoch.number, epoch.total)

    def rng_for(stage: str, *labels: str) -> np.random.Generator:
        return (io.dataset_rng if stage == "unprotected" else io.rng)(stage, *labels)

    report = run_audit(subject, named, thresholds, rng_for, on_attack)
    document = {
        **dataclasses.asdict(report),
        "dataset": io.key.dataset,
        "method": io.key.method,
        "records": {"train": len(subject.train), "test": len(subject.test)},
        "attacks": {name: dataclasses.asdict(config) for name, config in attacks.items()} | {"fresh_draws": draws},
        "classes": {a.name: shown_classes(a.classes, features.records.labels[a.name], features.persons) for a in attributes},
        "channel": _channel_figures(subject.laws, protector),
        "confusion": _confusion(subject.laws, protector, attributes),
        "donors": _donor_figures(links, features, protector),
        "forbid": forbid,
        "pass_through": list(protector.info.pass_through),
        "model_digest": protector.model_digest,
        "pool_digest": protector.pool_digest,
        "protected_digest": digest(io.inputs["protected"]),
    }
    write_json(io.outputs["audit"], rounded(document))
    write_json(io.outputs["metrics"], rounded(_flat_metrics(report)))
    rows = [{"attribute": row.name, "role": row.role, "nag": round(row.nag, 6)} for row in report.attributes]
    pl.DataFrame(rows).write_csv(io.outputs["nag_table"])
    metrics = {"mnag": report.mnag} | {f"nag_{row.name}": row.nag for row in report.attributes}
    return StepResult(counts={"records": len(subject.test), "attacks": len(attacks)}, metrics=metrics, verdict=report.verdict)


def _subject(
    features: FeatureTable,
    attributes: tuple[Attribute, ...],
    protector: Protector,
    links: pa.Table,
    draws: int,
    forbid: Forbidden,
    io: StepIO,
) -> Subject:
    train, test = features.subset(features.rows("train")), features.subset(features.rows("test"))
    released_test = _released_features(features, protector, links, io)
    channel, test_channel = (protector.channel_for(features, features.rows(split), forbid) for split in SPLITS)
    laws: tuple[ChannelLaw, ChannelLaw] | None = None
    released_train: Callable[[int], FloatArray]
    if channel is None or test_channel is None:

        def released_train(draw: int) -> FloatArray:
            return protector.fitted.transform(train.features, io.rng("release", str(draw % draws)))
    else:
        donor_features = array_of(protector.pool, FEATURES, protector.info.feature_shape)
        train_law = channel_law(channel, train.features, train.labels, attributes, io.rng("release"), draws)
        laws = train_law, channel_law(test_channel, test.features, test.labels, attributes, io.rng("law"))

        def released_train(draw: int) -> FloatArray:
            drawn: FloatArray = donor_features[train_law.draws[draw % draws]]
            return drawn

    blocks = features.blocks[features.rows("test")]
    return Subject(attributes, train, test, blocks, released_test, released_train, laws)


def _released_features(features: FeatureTable, protector: Protector, links: pa.Table, io: StepIO) -> FloatArray:
    """Features of what was really released, in the order of the test records; read from the protected files."""
    links = links.filter(pa.compute.equal(links.column(SPLIT), "test"))
    released = read_partition(io.inputs["protected"], "test")
    position = dict(zip(links.column(RECORD_ID).to_pylist(), links.column("row").to_pylist(), strict=True))
    wanted = [features.record_ids[row] for row in features.rows("test")]
    if set(wanted) != set(position) or len(released) != len(wanted):
        raise ChecksumMismatch(f"{io.inputs['linkage']}: is of other records than the features; run substitute again")
    rows = np.array([position[record_id] for record_id in wanted], dtype=np.int64)
    if protector.fitted.channel is None:
        return array_of(released, PAYLOAD, protector.info.feature_shape)[rows]  # a method without a pool releases features
    donors = links.column("donor").to_numpy()
    expected = payload_bytes(protector.pool.column(PAYLOAD))
    if [expected[donor] for donor in donors] != payload_bytes(released.column(PAYLOAD)):
        raise ChecksumMismatch(f"{io.inputs['protected']}: a released payload is not the drawn donor's; run substitute again")
    donated: FloatArray = array_of(protector.pool, FEATURES, protector.info.feature_shape)[donors[rows]]
    return donated


def _flat_metrics(report: AuditReport) -> dict[str, Any]:
    """What `dvc metrics show` lists."""
    return {"verdict": report.verdict, "mnag": report.mnag} | {
        row.name: {
            "nag": row.nag,
            "accuracy_protected": row.accuracy.protected,
            "accuracy_unprotected": row.accuracy.unprotected,
            "nag_exact_rule": None if row.nag_exact is None else row.nag_exact.rule,
        }
        for row in report.attributes
    }


def _channel_figures(laws: tuple[ChannelLaw, ChannelLaw] | None, protector: Protector) -> dict[str, Any] | None:
    if laws is None:
        return None
    train, test = laws
    return {
        "pool_size": len(protector.pool),
        "record_information_train": train.record_information,
        "record_information_test": test.record_information,
        "row_entropy_test": test.row_entropy,
    }


def _confusion(
    laws: tuple[ChannelLaw, ChannelLaw] | None, protector: Protector, attributes: tuple[Attribute, ...]
) -> dict[str, list[list[float]]] | None:
    """Per attribute: probability that a test record of class i (row) is replaced by a donor of class j (column)."""
    if laws is None:
        return None
    labels = labels_of(protector.pool, attributes)
    return {a.name: substitution_confusion(laws[1].joint[a.name], labels[a.name]).tolist() for a in attributes}


def _donor_figures(links: pa.Table, features: FeatureTable, protector: Protector) -> dict[str, Any] | None:
    """How often donors were released, and how often a record met itself or its own person."""
    if protector.fitted.channel is None:
        return None
    donors: IntArray = links.column("donor").to_numpy()
    uses = np.bincount(donors, minlength=len(protector.pool))
    donor_ids = protector.pool.column(RECORD_ID).to_pylist()
    donor_persons = protector.pool.column(PERSON).to_pylist()
    person_of = dict(zip(features.record_ids, features.persons, strict=True))
    ids = links.column(RECORD_ID).to_pylist()
    return {
        "releases": len(donors),
        "used": int((uses > 0).sum()),
        "pool_size": len(uses),
        "uses": np.sort(uses)[::-1].tolist(),
        "largest_share": float(uses.max() / len(donors)),
        "self_substitution_rate": float(np.mean([i == donor_ids[d] for i, d in zip(ids, donors, strict=True)])),
        "same_person_rate": float(np.mean([person_of[i] == donor_persons[d] for i, d in zip(ids, donors, strict=True)])),
    }
