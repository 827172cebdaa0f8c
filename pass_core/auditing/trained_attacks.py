"""Every attribute under every attack: on originals, which is the control, and on the release."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pass_core.attacks.base import Adversary, Attack, AttackTask, DonorTable
from pass_core.auditing.findings import AttackFindings
from pass_core.auditing.subject import Subject
from pass_core.data import Attribute, DoubleArray, IntArray
from pass_core.errors import AuditError
from pass_core.statistics.intervals import Blocks, Estimate
from pass_core.statistics.nag import Scoring, guessed_hits, hits_of
from pass_core.statistics.score_test import ScoreTest, hedged, score_test
from pass_core.training.epochs import Epoch

OnAttack = Callable[[str, Epoch], None]
RngFor = Callable[..., np.random.Generator]


@dataclass(frozen=True, slots=True)
class NamedAttack:
    """An attack with the settings it runs with."""

    name: str
    attack: Attack
    config: Any


# Gives the control of an attack, from an earlier audit of the same originals or learnt by calling the last argument.
KeepControl = Callable[[NamedAttack, AttackTask, np.random.Generator, Callable[[], Adversary]], Adversary]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attacked:
    """An attribute after all attacks."""

    attribute: Attribute
    scoring: Scoring
    control: str  # the attack that is best on originals
    findings: tuple[AttackFindings, ...]  # empty where originals do not reveal the attribute: then NAG is undefined
    hits: dict[str, DoubleArray]  # attack -> (m,) 1 where it is right on the release
    scores: dict[str, DoubleArray]  # attack -> (m, classes) log-scores on the release, beyond what the useful classes reveal
    unfinetuned: Estimate | None  # NAG on the release of the control, which was trained on originals; None: unreadable
    downstream: DoubleArray  # (m,) 1 where the best model trained and tried on the release is right on originals
    own_adversary: Estimate | None

    def strongest(self, rows: IntArray | None = None) -> str:
        """The attack that is right most often, on all test records or on these."""
        return max(self.hits, key=lambda name: float((self.hits[name] if rows is None else self.hits[name][rows]).mean()))


def attack_attribute(
    subject: Subject,
    attribute: Attribute,
    attacks: tuple[NamedAttack, ...],
    rng_for: RngFor,
    *,
    on_attack: OnAttack,
    keep: KeepControl | None = None,
) -> Attacked:
    """Runs all attacks on one attribute. Only which one counts as the worst is decided on test records."""
    originals, released = _tasks(subject, attribute)
    labels, test, pool = subject.labels("test", attribute.name), subject.test.records, subject.substitution

    def learn(named: NamedAttack, task: AttackTask, stage: str) -> Adversary:
        on_epoch = functools.partial(on_attack, f"{attribute.name} {stage}: {named.name}")
        return named.attack.learn(task, named.config, rng_for(stage, attribute.name, named.name), on_epoch)

    def control_of(named: NamedAttack) -> Adversary:
        def fresh() -> Adversary:
            return learn(named, originals, "unprotected")

        return keep(named, originals, rng_for("unprotected", attribute.name, named.name), fresh) if keep else fresh()

    usable = [a for a in attacks if pool is not None or not a.attack.needs_pool]
    controls = {a.name: control_of(a) for a in usable if not a.attack.needs_pool}
    adversaries = {a.name: learn(a, released, "protected") for a in usable}
    control_hits = {name: hits_of(c.probabilities(test.features), labels) for name, c in controls.items()}
    accuracies = {name: float(hits.mean()) for name, hits in control_hits.items()}
    control = max(accuracies, key=lambda name: accuracies[name])
    baseline = subject.baseline(attribute)
    guesses = baseline.argmax(axis=1) if attribute.role == "private" else None
    blocks = Blocks.of(subject.dependent(), labels)
    scoring = Scoring(labels, blocks, guessed_hits(labels, guesses), control_hits[control])
    predicted = {name: adversary.probabilities(subject.released_test) for name, adversary in adversaries.items()}
    hits = {name: hits_of(p, labels) for name, p in predicted.items()}
    # A user of the release can choose a model only by its results on the release, never on originals.
    downstream = adversaries[max(controls, key=lambda name: float(hits[name].mean()))]
    own = subject.own_adversaries.get(attribute.name)
    scores = {name: hedged(p, baseline) for name, p in predicted.items()}
    findings, unfinetuned, own_nag = [], None, None
    if scoring.readable:
        for name, p in predicted.items():
            gained = score_test(scores[name], labels, subject.dealing(attribute), rng_for("chance", attribute.name, name))
            findings.append(_findings(name, p, scoring, gained, accuracies.get(name)))
        unfinetuned = scoring.nag(hits_of(_read_release(controls[control], subject), labels))
        own_nag = None if own is None else scoring.nag(hits_of(own.probabilities(subject.released_test), labels))
    return Attacked(
        attribute=attribute,
        scoring=scoring,
        control=control,
        findings=tuple(findings),
        hits=hits,
        scores=scores,
        unfinetuned=unfinetuned,
        downstream=hits_of(downstream.probabilities(test.features), labels),
        own_adversary=own_nag,
    )


def _tasks(subject: Subject, attribute: Attribute) -> tuple[AttackTask, AttackTask]:
    """What attackers learn from: originals, and releases."""
    train, pool, count = subject.train.records, subject.substitution, attribute.n_classes
    train_labels, labels = train.labels[attribute.name], subject.labels("test", attribute.name)
    if min(len(np.unique(train_labels)), len(np.unique(labels))) < 2:
        found = "expected records of at least two classes in training and in test, found fewer"
        raise AuditError(f"attribute {attribute.name!r}: {found}; drop the attribute or split the data differently")
    originals = AttackTask(released_train=lambda _: train.features, train_labels=train_labels, n_classes=count)
    donors = None if pool is None else DonorTable(pool.train_law.joint[attribute.name], pool.donor_features)
    released = AttackTask(
        released_train=subject.released_train,
        train_labels=train_labels,
        n_classes=count,
        original_train=train.features,
        donors=donors,
    )
    return originals, released


def _read_release(control: Adversary, subject: Subject) -> DoubleArray:
    """(m, classes) what a control says of the release; of donors, which all methods share, it is asked once each."""
    pool = subject.substitution
    if pool is None:
        return control.probabilities(subject.released_test)
    return np.asarray(control.probabilities(pool.donor_features)[pool.drawn])


def _findings(
    name: str, probabilities: DoubleArray, scoring: Scoring, gained: ScoreTest, unprotected: float | None
) -> AttackFindings:
    hits = hits_of(probabilities, scoring.labels)
    return AttackFindings(
        name=name,
        accuracy=scoring.accuracy(hits),
        nag=scoring.nag(hits),
        balanced_accuracy=scoring.balanced_accuracy(hits),
        auc=scoring.auc(probabilities),
        gain=gained,
        unprotected_accuracy=unprotected,
    )
