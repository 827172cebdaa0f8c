"""The audit before publishing, of records that are about to leave.

Where their classes are known they are attacked; where not, the champion's audit stands for them: one of the same model and pool
that passed and is not too old.
"""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pass_core.audit.run import run_audit
from pass_core.audit.subject import Part, Split, Subject, Substitution, with_combination
from pass_core.data import FloatArray, IntArray, Records
from pass_core.devices import resolve_device
from pass_core.epochs import Epoch
from pass_core.errors import AuditError, DataError
from pass_core.exact import channel_law
from pass_core.randomness import stream
from pass_core.substitution import Channel, ExcludingChannel, Exclusion
from tasks.audit import named_attacks
from tasks.audit_config import AuditConfig
from tasks.audit_document import read_audit
from tasks.lake import FEATURES, TableInfo, array_of
from tasks.numerics import fixed_numerics
from tasks.protecting.interfaces import Finding, Job, Sample
from tasks.protection import Protector, donor_units, exclusion_among, read_protector
from tasks.storage import read_json, rounded

TRAIN_SHARE = 0.5  # of the sample's persons, whom attackers learn from


@dataclass(frozen=True, slots=True)
class AuditGate:
    """Attacks the sample with params.yaml's attacks and limits where it has labels; goes by the champion's audit where not."""

    config: AuditConfig
    seed: int
    threads: int
    champion: Path  # audit.json
    provenance: Path  # of that audit: tells when it was made

    def judge(self, sample: Sample, job: Job) -> Finding:
        if not sample.labels:
            return self._by_champion(sample, job)
        attributes = job.lake.attributes(TableInfo.load(job.pool).classes)
        with fixed_numerics(self.threads):
            protector = read_protector(job.model, job.pool, attributes, resolve_device(job.device))
            subject = make_subject(sample, protector, job, self.config.depth.fresh_draws, stream(self.seed, "gate", "split"))

            def rng_for(*labels: str) -> np.random.Generator:
                return stream(self.seed, "gate", *labels)

            findings = run_audit(subject, named_attacks(self.config), self.config.thresholds, self.config.depth, rng_for, _nobody)
        details = {
            row.name: {"role": row.role, "nag": row.nag.value, "low": row.nag.low, "high": row.nag.high, "attack": row.attack}
            for row in findings.attributes
        }
        return Finding(
            findings.verdict, "labelled", len(sample.donors), sample.of, findings.reasons, rounded({"attributes": details})
        )

    def _by_champion(self, sample: Sample, job: Job) -> Finding:
        """Nobody knows these records' classes: what is known is how the same model and pool did on labelled ones."""
        try:
            audit = read_audit(self.champion)
            made = datetime.datetime.fromisoformat(read_json(self.provenance)["time"])
        except (DataError, KeyError, ValueError):
            raise AuditError(
                f"{self.champion}: the lake carries no labels, and the model has no audit that could stand for one; "
                f"run `pass-pipeline audit` first"
            ) from None
        age = (datetime.datetime.now(datetime.UTC) - made).days
        reasons = champion_faults(audit, job, age)
        details = {"champion": _figures(audit), "valid_days_left": audit["valid_days"] - age}
        return Finding("fail" if reasons else "pass", "unlabelled", len(sample.donors), sample.of, reasons, rounded(details))


def champion_faults(audit: Mapping[str, Any], job: Job, age: int) -> tuple[str, ...]:
    """Why a champion's audit cannot stand for these records."""
    faults = []
    if (audit["model_digest"], audit["pool_digest"]) != (job.pins.model, job.pins.pool):
        faults.append("the champion's audit is of another model or pool: run audit again")
    if audit["forbid"] != job.forbid:
        faults.append("the champion's audit is of another pool.forbid: run audit again")
    if audit["verdict"] != "pass":
        faults.append("the champion's audit did not pass")
    if age > audit["valid_days"]:
        faults.append(f"the champion's audit is {age} days old, it was good for {audit['valid_days']}: run audit again")
    return tuple(faults)


def make_subject(sample: Sample, protector: Protector, job: Job, draws: int, rng: np.random.Generator) -> Subject:
    """The sample as the audit sees it: attackers learn from half of its persons and are scored on the others."""
    channel = protector.fitted.channel
    assert channel is not None  # noqa: S101 (workers have refused other methods)
    rows = dict(zip(("train", "test"), _split(sample.persons, rng), strict=True))
    records = Records(sample.features, sample.labels)
    attributes, train, test, combines = with_combination(
        sample.attributes, records.subset(rows["train"]), records.subset(rows["test"])
    )
    parts = {
        split: Part(part, sample.persons[rows[split]], sample.persons[rows[split]])
        for split, part in (("train", train), ("test", test))
    }
    excluded = None if job.forbid == "none" else exclusion_among([], donor_units(protector.pool, job.forbid)).donor_units

    def channel_for(split: Split, chosen: IntArray) -> Channel:
        if excluded is None:
            return channel
        return ExcludingChannel(channel, Exclusion(sample.units[rows[split][chosen]], excluded))

    law = channel_law(channel_for("train", np.arange(len(train))), train.features, train.labels, attributes, rng, draws)
    donor_features = array_of(protector.pool, FEATURES, protector.info.feature_shape)
    strangers = np.arange(len(donor_features)) + int(sample.persons.max()) + 1  # nobody asks whether a donor is in the sample
    drawn = {split: sample.donors[rows[split]] for split in ("train", "test")}

    def released_train(draw: int) -> FloatArray:
        released: FloatArray = donor_features[law.draws[draw % draws]]
        return released

    nowhere = np.full(len(donor_features), -1, dtype=np.int64)
    substitution = Substitution(channel_for, donor_features, strangers, nowhere, law, drawn["test"], drawn["train"])
    return Subject(
        attributes, parts["train"], parts["test"], donor_features[drawn["test"]], released_train, substitution, combines=combines
    )


def _split(persons: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Rows of the persons whom attackers learn from, and of the others; by record where there is one person only."""
    units = persons if len(np.unique(persons)) > 1 else np.arange(len(persons))
    names = rng.permutation(np.unique(units))
    known = np.isin(units, names[: max(1, round(TRAIN_SHARE * len(names)))])
    return np.flatnonzero(known).astype(np.int64), np.flatnonzero(~known).astype(np.int64)


def _figures(audit: Mapping[str, Any]) -> dict[str, Any]:
    return {row["name"]: {"role": row["role"], "nag": row["nag"]} for row in audit["attributes"]}


def _nobody(work: str, epoch: Epoch) -> None:
    """Nobody is told of single epochs."""
