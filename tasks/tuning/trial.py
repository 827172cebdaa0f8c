"""One point of a search: a protector fitted on a part of the training records and judged on the held-out ones.

The judge is the audit itself with its limits and intervals, but its only attacker is the exact one, which needs no training.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from pass_core.attacks import exact_bayes
from pass_core.auditing.findings import AuditFindings, Check
from pass_core.auditing.run import run_audit
from pass_core.auditing.subject import ColumnValues, DrawnRelease, Split, Subject, make_subject
from pass_core.auditing.trained_attacks import NamedAttack, RngFor
from pass_core.channel.draws import inverse_cdf, uniform_words
from pass_core.channel.pool import DONORS, Column, Forbidden, sample_pool
from pass_core.channel.substitution import Channel, Exclusion, channel_of_records, exclusion_among
from pass_core.data import Attribute, IntArray
from pass_core.devices import resolve_device
from pass_core.errors import MethodError
from pass_core.methods.base import Fitted, ReleaseContext, find_method, fit_method, known_attributes
from pass_core.randomness import stream
from pass_core.statistics.nag import mean_nag
from pass_core.training.context import TrainingContext
from pass_core.training.epochs import Epoch
from pass_core.training.held_out import learnt_from
from tasks.config import Config
from tasks.tuning.controls import Control
from tasks.tuning.study import Study

FRESH_DRAWS, PERMUTATIONS, NULL_RECORDS = 1, 100, 4000  # of an audit that needs no trained attackers
QUICK = frozenset({"membership", "linkage", "singling_out"})  # the analyses of the first rounds; the last one makes all


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The audit of one held-out part."""

    part: str  # enrolled or strangers
    verdict: str
    privacy: str
    utility: str | None
    mnag: float
    private: float  # NAG of the worst private attribute under the exact attacker
    useful: float  # mean NAG of the useful ones
    pressure: float  # the largest privacy figure as a share of its limit; whole intervals, so that 1 or less passes
    nag: Mapping[str, float]  # attribute -> NAG under the exact attacker
    originals: Mapping[str, tuple[float, float]]  # useful attribute -> accuracy on originals, and by guessing
    unreadable: Sequence[str]  # attributes that the control does not read from originals
    broken: Sequence[Mapping[str, Any]]  # checks that fail
    undecided: Sequence[Mapping[str, Any]]  # checks that a pass needs and these records cannot decide


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What a point is fitted and judged with."""

    study: Study
    config: Config  # with the candidate's values
    dataset: str
    method: str
    share: float  # of the records to learn from
    whole: bool  # whether all analyses of the audit are made, on the part that decides
    control: Control
    tick: Callable[[], None] = field(default=lambda: None)  # called after every epoch; may end the point by an exception

    def judge(self) -> tuple[Judged, ...]:
        """Fits the protector and audits it on every held-out part."""
        released = self._fit()
        first, *others = self.study.judged()
        whole = None if self.whole else QUICK
        return (self._judged(released, first, whole), *(self._judged(released, part, QUICK) for part in others))

    def rng_for(self, *labels: str) -> np.random.Generator:
        """A stream for these labels, the same for all candidates: they differ by their settings, not by luck."""
        return stream(self.config.seed, "tune", self.dataset, self.method, *labels)

    def _fit(self) -> "_Release":
        study, config, part = self.study, self.config, self.study.part
        rows = learnt_from(study.learnt, part.blocks[study.learnt], self.share, stream(config.seed, "tune", "share"))
        columns = {n: Column(c.classes, c.labels[rows], c.shown) for n, c in study.columns.items()}
        useful = tuple(a.name for a in study.attributes if a.role == "useful")
        wanted = config.pool.donors or min(DONORS, len(part) // 2)
        # As large a share of the records as in a run, where more of them are learnt from.
        scaled = dataclasses.replace(config.pool, donors=max(2, round(wanted * len(rows) / len(part))))
        donors = rows[sample_pool(columns, useful, len(rows), scaled, self.rng_for("donors"))]
        context = ReleaseContext(
            study.attributes,
            part.records.subset(donors),
            resolve_device(config.compute.device),
            _exclusion(study, rows, donors, config.pool.forbid),
            known_attributes(study.attributes, config.attacker.knows, config.release.get(self.dataset, ())),
        )
        fitted, learnt = fit_method(
            find_method(self.method),
            part.records.subset(rows),
            part.blocks[rows],
            context=context,
            config=config.method[self.method],
            training=config.train,
            rng_for=self.rng_for,
            run=TrainingContext(lambda _: self.tick()),
        )
        return _Release(study=study, fitted=fitted, donors=donors, learnt=rows[learnt], forbid=config.pool.forbid)

    def _judged(self, released: "_Release", name: str, analyses: frozenset[str] | None) -> Judged:
        config, tested = self.config, getattr(self.study, name)
        depth = dataclasses.replace(
            config.audit.depth, fresh_draws=FRESH_DRAWS, permutations=PERMUTATIONS, null_records=NULL_RECORDS, draws=(1,)
        )
        subject = released.subject(tested, config, functools.partial(self.rng_for, name))
        attacks = (
            NamedAttack("control", self.control, self.control.config_type()),
            NamedAttack("exact_bayes", exact_bayes.ATTACK, exact_bayes.ATTACK.config_type()),
        )

        def on_attack(_work: str, _epoch: Epoch) -> None:
            self.tick()

        with torch.inference_mode(mode=False):
            findings = run_audit(
                subject, attacks, config.audit.thresholds, depth, functools.partial(self.rng_for, name),
                on_attack=on_attack, analyses=analyses,
            )  # fmt: skip
        return _judged(name, findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Release:
    """A fitted protector with its donors."""

    study: Study
    fitted: Fitted
    donors: IntArray  # rows of the study's part
    learnt: IntArray  # rows that training really used
    forbid: Forbidden

    def channel(self, rows: IntArray) -> Channel:
        channel = self.fitted.channel
        if channel is None:
            raise MethodError("tune: expected a method that draws donors, found one that makes new records")
        exclusion = _exclusion(self.study, rows, self.donors, self.forbid)
        return channel_of_records(channel, self.study.part.records.subset(rows).labels, exclusion)

    def subject(self, tested: IntArray, config: Config, rng_for: RngFor) -> Subject:
        """The subject of an audit that attacks these rows."""
        study, whole = self.study, self.study.part
        rows: dict[Split, IntArray] = {"train": study.learnt, "test": tested}
        features = whole.records.features[tested]
        drawn = np.empty(len(tested), dtype=np.int64)
        rng = rng_for("release")
        for places, probabilities in self.channel(tested).blocks(features):
            drawn[places] = inverse_cdf(probabilities, uniform_words(rng, len(probabilities)))
        release = DrawnRelease(
            channel=lambda split, chosen: self.channel(rows[split][chosen]),
            donor_features=whole.records.features[self.donors],
            drawn_test=drawn,
            donor_persons=whole.persons[self.donors],
            donor_rows=np.searchsorted(study.learnt, self.donors),
            fresh_draws=FRESH_DRAWS,
            rng=rng_for("draws"),
        )
        passed = {
            name: ColumnValues(values.train[study.learnt], values.train[tested], values.ordered)
            for name, values in study.passed.items()
        }
        return make_subject(
            attributes=tuple(a for a in study.attributes if _varies(a, study, tested)),
            train=whole.subset(study.learnt),
            test=whole.subset(tested),
            release=release,
            columns=passed,
            learnt_from=np.searchsorted(study.learnt, self.learnt),
            recipient=config.attacker,
        )


def _varies(attribute: Attribute, study: Study, tested: IntArray) -> bool:
    """Whether there is anything to guess; no attack reads from other people who a stranger is."""
    labels = study.part.records.labels[attribute.name]
    return min(len(np.unique(labels[rows])) for rows in (study.learnt, tested)) > 1


def _exclusion(study: Study, rows: IntArray, donors: IntArray, forbid: Forbidden) -> Exclusion | None:
    if forbid == "none":
        return None
    names = study.ids if forbid == "self" else [study.names[person] for person in study.part.persons]
    return exclusion_among([names[row] for row in rows], [names[row] for row in donors])


def _judged(part: str, findings: AuditFindings) -> Judged:
    single = [row for row in findings.attributes if not row.combines and row.exact is not None]
    nag = {row.name: row.exact.rule.value for row in single if row.exact is not None}
    sides = {role: [nag[row.name] for row in single if row.role == role] for role in ("private", "useful", "general")}
    kept = sides["useful"] + sides["general"]
    return Judged(
        part=part,
        verdict=findings.verdict,
        privacy=findings.privacy,
        utility=findings.utility,
        mnag=mean_nag(sides["private"] or [0.0], kept or [0.0]),
        private=max(sides["private"], default=0.0),
        useful=float(np.mean(sides["useful"])) if sides["useful"] else 0.0,
        pressure=_pressure(findings.checks),
        nag=nag,
        originals={row.name: (row.unprotected.value, row.guess) for row in single if row.role == "useful"},
        unreadable=findings.unreadable,
        broken=[_shown(check) for check in findings.checks if check.failed],
        undecided=[_shown(check) for check in findings.checks if check.required and not check.failed and not check.passed],
    )


def _pressure(checks: Sequence[Check]) -> float:
    """How near the checks are to their limits; one that a pass does not need counts from where it shows a leak."""
    privacy = [check for check in checks if check.name != "useful_nag_at_least" and check.limit > 0]
    return max(
        (max(0.0, check.found.high if check.required else check.found.low) / check.limit for check in privacy), default=0.0
    )


def _shown(check: Check) -> dict[str, Any]:
    return {name: getattr(check, name) for name in ("name", "about", "attribute", "sentence", "units", "needed")}
