"""Every attribute under every attack: on originals, which is the control, and on what was released."""

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
from pass_core.statistics.nag import Scoring, class_shares, hits_of, majority_class
from pass_core.training.epochs import Epoch

OnAttack = Callable[[str, Epoch], None]
RngFor = Callable[..., np.random.Generator]


@dataclass(frozen=True, slots=True)
class NamedAttack:
    """An attack with the settings it runs with."""

    name: str
    attack: Attack
    config: Any


@dataclass(frozen=True, slots=True)
class Attacked:
    """An attribute after all attacks."""

    attribute: Attribute
    scoring: Scoring
    control: str  # the attack that is best on originals
    findings: tuple[AttackFindings, ...]
    hits: dict[str, DoubleArray]  # attack -> (m,) 1 where it is right on what was released
    unfinetuned: Estimate  # NAG of the control, learnt on originals, on what was released
    downstream: DoubleArray  # (m,) 1 where the best model learnt and tried on what was released is right on originals
    own_adversary: Estimate | None

    def strongest(self, rows: IntArray | None = None) -> str:
        """The attack that is right most often, on all test records or on these."""
        return max(self.hits, key=lambda name: float((self.hits[name] if rows is None else self.hits[name][rows]).mean()))


def attack_attribute(
    subject: Subject, attribute: Attribute, attacks: tuple[NamedAttack, ...], rng_for: RngFor, on_attack: OnAttack
) -> Attacked:
    """Runs all attacks on one attribute. Only which one counts as the worst is decided on test records."""
    train_labels, labels = subject.labels("train", attribute.name), subject.labels("test", attribute.name)
    if min(len(np.unique(train_labels)), len(np.unique(labels))) < 2:
        raise AuditError(
            f"attribute {attribute.name!r}: expected records of at least two classes in training and in test, found fewer: "
            "nothing can be told apart; drop the attribute or split otherwise"
        )
    originals = AttackTask(
        released_train=lambda _: subject.train.records.features, train_labels=train_labels, n_classes=attribute.n_classes
    )
    released = AttackTask(
        released_train=subject.released_train,
        train_labels=train_labels,
        n_classes=attribute.n_classes,
        original_train=subject.train.records.features,
        donors=_donor_table(subject, attribute),
    )

    def learn(named: NamedAttack, task: AttackTask, stage: str) -> Adversary:
        return named.attack.learn(
            task,
            named.config,
            rng_for(stage, attribute.name, named.name),
            lambda epoch: on_attack(f"{attribute.name} {stage}: {named.name}", epoch),
        )

    usable = [a for a in attacks if subject.substitution is not None or not a.attack.needs_pool]
    controls = {a.name: learn(a, originals, "unprotected") for a in usable if not a.attack.needs_pool}
    adversaries = {a.name: learn(a, released, "protected") for a in usable}
    on_originals = {name: c.probabilities(subject.test.records.features) for name, c in controls.items()}
    accuracies = {name: float(hits_of(told, labels).mean()) for name, told in on_originals.items()}
    control = max(accuracies, key=lambda name: accuracies[name])
    scoring = Scoring(
        labels,
        Blocks.of(subject.dependent(), labels),
        majority_class(train_labels),
        hits_of(on_originals[control], labels),
    )
    prior = class_shares(train_labels, attribute.n_classes)
    if accuracies[control] <= scoring.majority:
        raise AuditError(
            f"attribute {attribute.name!r}: expected an attack to tell it from originals, found accuracy "
            f"{accuracies[control]:.3f} with guessing at {scoring.majority:.3f}: NAG is undefined; train the attacks longer "
            "(audit.attacks) or drop the attribute"
        )
    told = {name: adversary.probabilities(subject.released_test) for name, adversary in adversaries.items()}
    # Whoever builds on a release has nothing else to choose a model by; originals come only afterwards.
    downstream = max(controls, key=lambda name: float(hits_of(told[name], labels).mean()))
    own = subject.own_adversaries.get(attribute.name)
    return Attacked(
        attribute,
        scoring,
        control,
        tuple(_findings(name, p, scoring, prior, accuracies.get(name)) for name, p in told.items()),
        {name: hits_of(p, labels) for name, p in told.items()},
        scoring.nag(hits_of(controls[control].probabilities(subject.released_test), labels)),
        hits_of(adversaries[downstream].probabilities(subject.test.records.features), labels),
        None if own is None else scoring.nag(hits_of(own.probabilities(subject.released_test), labels)),
    )


def _donor_table(subject: Subject, attribute: Attribute) -> DonorTable | None:
    if subject.substitution is None:
        return None
    return DonorTable(subject.substitution.train_law.joint[attribute.name], subject.substitution.donor_features)


def _findings(
    name: str, probabilities: DoubleArray, scoring: Scoring, prior: DoubleArray, unprotected: float | None
) -> AttackFindings:
    hits = hits_of(probabilities, scoring.labels)
    return AttackFindings(
        name,
        scoring.accuracy(hits),
        scoring.nag(hits),
        scoring.balanced_accuracy(hits),
        scoring.auc(probabilities),
        scoring.log_loss_gain(probabilities, prior),
        unprotected,
        scoring.gain_p_value(probabilities, prior),
    )
