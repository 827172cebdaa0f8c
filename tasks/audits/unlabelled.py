"""The gate for records whose classes nobody knows: a labelled audit of the same protector, and checks that need no labels."""

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pass_core.auditing.drift import RECORDS, Side, find_drift, judge_drift
from pass_core.auditing.findings import Check, Outcome, Unlabelled
from pass_core.channel.pool import Forbidden
from pass_core.channel.substitution import Channel
from pass_core.data import IntArray
from pass_core.devices import resolve_device
from pass_core.errors import ChecksumMismatch, DataError
from pass_core.randomness import stream
from tasks.audits.document import Audit, amended, limits_of, read_audit
from tasks.config import Config
from tasks.lakes.new_records import read_new_records
from tasks.release.protector import Protector, read_protector
from tasks.running.layout import Layout
from tasks.running.step_io import RunKey
from tasks.sections.audit import AuditConfig
from tasks.storage.files import digest, file_digest, read_json
from tasks.storage.parquet import FeatureTable, TableInfo, read_features

LABELLED_AUDIT, VALID_DAYS = "labelled_audit", "valid_days"
CHECKS = (LABELLED_AUDIT, VALID_DAYS)  # beside those of the thresholds

NOT_ATTACKED = (
    "Private attributes were not attacked on these records: they carry no labels.",
    "What is said of attributes, linkage and donors was found on the labelled records of the audit that is relied on.",
    "New records were only compared with those. A leak that shows in new records alone is seen if they drift, else not.",
)


@dataclass(frozen=True, slots=True)
class LabelledAudit:
    """The audit of a protector on labelled records."""

    document: Audit
    digest: str
    time: datetime.datetime


@dataclass(frozen=True, slots=True)
class UnlabelledAudit:
    """What the gate says."""

    verdict: Outcome
    reasons: tuple[str, ...]  # sentences of the checks that failed
    checks: tuple[Check, ...]
    findings: Unlabelled


def read_labelled_audit(layout: Layout, key: RunKey) -> LabelledAudit:
    """The last audit of a data set and method; when it was made stands in its provenance."""
    path = layout.artefact("audit", key)
    document = read_audit(path)
    if document.basis != "labelled":
        raise DataError(f"{path}: expected an audit of labelled records; run audit again")
    try:
        time = datetime.datetime.fromisoformat(read_json(layout.provenance("audit", key))["time"])
    except (DataError, KeyError, TypeError, ValueError):
        raise DataError(f"{layout.provenance('audit', key)}: does not say when {path.name} was made; run audit again") from None
    return LabelledAudit(document, file_digest(path), time)


def side_of(protector: Protector, table: FeatureTable, rows: IntArray, forbid: Forbidden, drawn: IntArray | None = None) -> Side:
    """Records of a table as drift is found on them; `drawn` are donors that were drawn for these rows."""
    _, persons = np.unique(np.array([table.persons[row] for row in rows]), return_inverse=True)

    def channel(chosen: IntArray) -> Channel:
        found = protector.channel_for(table, rows[chosen], forbid)
        assert found is not None  # noqa: S101 (the method has a channel)
        return found

    return Side(
        table.records.features[rows],
        persons.astype(np.int64),
        table.blocks[rows],
        None if protector.fitted.channel is None else channel,
        drawn=drawn,
    )


def audit_unlabelled(
    protector: Protector,
    labelled: LabelledAudit,
    reference: Side,
    new: Side,
    config: AuditConfig,
    rng_for: Callable[..., np.random.Generator],
    now: datetime.datetime,
    of: int | None = None,
) -> UnlabelledAudit:
    """Judges new records by the labelled audit of the same protector and by drift from its records.

    Args:
        reference: labelled records that are no donors, best the hold-out that the audit is of.
        of: records of which the new ones are some; default: all.

    Raises:
        ChecksumMismatch: the audit is of another model or pool.
    """
    audited = labelled.document.model_digest, labelled.document.pool_digest
    if audited != (protector.model_digest, protector.pool_digest):
        raise ChecksumMismatch("the labelled audit is of another model or pool than the one in use; run audit again")
    drift = find_drift(reference, new, config.depth.permutations, rng_for)
    checks = (*_reliance(labelled, config.valid_days, now), *judge_drift(drift, config.thresholds))
    reasons = tuple(check.sentence for check in checks if not check.passed)
    findings = Unlabelled(of or len(new.features), labelled.digest, labelled.time.isoformat(timespec="seconds"), drift)
    return UnlabelledAudit("fail" if reasons else "pass", reasons, checks, findings)


def _reliance(labelled: LabelledAudit, valid_days: int, now: datetime.datetime) -> tuple[Check, Check]:
    passed = labelled.document.verdict == "pass"
    days = (now - labelled.time).total_seconds() / 86400
    return (
        Check(
            name=LABELLED_AUDIT,
            about="labelled audit",
            found=float(not passed),
            limit=0.0,
            passed=passed,
            sentence=f"the protector's audit on labelled records has the verdict {labelled.document.verdict}",
            reason="Records without labels cannot be attacked: only a protector that passed where labels are known may be used "
            "on them.",
        ),
        Check(
            name=VALID_DAYS,
            about="labelled audit",
            found=days,
            limit=float(valid_days),
            passed=0 <= days <= valid_days,
            sentence=f"the protector's audit on labelled records is {days:.0f} day(s) old, at most {valid_days} allowed",
            reason="Data and attacks change: after this time an audit is too old to rely on (audit.valid_days).",
        ),
    )


def unlabelled_document(path: Path, key: RunKey, config: Config, layout: Layout) -> dict[str, Any]:
    """The audit of a table or of features without labels: the labelled audit's document, and what was found here instead."""
    dataset, forbid, folder = config.dataset[key.dataset], config.pool.forbid, layout.artefact("features", key)
    attributes = dataset.attributes(TableInfo.load(folder).classes)
    device = resolve_device(config.compute.device)
    protector = read_protector(layout.artefact("model", key), layout.artefact("pool", key), attributes, device)
    labelled = read_labelled_audit(layout, key)

    def rng_for(*labels: str) -> np.random.Generator:
        return stream(config.seed, "audit", "unlabelled", *labels)

    threads, audited = config.compute.threads, read_features(folder, ())
    new = read_new_records(
        path, dataset, config.extractor, protector.info, config.compute.device, threads, RECORDS, rng_for("records")
    )
    found = audit_unlabelled(
        protector,
        labelled,
        side_of(protector, audited, audited.rows("test"), forbid),
        side_of(protector, new.table, np.arange(len(new.table.record_ids)), forbid),
        config.audit,
        rng_for,
        datetime.datetime.now(datetime.UTC),
        new.of,
    )
    return amended(
        labelled.document,
        basis="unlabelled",
        verdict=found.verdict,
        reasons=found.reasons,
        checks=found.checks,
        thresholds={**labelled.document.thresholds, **limits_of(config.audit.thresholds, "unlabelled")},
        valid_days=config.audit.valid_days,
        not_promised=(*NOT_ATTACKED, *labelled.document.not_promised),
        unlabelled=found.findings,
        protected_digest=None,
        original_digest=digest(path),
    )
