"""What is checked before anything is published: the staged partitions, and, by the audit gate, a sample of the records.

Records with labels are attacked, alone and together with recent ones. Records without labels, and those that are too few to
decide, rely on the champion's audit: it must be of the same model and pool, have passed and be recent, and the records must be
similar to those that it examined.
"""

import dataclasses
import datetime
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pass_core.auditing.drift import FEWEST_RECORDS, Side
from pass_core.auditing.findings import AuditFindings
from pass_core.auditing.recipient import Recipient
from pass_core.auditing.run import run_audit
from pass_core.auditing.subject import DrawnRelease, Part, Subject, make_subject
from pass_core.auditing.thresholds import DRIFTS
from pass_core.channel.substitution import Channel, Exclusion, carried_attributes, channel_of_records, exclusion_among
from pass_core.data import IntArray, Records
from pass_core.devices import resolve_device
from pass_core.errors import AuditError, AuditFailed, ConfigError, DataError, DriftFound
from pass_core.randomness import stream
from pass_core.storage.audits import limits_of
from tasks.audits.unlabelled import FULL_AUDIT, UnlabelledAudit, audit_unlabelled, read_labelled_audit, side_of
from tasks.config import Config
from tasks.expectations import suites
from tasks.production.interfaces import Basis, GateResult, Job, Sample
from tasks.production.pinned import read_pinned
from tasks.production.staging import Staged
from tasks.release.draw import donor_units
from tasks.release.protector import Protector
from tasks.running.layout import Layout
from tasks.running.numerics import fixed_numerics
from tasks.running.step_io import RunKey
from tasks.sections.audit import AuditConfig
from tasks.storage.files import read_json, rounded
from tasks.storage.parquet import FEATURES, SPLITS, TableInfo, array_of, read_features

logger = logging.getLogger(__name__)

FEWEST_ATTACKED = 100  # records: half of fewer teach an attack nothing
TRAIN_SHARE = 0.5  # of the sample's persons; attackers learn from their records


def check_partitions(run: RunKey, staged: Iterable[Staged], expected: str, docs: Path) -> None:
    """Checks staged partitions, whose files must have the `expected` columns, or raises ValidationFailed."""
    names, rows = ("number", "columns", "lost", "files", "nobodys"), []
    for number, one in enumerate(staged):  # one row per partition: the cost does not depend on the number of records
        made = one.receipt
        lost = made.rows_in - made.rows - made.quarantined
        nobodys = made.rows if not made.donors else 0  # released rows without a donor
        rows.append((number, one.columns(), lost, len(made.files), nobodys))
    suite = [
        suites.row_count(len(rows), len(rows)),
        suites.columns(names),
        suites.unique("number"),
        suites.in_set("columns", (expected,)),
        *(suites.between(column, 0, 0) for column in ("lost", "nobodys")),
        suites.between("files", 1, float(2**53)),  # also where there are no rows
        *(suites.not_null(column) for column in ("lost", "nobodys", "files")),
    ]
    suites.check(
        f"protected lake {run.dataset} {run.method}", {"partitions": (pd.DataFrame(rows, columns=list(names)), suite)}, docs
    )


@dataclass(frozen=True, slots=True)
class AuditGate:
    """Attacks a sample with the attacks and limits of params.yaml; relies on the champion's audit where labels are missing."""

    config: AuditConfig
    recipient: Recipient
    seed: int
    threads: int
    layout: Layout  # where the champion was trained and audited
    key: RunKey
    enough: int  # records: what these cannot decide stays undecided

    @classmethod
    def of(cls, config: Config, layout: Layout, key: RunKey) -> "AuditGate":
        """The gate that params.yaml describes."""
        enough, threads = config.protect.audit_records, config.compute.threads
        return cls(config.audit, config.attacker, config.seed, threads, layout, key, enough)

    def __post_init__(self) -> None:
        """Rejects quick audits before hours of work: they are too little to publish anything."""
        expected = "expected full before anything is published, found"
        if self.config.effort != "full":
            raise ConfigError(f"audit.effort: {expected} {self.config.effort}; set it to full, or remove it from params.yaml")
        path = self.layout.artefact("audit", self.key)
        if path.exists() and (effort := read_json(path).get("effort", "full")) != "full":
            raise DataError(f"{path}: {expected} an audit with audit.effort {effort}; {FULL_AUDIT}")

    def judge(self, sample: Sample, job: Job) -> GateResult:
        with fixed_numerics(self.threads):
            protector = read_pinned(job, resolve_device(job.device))
            if not sample.labels:
                return self._by_champion(sample, protector, job, "unlabelled")
            # First alone, since recent records could hide a leak of new ones.
            for part in (sample.alone(), sample) if sample.recent else (sample,):
                found = self._attacked(part, protector, job)
                if found is not None and (found.verdict != "undecided" or len(part.donors) >= self.enough):
                    return found
            return self._by_champion(sample, protector, job, "champion")

    def _attacked(self, sample: Sample, protector: Protector, job: Job) -> GateResult | None:
        """The audit of records with labels; None where they are too few to be attacked."""
        if len(sample.donors) < FEWEST_ATTACKED:
            return None
        attacks, thresholds, depth = self.config.named_attacks(), self.config.thresholds, self.config.depth
        subject = _subject(sample, protector, job, depth.fresh_draws, self._rng("split"), recipient=self.recipient)
        try:
            findings = run_audit(subject, attacks, thresholds, depth, self._rng, on_attack=lambda _work, _epoch: None)
        except AuditError:
            if len(sample.donors) >= self.enough:
                raise
            return None
        details = {
            row.name: {"role": row.role, "nag": row.nag.value, "low": row.nag.low, "high": row.nag.high, "attack": row.attack}
            for row in findings.attributes
        }
        return self._result(findings, "labelled", sample, digests=_digests(protector), details={"attributes": details})

    def _by_champion(self, sample: Sample, protector: Protector, job: Job, basis: Basis) -> GateResult:
        """Judges records by how the same model and pool did on labelled ones, and by drift where there are enough of them."""
        try:
            labelled = read_labelled_audit(self.layout, self.key)
            features = self.layout.artefact("features", self.key)
            TableInfo.same_features(features, job.pool)
            held_out = read_features(features, carried_attributes(protector.fitted.channel))
        except DataError as error:
            why = "the lake has no labels" if basis == "unlabelled" else "the new records are too few to judge"
            raise AuditError(f"{why}, and there is no labelled audit to rely on: {error}") from None
        audited = labelled.document.forbid
        if audited != job.forbid:
            raise AuditError(f"champion's audit: expected pool.forbid {job.forbid}, found {audited}; run audit again")

        compared = sample.alone() if len(sample.donors) - sample.recent >= FEWEST_RECORDS else sample

        def channel(rows: IntArray) -> Channel:
            return _channel(protector, compared, rows, job)

        reference = side_of(protector, held_out, held_out.rows("test"), forbid=job.forbid)
        new = Side(compared.features, compared.persons, compared.persons, channel, drawn=compared.donors)
        too_few = len(compared.donors) < FEWEST_RECORDS
        now = datetime.datetime.now(datetime.UTC)
        found = audit_unlabelled(
            protector,
            labelled,
            reference=reference,
            new=None if too_few else new,
            config=self.config,
            rng_for=self._rng,
            now=now,
            of=sample.of,
        )
        champion = {a.name: {"role": a.role, "nag": dataclasses.asdict(a.nag)} for a in labelled.document.attributes}
        checks = {check.name: {"found": check.found, "limit": check.limit, "passed": check.passed} for check in found.checks}
        digests, details = _digests(protector) | {"champion": labelled.digest}, {"champion": champion, "checks": checks}
        if basis == "champion" or too_few:
            what = "compared with audited ones" if too_few else "judged"
            details["note"] = f"{sample.of} record(s) are too few to be {what}: they rely on the champion's audit"
        return self._result(found, basis, sample, digests=digests, details=details)

    def _result(
        self,
        found: AuditFindings | UnlabelledAudit,
        basis: Basis,
        sample: Sample,
        *,
        digests: dict[str, str],
        details: dict[str, Any],
    ) -> GateResult:
        limits = {
            name: limit.value
            for name, limit in limits_of(self.config.thresholds, "labelled" if basis == "labelled" else "unlabelled").items()
        }
        return GateResult(
            verdict=found.verdict,
            basis=basis,
            records=len(sample.donors) - sample.recent,
            of=sample.of,
            reasons=found.reasons,
            limits=limits,
            digests=digests,
            details=rounded({**details, "recent": sample.recent}),
        )

    def _rng(self, *labels: str) -> np.random.Generator:
        return stream(self.seed, "gate", *labels)


def require_pass(result: GateResult, accepted: str) -> GateResult:
    """The result when it allows to publish; `accepted` names who accepts an undecided one, and why."""
    if result.verdict == "undecided" and accepted:
        return dataclasses.replace(result, details={**result.details, "accepted_undecided": accepted})
    if result.verdict != "pass":
        found = f"expected a passed audit before publishing, found: {'; '.join(result.reasons)}"
        advice = "train another model, or change audit.thresholds"
        if result.verdict == "undecided":
            advice = "audit more records, or name who accepts it in protect.accept_undecided"
        kind = DriftFound if only_drifted(result) else AuditFailed
        raise kind(f"{found}. Nothing was published; {advice}")
    if note := result.details.get("note"):
        logger.warning("audit: %s", note)
    return result


def only_drifted(result: GateResult) -> bool:
    """Whether nothing but drift speaks against the records."""
    failed = {name for name, check in result.details.get("checks", {}).items() if not check["passed"]}
    return bool(failed) and failed <= set(DRIFTS)


def _subject(
    sample: Sample, protector: Protector, job: Job, fresh_draws: int, rng: np.random.Generator, *, recipient: Recipient
) -> Subject:
    """The sample as the audit sees it: attackers learn from half of its persons and are scored on the others."""
    whole = Part(Records(sample.features, sample.labels), sample.persons, sample.persons)
    rows = dict(zip(SPLITS, _split(sample.persons, rng), strict=True))
    return make_subject(
        attributes=sample.attributes,
        train=whole.subset(rows["train"]),
        test=whole.subset(rows["test"]),
        # Whether a donor is in the sample is not examined, so donors count as strangers.
        release=DrawnRelease(
            channel=lambda split, chosen: _channel(protector, sample, rows[split][chosen], job),
            donor_features=array_of(protector.pool, FEATURES, protector.info.feature_shape),
            drawn_test=sample.donors[rows["test"]],
            drawn_train=sample.donors[rows["train"]],
            fresh_draws=fresh_draws,
            rng=rng,
        ),
        recipient=recipient,
    )


def _channel(protector: Protector, sample: Sample, rows: IntArray, job: Job) -> Channel:
    """P(x'|x) of these records, as it was used for their draws."""
    channel, exclusion = protector.fitted.channel, None
    assert channel is not None  # noqa: S101 (workers reject other methods)
    if job.forbid != "none":
        excluded = exclusion_among([], donor_units(protector.pool, job.forbid)).donor_units
        exclusion = Exclusion(sample.units[rows], excluded)
    return channel_of_records(channel, {name: classes[rows] for name, classes in sample.carried.items()}, exclusion)


def _split(persons: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Rows that attackers learn from and rows they are scored on: split by person, or by record if there is only one person."""
    units = persons if len(np.unique(persons)) > 1 else np.arange(len(persons))
    names = rng.permutation(np.unique(units))
    known = np.isin(units, names[: max(1, round(TRAIN_SHARE * len(names)))])
    return np.flatnonzero(known).astype(np.int64), np.flatnonzero(~known).astype(np.int64)


def _digests(protector: Protector) -> dict[str, str]:
    return {"model": protector.model_digest, "pool": protector.pool_digest}
