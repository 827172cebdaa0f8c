"""The audit before publishing, of records that are about to leave.

Where their classes are known they are attacked; where not, the champion's audit stands for them: one of the same model and pool
that passed and is not too old, as long as these records are like those that it was made of.
"""

import dataclasses
import datetime
from dataclasses import dataclass

import numpy as np

from pass_core.auditing.drift import Side
from pass_core.auditing.run import run_audit
from pass_core.auditing.subject import Part, Split, Subject, Substitution, with_combination
from pass_core.channel.joint_law import channel_law
from pass_core.channel.substitution import Channel, ExcludingChannel, Exclusion
from pass_core.data import FloatArray, IntArray, Records
from pass_core.devices import resolve_device
from pass_core.errors import AuditError, DataError
from pass_core.randomness import stream
from pass_core.training.epochs import Epoch
from tasks.audits.unlabelled import audit_unlabelled, read_labelled_audit, side_of
from tasks.production.interfaces import GateResult, Job, Sample
from tasks.release.protector import Protector, donor_units, exclusion_among, read_protector
from tasks.running.layout import Layout
from tasks.running.numerics import fixed_numerics
from tasks.running.step_io import RunKey
from tasks.sections.audit import AuditConfig
from tasks.steps.audit import named_attacks
from tasks.storage.files import rounded
from tasks.storage.parquet import FEATURES, TableInfo, array_of, read_features

TRAIN_SHARE = 0.5  # of the sample's persons, whom attackers learn from


@dataclass(frozen=True, slots=True)
class AuditGate:
    """Attacks the sample with params.yaml's attacks and limits where it has labels; goes by the champion's audit where not."""

    config: AuditConfig
    seed: int
    threads: int
    layout: Layout  # where the champion was trained and audited
    key: RunKey

    def judge(self, sample: Sample, job: Job) -> GateResult:
        attributes = job.lake.attributes(TableInfo.load(job.pool).classes)
        with fixed_numerics(self.threads):
            protector = read_protector(job.model, job.pool, attributes, resolve_device(job.device))
            if not sample.labels:
                return self._by_champion(sample, protector, job)
            subject = make_subject(sample, protector, job, self.config.depth.fresh_draws, stream(self.seed, "gate", "split"))

            findings = run_audit(
                subject, named_attacks(self.config), self.config.thresholds, self.config.depth, self._rng, on_attack=_nobody
            )
        details = {
            row.name: {"role": row.role, "nag": row.nag.value, "low": row.nag.low, "high": row.nag.high, "attack": row.attack}
            for row in findings.attributes
        }
        return GateResult(
            findings.verdict, "labelled", len(sample.donors), sample.of, findings.reasons, rounded({"attributes": details})
        )

    def _by_champion(self, sample: Sample, protector: Protector, job: Job) -> GateResult:
        """Nobody knows these records' classes: what is known is how the same model and pool did on labelled ones."""
        try:
            labelled = read_labelled_audit(self.layout, self.key)
            held_out = read_features(self.layout.artefact("features", self.key), ())
        except DataError as error:
            raise AuditError(f"the lake carries no labels, and no labelled audit can stand for them: {error}") from None
        if labelled.document.forbid != job.forbid:
            raise AuditError("the champion's audit is of another pool.forbid than this release: run audit again")
        found = audit_unlabelled(
            protector,
            labelled,
            side_of(protector, held_out, held_out.rows("test"), job.forbid),
            Side(
                sample.features,
                sample.persons,
                sample.persons,
                lambda rows: _channel(protector, sample.units[rows], job),
                drawn=sample.donors,
            ),
            self.config,
            self._rng,
            datetime.datetime.now(datetime.UTC),
            sample.of,
        )
        details = {
            "champion": {
                row.name: {"role": row.role, "nag": dataclasses.asdict(row.nag)} for row in labelled.document.attributes
            },
            "checks": {check.name: {"found": check.found, "limit": check.limit} for check in found.checks},
        }
        return GateResult(found.verdict, "unlabelled", len(sample.donors), sample.of, found.reasons, rounded(details))

    def _rng(self, *labels: str) -> np.random.Generator:
        return stream(self.seed, "gate", *labels)


def make_subject(sample: Sample, protector: Protector, job: Job, draws: int, rng: np.random.Generator) -> Subject:
    """The sample as the audit sees it: attackers learn from half of its persons and are scored on the others."""
    rows = dict(zip(("train", "test"), _split(sample.persons, rng), strict=True))
    records = Records(sample.features, sample.labels)
    attributes, train, test, combines = with_combination(
        sample.attributes, records.subset(rows["train"]), records.subset(rows["test"])
    )
    parts = {
        split: Part(part, sample.persons[rows[split]], sample.persons[rows[split]])
        for split, part in (("train", train), ("test", test))
    }

    def channel_for(split: Split, chosen: IntArray) -> Channel:
        return _channel(protector, sample.units[rows[split][chosen]], job)

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


def _channel(protector: Protector, units: IntArray, job: Job) -> Channel:
    """P(x'|x) of records with these units, as they were drawn."""
    channel = protector.fitted.channel
    assert channel is not None  # noqa: S101 (workers have refused other methods)
    if job.forbid == "none":
        return channel
    excluded = exclusion_among([], donor_units(protector.pool, job.forbid)).donor_units
    return ExcludingChannel(channel, Exclusion(units, excluded))


def _split(persons: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Rows of the persons whom attackers learn from, and of the others; by record where there is one person only."""
    units = persons if len(np.unique(persons)) > 1 else np.arange(len(persons))
    names = rng.permutation(np.unique(units))
    known = np.isin(units, names[: max(1, round(TRAIN_SHARE * len(names)))])
    return np.flatnonzero(known).astype(np.int64), np.flatnonzero(~known).astype(np.int64)


def _nobody(work: str, epoch: Epoch) -> None:
    """Nobody is told of single epochs."""
