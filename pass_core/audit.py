"""The audit: every attribute attacked before and after protection, intervals, exact attacker, a verdict with reasons."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pass_core.attacks.base import Attack, AttackTask
from pass_core.data import Attribute, DoubleArray, FloatArray, IntArray, Records
from pass_core.epochs import Epoch
from pass_core.errors import AuditError, ConfigError
from pass_core.exact import ChannelLaw, mutual_information, plug_in_accuracy, rule_accuracy
from pass_core.metrics import accuracy, balanced_accuracy, majority_class, mean_nag, nag
from pass_core.statistics import BlockBootstrap, Interval, percentile_interval

Verdict = Literal["pass", "fail"]
OnAttack = Callable[[str, Epoch], None]

NOT_PROMISED = (
    "Attribute suppression: not differential privacy, and not by itself anonymous data. The figures hold for one released "
    "draw per record, for the attributes named here, and for the attackers listed; several records known to be one person's, "
    "side information and attributes that were not named can tell more. Where a pool is used, every released "
    "record is a real donor's. A pass means that these attacks failed, not that none can succeed."
)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the verdict demands, as NAG: private attributes at most, useful attributes at least."""

    private_nag_at_most: float = 0.05
    useful_nag_at_least: float = 0.90

    def __post_init__(self) -> None:
        for name in ("private_nag_at_most", "useful_nag_at_least"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name}: expected between 0 and 1, found {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class NamedAttack:
    """An attack with the settings it runs with."""

    name: str
    attack: Attack
    config: Any


@dataclass(frozen=True, slots=True)
class Subject:
    """What is audited: originals, what was released for the test records, and the means to ask for more releases."""

    attributes: tuple[Attribute, ...]
    train: Records
    test: Records
    test_blocks: IntArray  # (m,) records with one number depend on each other
    released_test: FloatArray  # (m, *shape), row i released for test record i
    released_train: Callable[[int], FloatArray]  # draw number -> (n, *shape)
    laws: tuple[ChannelLaw, ChannelLaw] | None  # of train and test records; None for methods without a channel


@dataclass(frozen=True, slots=True)
class Accuracies:
    """Majority guess, best attack on originals, worst attack on what was released."""

    majority: float
    unprotected: float
    protected: float


@dataclass(frozen=True, slots=True)
class ExactNag:
    """The exact attacker between two figures: rule learnt on train (below), plug-in on test (above, biased upwards)."""

    rule: float
    plug_in: float


@dataclass(frozen=True, slots=True)
class AttributeAudit:
    """One row of the audit; fractions and nats."""

    name: str
    role: str
    accuracy: Accuracies
    nag: float
    nag_interval: Interval
    nag_exact: ExactNag | None
    balanced_accuracy: float
    mutual_information: float | None
    verdict: Verdict | None  # None for hidden attributes, which are shown but not judged
    attack: str  # the worst one
    attack_accuracies: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The whole audit."""

    verdict: Verdict
    reasons: tuple[str, ...]
    mnag: float
    mnag_interval: Interval
    attributes: tuple[AttributeAudit, ...]
    thresholds: Thresholds
    not_promised: str = NOT_PROMISED


def run_audit(
    subject: Subject,
    attacks: tuple[NamedAttack, ...],
    thresholds: Thresholds,
    rng_for: Callable[..., np.random.Generator],
    on_attack: OnAttack,
) -> AuditReport:
    """Attacks every attribute with every attack, on originals (the control) and on what was released.

    Args:
        rng_for: a generator for labels, so that adding an attack changes no other attack's draws.
        on_attack: told the name of the running attack and its finished epochs.
    """
    if not attacks:
        raise AuditError("an audit needs at least one attack: name some under audit.attacks")
    bootstrap = BlockBootstrap.draw(subject.test_blocks, rng_for("bootstrap"))
    rows: list[AttributeAudit] = []
    replicates: list[DoubleArray] = []
    reasons: list[str] = []
    for attribute in subject.attributes:
        row, row_replicates = _audit_attribute(subject, attribute, attacks, bootstrap, rng_for, on_attack)
        found = _failures(row, thresholds)
        reasons += found
        rows.append(dataclasses.replace(row, verdict=None if row.role == "hidden" else "fail" if found else "pass"))
        replicates.append(row_replicates)
    private = np.array([row.role == "private" for row in rows])
    mnag = mean_nag([row.nag for row in rows if row.role == "private"], [row.nag for row in rows if row.role != "private"])
    mnag_replicates = np.mean([r for r, p in zip(replicates, private, strict=True) if not p], axis=0) - np.mean(
        [r for r, p in zip(replicates, private, strict=True) if p], axis=0
    )
    return AuditReport(
        "fail" if reasons else "pass",
        tuple(reasons),
        mnag,
        percentile_interval(mnag_replicates),
        tuple(rows),
        thresholds,
    )


def _audit_attribute(
    subject: Subject,
    attribute: Attribute,
    attacks: tuple[NamedAttack, ...],
    bootstrap: BlockBootstrap,
    rng_for: Callable[..., np.random.Generator],
    on_attack: OnAttack,
) -> tuple[AttributeAudit, DoubleArray]:
    train_labels, test_labels = subject.train.labels[attribute.name], subject.test.labels[attribute.name]
    originals = AttackTask(lambda _: subject.train.features, train_labels, subject.test.features, attribute.n_classes)
    released = AttackTask(subject.released_train, train_labels, subject.released_test, attribute.n_classes)

    def strongest(task: AttackTask, stage: str) -> tuple[str, IntArray, dict[str, float]]:
        predictions = {
            a.name: a.attack.predict(
                task,
                a.config,
                rng_for(stage, attribute.name, a.name),
                lambda epoch, name=a.name: on_attack(f"{attribute.name} {stage}: {name}", epoch),  # type: ignore[misc]
            )
            for a in attacks
        }
        accuracies = {name: accuracy(predicted, test_labels) for name, predicted in predictions.items()}
        best = max(accuracies, key=lambda name: accuracies[name])
        return best, predictions[best], accuracies

    _, control, _ = strongest(originals, "unprotected")
    worst, attacked, attack_accuracies = strongest(released, "protected")
    guess = majority_class(train_labels)
    majority, unprotected = float((test_labels == guess).mean()), accuracy(control, test_labels)
    replicates = bootstrap.nag(attacked == test_labels, control == test_labels, test_labels, guess)
    exact, information = None, None
    if subject.laws is not None:
        train_law, test_law = (law.joint[attribute.name] for law in subject.laws)
        exact = ExactNag(
            nag(rule_accuracy(train_law, test_law), majority, unprotected),
            nag(plug_in_accuracy(test_law), majority, unprotected),
        )
        information = mutual_information(test_law)
    row = AttributeAudit(
        name=attribute.name,
        role=attribute.role,
        accuracy=Accuracies(majority, unprotected, attack_accuracies[worst]),
        nag=nag(attack_accuracies[worst], majority, unprotected),
        nag_interval=percentile_interval(replicates),
        nag_exact=exact,
        balanced_accuracy=balanced_accuracy(attacked, test_labels),
        mutual_information=information,
        verdict=None,
        attack=worst,
        attack_accuracies=attack_accuracies,
    )
    return row, replicates


def _failures(row: AttributeAudit, thresholds: Thresholds) -> list[str]:
    """Why an attribute fails, one sentence per figure; empty when it passes."""
    if row.role == "private":
        figures = {f"attack {row.attack}": row.nag} | ({"the exact attacker's rule": row.nag_exact.rule} if row.nag_exact else {})
        limit = thresholds.private_nag_at_most
        return [
            f"private attribute {row.name}: NAG {value:.1%} under {figure}, at most {limit:.1%} allowed"
            for figure, value in figures.items()
            if value > limit
        ]
    if row.role == "useful" and row.nag < thresholds.useful_nag_at_least:
        return [f"useful attribute {row.name}: NAG {row.nag:.1%}, at least {thresholds.useful_nag_at_least:.1%} demanded"]
    return []
