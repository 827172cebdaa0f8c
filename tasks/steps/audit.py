"""Step audit: attacks what was released, and decides the verdict."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from pass_core.auditing.analyses.linkage import Linkage
from pass_core.auditing.findings import AuditFindings
from pass_core.auditing.recipient import Recipient
from pass_core.auditing.run import run_audit
from pass_core.auditing.subject import Subject
from pass_core.channel.draws import key_id
from pass_core.channel.joint_law import accumulate, substitution_confusion
from pass_core.channel.pool import Forbidden, PoolConfig
from pass_core.data import Attribute, shown_classes
from pass_core.devices import Device, resolve_device
from pass_core.errors import ChecksumMismatch
from pass_core.storage.audits import context_of, document, figures_of
from pass_core.training.epochs import Epoch
from tasks.audits.controls import KeptControls
from tasks.audits.release import release_subject, replay_of
from tasks.release.protector import Protector, read_protector
from tasks.running.step_io import StepIO, StepResult
from tasks.sections.audit import AuditConfig
from tasks.sections.dataset import DatasetConfig
from tasks.storage.files import digest, read_json, rounded, write_json
from tasks.storage.parquet import TableInfo, labels_of, read_features


@dataclass(frozen=True, slots=True, kw_only=True)
class Auditing:
    """What the step is asked for."""

    io: StepIO
    dataset: DatasetConfig
    attacker: Recipient
    config: AuditConfig
    pool: PoolConfig
    device: Device


def audit(asked: Auditing) -> StepResult:
    """Writes audit.json, the metrics that DVC tracks, and the tables that it plots."""
    io, dataset, config, forbid = asked.io, asked.dataset, asked.config, asked.pool.forbid
    attributes = dataset.attributes(TableInfo.same_features(io.inputs["features"], io.inputs["pool"]).classes)
    features = read_features(io.inputs["features"], attributes)
    protector = read_protector(io.inputs["model"], io.inputs["pool"], attributes, resolve_device(asked.device))
    manifest = read_json(io.inputs["protected"] / "manifest.json")
    _check_manifest(manifest, protector, forbid, io)
    subject = release_subject(
        features, attributes, protector, fresh_draws=config.depth.fresh_draws, forbid=forbid, recipient=asked.attacker, io=io
    )
    replay = replay_of(features, subject, protector, forbid=forbid, stamp=manifest.get("stamp"), io=io)

    def rng_for(stage: str, *labels: str) -> np.random.Generator:
        return (io.dataset_rng if stage == "unprotected" else io.rng)(stage, *labels)

    def on_attack(work: str, epoch: Epoch) -> None:
        io.progress(f"audit {io.key}, {work}", epoch.number, epoch.total)

    attacks, thresholds, depth = config.named_attacks(), config.thresholds, config.depth
    findings = run_audit(
        subject, attacks, thresholds, depth, rng_for,
        on_attack=on_attack, replay=replay, effort=config.effort, keep=KeptControls(io.cache / "controls"),
    )  # fmt: skip
    dataset_name, method, released = io.key.dataset, str(io.key.method), digest(io.inputs["protected"])
    shown = {a.name: shown_classes(a.classes, features.records.labels[a.name], features.persons) for a in attributes}
    context = dataclasses.replace(
        context_of(subject, attacks, thresholds, depth, dataset=dataset_name, method=method, protected_digest=released),
        valid_days=config.valid_days,
        classes=shown | {a.name: a.classes for a in subject.attributes if a.name in subject.combines},
        confusion=_confusion(subject, protector, attributes),
        forbid=None if subject.substitution is None else forbid,
        donors_only=None if subject.substitution is None else asked.pool.only,
        stamp=manifest.get("stamp"),
        model_digest=protector.model_digest,
        pool_digest=protector.pool_digest,
    )
    write_json(io.outputs["audit"], document(findings, context))
    write_json(io.outputs["metrics"], rounded(figures_of(findings)))
    _write_tables(findings, io)
    nags = {row.name.replace(" × ", "_and_"): row.nag.value for row in findings.attributes}  # MLflow rejects × in a name
    metrics = {"mnag": findings.mnag.value} | {f"nag_{name}": value for name, value in nags.items()}
    counts = {"records": len(subject.test), "attacks": len(attacks)}
    return StepResult(counts=counts, metrics=metrics, verdict=findings.verdict)


def _check_manifest(manifest: Mapping[str, Any], protector: Protector, forbid: Forbidden, io: StepIO) -> None:
    """Rejects a release that was made otherwise than this audit assumes: its findings would be about something else."""
    place, own, found = io.inputs["protected"], key_id(io.draw_key()), manifest.get("key_id")
    if found != own:
        raise ChecksumMismatch(
            f"{place}: expected a release drawn with key id {own}, which this run's seed gives, found {found}; "
            "audit with the seed of the release, or run substitute again with this seed"
        )
    for name, expected in (("model", protector.model_digest), ("pool", protector.pool_digest)):
        made_with = manifest[f"{name}_digest"]
        if made_with != expected:
            raise ChecksumMismatch(
                f"{place}: expected a release made with {name} {expected[:12]}, found {made_with[:12]}; run substitute again"
            )
    if manifest.get("forbid") != forbid:
        raise ChecksumMismatch(
            f"{place}: expected pool.forbid {forbid}, found a release made with {manifest.get('forbid')}; run substitute again"
        )


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


def _write_tables(findings: AuditFindings, io: StepIO) -> None:
    """What `dvc plots` draws: NAG per attribute, and how accurate an attack on several records of one person is."""
    nag = [{"attribute": row.name, "role": row.role, **rounded(dataclasses.asdict(row.nag))} for row in findings.attributes]
    pl.DataFrame(nag).rename({"value": "nag"}).write_csv(io.outputs["nag_table"])
    linkage = findings.finding(Linkage)
    table = pl.DataFrame(schema={"records": pl.Int64})
    for bundle in linkage.bundles if linkage else ():
        accuracy = {size.records: round(size.accuracy.value, 6) for size in bundle.sizes}
        column = pl.DataFrame({"records": list(accuracy), bundle.attribute: list(accuracy.values())})
        table = table.join(column, on="records", how="full", coalesce=True)
    table.sort("records").write_csv(io.outputs["bundle_table"])
