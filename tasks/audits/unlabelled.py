"""The audit of records without labels: relies on a labelled audit of the same protector and checks for drift from its records."""

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pass_core.auditing.drift import RECORDS, Side, find_drift, judge_drift
from pass_core.auditing.findings import Check, Unlabelled, Verdict
from pass_core.auditing.thresholds import Limit
from pass_core.channel.pool import Forbidden
from pass_core.channel.substitution import carried_attributes
from pass_core.data import IntArray
from pass_core.devices import resolve_device
from pass_core.errors import ChecksumMismatch, DataError
from pass_core.randomness import stream
from pass_core.storage.audits import Audit, amended, limits_of, read_audit
from tasks.audits.release import channel_of
from tasks.config import Config
from tasks.lakes.new_records import read_new_records
from tasks.release.protector import Protector, read_protector
from tasks.running.layout import Layout
from tasks.running.step_io import RunKey
from tasks.sections.audit import AuditConfig
from tasks.storage.files import digest, file_digest, read_json
from tasks.storage.parquet import FeatureTable, TableInfo, read_features

CHECKS = LABELLED_AUDIT, VALID_DAYS = "labelled_audit", "valid_days"  # in addition to those of the thresholds

FULL_AUDIT = "audit the model again, with --set audit.effort=full (pass-pipeline audit release)"

NOT_ATTACKED = (
    "Private attributes were not attacked on these records: they carry no labels.",
    "The findings about attributes, linkage and donors come from the labelled audit that this one relies on.",
    "New records were only compared with its records. A leak in new records alone is found only if they drift.",
)


@dataclass(frozen=True, slots=True)
class LabelledAudit:
    """The audit of a protector on labelled records."""

    document: Audit
    digest: str
    time: datetime.datetime


@dataclass(frozen=True, slots=True)
class UnlabelledAudit:
    """The verdict on records without labels."""

    verdict: Verdict
    reasons: tuple[str, ...]  # sentences of the failed checks
    checks: tuple[Check, ...]
    findings: Unlabelled


def read_labelled_audit(layout: Layout, key: RunKey) -> LabelledAudit:
    """The last audit of a data set and method, with the time from its provenance."""
    path = layout.artefact("audit", key)
    document = read_audit(path)
    if document.basis != "labelled":
        raise DataError(f"{path}: expected an audit of labelled records, found basis {document.basis}; run audit again")
    if document.effort != "full":
        raise DataError(f"{path}: expected a full audit, found a quick one; {FULL_AUDIT}")
    try:
        time = datetime.datetime.fromisoformat(read_json(layout.provenance("audit", key))["time"])
    except (DataError, KeyError, TypeError, ValueError):
        raise DataError(
            f"{layout.provenance('audit', key)}: expected the time of {path.name}, found none; run audit again"
        ) from None
    return LabelledAudit(document, file_digest(path), time)


def side_of(protector: Protector, table: FeatureTable, rows: IntArray, *, forbid: Forbidden) -> Side:
    """Records of a table, ready for the comparison."""
    _, persons = np.unique(np.array([table.persons[row] for row in rows]), return_inverse=True)
    return Side(
        table.records.features[rows],
        persons.astype(np.int64),
        table.blocks[rows],
        None if protector.fitted.channel is None else lambda chosen: channel_of(protector, table, rows[chosen], forbid),
    )


def audit_unlabelled(
    protector: Protector,
    labelled: LabelledAudit,
    *,
    reference: Side,
    new: Side | None,
    config: AuditConfig,
    rng_for: Callable[..., np.random.Generator],
    now: datetime.datetime,
    of: int | None = None,
) -> UnlabelledAudit:
    """Judges new records by the labelled audit of the same protector and by drift from its records.

    Args:
        reference: labelled records that are not donors; best the test records that were audited.
        new: None where there are too few to be compared: then only the labelled audit counts.
        of: size of the set that `new` is a sample of; default: `new` is the whole set.
    """
    for name in ("model", "pool"):
        expected, found = getattr(protector, f"{name}_digest"), getattr(labelled.document, f"{name}_digest")
        if found != expected:
            raise ChecksumMismatch(
                f"labelled audit: expected one of {name} {expected[:12]}, found {str(found)[:12]}; run audit again"
            )
    drift = find_drift(reference, new, config.depth.permutations, rng_for) if new else ()
    checks = (*_reliance(labelled, config.valid_days, now), *judge_drift(drift, config.thresholds))
    reasons = tuple(check.sentence for check in checks if not check.passed)
    findings = Unlabelled(
        of or (len(new.features) if new else 0), labelled.digest, labelled.time.isoformat(timespec="seconds"), drift
    )
    return UnlabelledAudit("fail" if reasons else "pass", reasons, checks, findings)


def _reliance(labelled: LabelledAudit, valid_days: int, now: datetime.datetime) -> tuple[Check, Check]:
    """Whether the labelled audit may be relied on: it passed, and it is recent."""
    passed = labelled.document.verdict == "pass"
    days = (now - labelled.time).total_seconds() / 86400
    trusted = "Records without labels cannot be attacked: only a model that passed an audit with labels may protect them."
    recent = "Data and attacks change: after this time an audit is too old to rely on (audit.valid_days)."
    verdict = f"the protector's audit on labelled records has the verdict {labelled.document.verdict}"
    age = f"the protector's audit on labelled records is {days:.0f} day(s) old, at most {valid_days} allowed"
    about, young = "labelled audit", 0 <= days <= valid_days
    return (
        Check.fact(LABELLED_AUDIT, Limit(0.0, trusted), about, value=float(not passed), passed=passed, sentence=verdict),
        Check.fact(VALID_DAYS, Limit(float(valid_days), recent), about, value=days, passed=young, sentence=age),
    )


def unlabelled_document(path: Path, key: RunKey, config: Config, layout: Layout) -> dict[str, Any]:
    """The document of an audit of a table or of features without labels: the labelled audit's, with the new findings in it."""
    dataset, forbid, folder = config.dataset[key.dataset], config.pool.forbid, layout.artefact("features", key)
    model, pool = layout.artefact("model", key), layout.artefact("pool", key)
    attributes = dataset.attributes(TableInfo.same_features(folder, pool).classes)
    compute = config.compute
    protector = read_protector(model, pool, attributes, resolve_device(compute.device))
    audited = read_features(folder, carried_attributes(protector.fitted.channel))
    labelled = read_labelled_audit(layout, key)

    def rng_for(*labels: str) -> np.random.Generator:
        return stream(config.seed, "audit", "unlabelled", *labels)

    rng = rng_for("records")
    new = read_new_records(
        path, dataset, config.extractor, pool, device=compute.device, threads=compute.threads, at_most=RECORDS, rng=rng
    )
    found = audit_unlabelled(
        protector,
        labelled,
        reference=side_of(protector, audited, audited.rows("test"), forbid=forbid),
        new=side_of(protector, new.table, np.arange(len(new.table.record_ids)), forbid=forbid),
        config=config.audit,
        rng_for=rng_for,
        now=datetime.datetime.now(datetime.UTC),
        of=new.of,
    )
    return amended(
        labelled.document,
        basis="unlabelled",
        verdict=found.verdict,
        privacy="below the limit" if found.verdict == "pass" else "cannot be decided",
        reasons=found.reasons,
        checks=found.checks,
        thresholds={**labelled.document.thresholds, **limits_of(config.audit.thresholds, "unlabelled")},
        valid_days=config.audit.valid_days,
        not_promised=(*NOT_ATTACKED, *labelled.document.not_promised),
        unlabelled=found.findings,
        protected_digest=None,
        original_digest=digest(path),
    )
