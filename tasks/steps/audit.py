"""Step audit: attacks what was released, and gives a verdict."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

import pass_core.attacks
from pass_core import discovery
from pass_core.auditing.analyses.linkage import Linkage
from pass_core.auditing.findings import AuditFindings
from pass_core.auditing.run import run_audit
from pass_core.auditing.subject import Subject
from pass_core.auditing.trained_attacks import NamedAttack
from pass_core.channel.joint_law import accumulate, substitution_confusion
from pass_core.channel.pool import Forbidden
from pass_core.data import Attribute
from pass_core.devices import Device, resolve_device
from pass_core.errors import ChecksumMismatch
from pass_core.training.epochs import Epoch
from tasks.audits.document import Context, Counts, document, limits_of
from tasks.audits.release import make_subject, replay_of
from tasks.release.protector import Protector, read_protector
from tasks.running.step_io import StepIO, StepResult
from tasks.sections.audit import AuditConfig
from tasks.sections.dataset import DatasetConfig
from tasks.storage.files import digest, read_json, rounded, write_json
from tasks.storage.models import describe_model
from tasks.storage.parquet import FeatureTable, TableInfo, labels_of, read_features, read_table, shown_classes


def audit(dataset: DatasetConfig, config: AuditConfig, forbid: Forbidden, device: Device, io: StepIO) -> StepResult:
    """Writes audit.json, the figures that DVC tracks, and the table of NAG."""
    attributes = dataset.attributes(TableInfo.load(io.inputs["features"]).classes)
    features = read_features(io.inputs["features"], attributes)
    protector = read_protector(io.inputs["model"], io.inputs["pool"], attributes, resolve_device(device))
    manifest = read_json(io.inputs["protected"] / "manifest.json")
    _check_manifest(manifest, protector, forbid, io)
    links, training = read_table(io.inputs["linkage"]), describe_model(io.inputs["model"])["training"]
    subject = make_subject(features, attributes, protector, links, config.depth.fresh_draws, forbid, training, io)
    replay = replay_of(features, subject, protector, forbid, manifest, io)

    def rng_for(stage: str, *labels: str) -> np.random.Generator:
        return (io.dataset_rng if stage == "unprotected" else io.rng)(stage, *labels)

    def on_attack(work: str, epoch: Epoch) -> None:
        io.progress(f"audit {io.key}, {work}", epoch.number, epoch.total)

    attacks, thresholds = named_attacks(config), config.thresholds
    findings = run_audit(subject, attacks, thresholds, config.depth, rng_for, on_attack=on_attack, replay=replay)
    context = dataclasses.replace(
        context_of(subject, config, io.key.dataset, str(io.key.method), digest(io.inputs["protected"])),
        classes=_shown_classes(subject, features, attributes),
        confusion=_confusion(subject, protector, attributes),
        forbid=None if subject.substitution is None else forbid,
        stamp=manifest.get("stamp"),
        model_digest=protector.model_digest,
        pool_digest=protector.pool_digest,
    )
    write_json(io.outputs["audit"], document(findings, context))
    write_json(io.outputs["metrics"], rounded(_flat_metrics(findings)))
    _write_tables(findings, io)
    metrics = {"mnag": findings.mnag.value} | {f"nag_{_metric_name(row.name)}": row.nag.value for row in findings.attributes}
    return StepResult({"records": len(subject.test), "attacks": len(config.attacks)}, metrics, verdict=findings.verdict)


def named_attacks(config: AuditConfig) -> tuple[NamedAttack, ...]:
    """The attacks that params.yaml names, with their settings."""
    return tuple(NamedAttack(name, discovery.load(pass_core.attacks, name).ATTACK, c) for name, c in config.attacks.items())


def context_of(subject: Subject, config: AuditConfig, dataset: str, method: str, protected_digest: str) -> Context:
    """What stands beside the findings whatever is audited; the classes have numbers for names."""
    parts = (subject.train, subject.test)
    return Context(
        dataset=dataset,
        method=method,
        basis="labelled",
        records=Counts(*(len(part) for part in parts)),
        persons=Counts(*(len(np.unique(part.persons)) for part in parts)),
        split="as the data set's",
        attack_settings={name: dataclasses.asdict(settings) for name, settings in config.attacks.items()},
        depth=config.depth,
        thresholds=limits_of(config.thresholds, "labelled"),
        classes={a.name: tuple(str(k + 1) for k in range(a.n_classes)) for a in subject.attributes},
        confusion=None,
        forbid=None,
        pass_through=tuple(column.attribute.name for column in subject.columns),
        stamp=None,
        model_digest=None,
        pool_digest=None,
        protected_digest=protected_digest,
        original_digest=None,
        valid_days=config.valid_days,
    )


def _check_manifest(manifest: Mapping[str, Any], protector: Protector, forbid: Forbidden, io: StepIO) -> None:
    if (manifest["model_digest"], manifest["pool_digest"]) != (protector.model_digest, protector.pool_digest):
        raise ChecksumMismatch(f"{io.inputs['protected']}: was made with another model or pool than given; run substitute again")
    if manifest.get("forbid") != forbid:
        raise ChecksumMismatch(f"{io.inputs['protected']}: was made with another pool.forbid than given; run substitute again")


def _shown_classes(subject: Subject, features: FeatureTable, attributes: tuple[Attribute, ...]) -> dict[str, tuple[str, ...]]:
    single = {a.name: shown_classes(a.classes, features.records.labels[a.name], features.persons) for a in attributes}
    return single | {a.name: a.classes for a in subject.attributes if a.name in subject.combines}


def _confusion(
    subject: Subject, protector: Protector, attributes: tuple[Attribute, ...]
) -> dict[str, tuple[tuple[float, ...], ...]] | None:
    """Per attribute: probability that a test record of class i (row) is replaced by a donor of class j (column)."""
    if subject.substitution is None:
        return None
    donors, test = labels_of(protector.pool, attributes), subject.test
    starts = np.cumsum([0, *(a.n_classes for a in attributes)])
    codes = np.stack([test.records.labels[a.name] + start for a, start in zip(attributes, starts[:-1], strict=True)])
    sums = accumulate(subject.substitution.channel("test", np.arange(len(test))), test.records.features, codes, int(starts[-1]))
    return {
        a.name: tuple(map(tuple, substitution_confusion(sums[start : start + a.n_classes], donors[a.name]).tolist()))
        for a, start in zip(attributes, starts[:-1], strict=True)
    }


def _flat_metrics(findings: AuditFindings) -> dict[str, Any]:
    """What `dvc metrics show` lists."""
    return {"verdict": findings.verdict, "mnag": findings.mnag.value} | {
        row.name: {
            "nag": row.nag.value,
            "nag_high": row.nag.high,
            "accuracy_protected": row.protected.value,
            "accuracy_unprotected": row.unprotected.value,
            "nag_exact_rule": None if row.exact is None else row.exact.rule.value,
            "information_excess": None if row.exact is None else row.exact.information.excess,
        }
        for row in findings.attributes
    }


def _write_tables(findings: AuditFindings, io: StepIO) -> None:
    """What `dvc plots` draws: NAG per attribute, and what several records of one person tell, a column per attribute."""
    nag = [{"attribute": row.name, "role": row.role, **rounded(dataclasses.asdict(row.nag))} for row in findings.attributes]
    pl.DataFrame(nag).rename({"value": "nag"}).write_csv(io.outputs["nag_table"])
    linkage = findings.finding(Linkage)
    bundles = linkage.bundles if linkage else ()
    tables = [
        pl.DataFrame({"records": [size.records for size in bundle.sizes],
                      bundle.attribute: [round(size.accuracy.value, 6) for size in bundle.sizes]})
        for bundle in bundles
    ]  # fmt: skip
    empty = pl.DataFrame(schema={"records": pl.Int64})
    functools.reduce(_joined, tables, empty).sort("records").write_csv(io.outputs["bundle_table"])


def _joined(left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
    return left.join(right, on="records", how="full", coalesce=True)


def _metric_name(attribute: str) -> str:
    """MLflow takes no × in the name of a metric."""
    return attribute.replace(" × ", "_and_")
