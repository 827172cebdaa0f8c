"""Whether an attack would have found a leak: one of known size is planted into this very release, and every attack must find it.

With some probability a record is released as its own original. Attacks on a pool never see originals: for them a record gets,
with that probability, a donor of a set that stands for its class. An attack that misses the planted leak does not reassure.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pass_core.attacks import exact_bayes
from pass_core.attacks.base import AttackTask, DonorTable
from pass_core.auditing.subject import Subject, Substitution
from pass_core.auditing.thresholds import Depth, Thresholds
from pass_core.auditing.trained_attacks import Attacked, NamedAttack, OnAttack, RngFor
from pass_core.data import Attribute, DoubleArray, FloatArray, IntArray, one_hot
from pass_core.statistics.intervals import Estimate
from pass_core.statistics.nag import FLOOR, Scoring, hits_of
from pass_core.statistics.score_test import HEDGE, hedged, score_test

SMALLEST = 0.15  # of the records, at least, are planted: a smaller leak would not show in so few records
SIGNIFICANCE = 0.01  # a leak is found when chance gives such a gain in at most this share of trials, and when the gain is
FRACTION = 1 / 3  # of what the leak is worth, at least: a rule learnt from nothing may point the right way by luck
EXACT = "the exact attacker"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackValidity:
    """One attack on one private attribute of a release with a planted leak."""

    attribute: str
    attack: str
    found: bool | None  # None: not tried
    p_value: float | None  # of the gain on planted releases
    share: float | None  # of that gain in what reading the planted classes is worth
    nag: Estimate | None  # on planted releases; None where originals of these records reveal nothing
    reason: str | None  # why it was not tried


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """Which attacks found the planted leak."""

    planted: float  # share of the records
    train_records: int  # that attacks learnt from; those of a pool learn from all
    test_records: int  # that they were scored on
    attacks: tuple[AttackValidity, ...]

    def counts(self, attribute: str, attack: str) -> bool:
        """Whether this attack's failure reassures."""
        return any(one.found is True for one in self.attacks if (one.attribute, one.attack) == (attribute, attack))

    def undecided(self) -> tuple[str, ...]:
        """Private attributes for which no attack finds a planted leak."""
        names = dict.fromkeys(one.attribute for one in self.attacks)
        return tuple(name for name in names if not any(one.found for one in self.attacks if one.attribute == name))


@dataclass(frozen=True, slots=True)
class _Planted:
    """A release, or a part of it, with a planted leak."""

    task: AttackTask
    records: FloatArray  # (m, *shape) what was released for the test records


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    """The records that are tried, and how."""

    subject: Subject
    share: float
    train: IntArray
    test: IntArray
    released: FloatArray  # (train, *shape) with some originals among them
    records: FloatArray  # (test, *shape) the same
    rng_for: RngFor


def find_validity(
    subject: Subject,
    attacked: Sequence[Attacked],
    attacks: Sequence[NamedAttack],
    thresholds: Thresholds,
    depth: Depth,
    *,
    rng_for: RngFor,
    on_attack: OnAttack,
) -> Validity:
    """Tries all attacks on all private attributes that originals reveal."""
    trial = _trial(subject, max(SMALLEST, thresholds.private_nag_at_most.value), depth, rng_for)
    pool = subject.substitution
    usable = [named for named in attacks if pool is not None or not named.attack.needs_pool]
    if pool is not None:
        usable.append(NamedAttack(EXACT, exact_bayes.ATTACK, exact_bayes.ATTACK.config_type()))
    private = [one for one in attacked if one.attribute.role == "private" and one.findings]
    return Validity(
        planted=trial.share,
        train_records=len(trial.train),
        test_records=len(trial.test),
        attacks=tuple(found for one in private for found in _tried(trial, one, usable, on_attack)),
    )


def _trial(subject: Subject, share: float, depth: Depth, rng_for: RngFor) -> _Trial:
    rows, released = [], []
    for part, name in ((subject.train, "train"), (subject.test, "test")):
        rng = rng_for("validity", name)
        chosen: IntArray = np.sort(rng.permutation(len(part))[: depth.validity_records])
        records = (subject.released_train(0) if name == "train" else subject.released_test)[chosen]  # a copy
        own = rng.random(len(chosen)) < share
        records[own] = part.records.features[chosen[own]]
        rows.append(chosen)
        released.append(records)
    return _Trial(
        subject=subject, share=share, train=rows[0], test=rows[1], released=released[0], records=released[1], rng_for=rng_for
    )


def _tried(trial: _Trial, one: Attacked, attacks: Sequence[NamedAttack], on_attack: OnAttack) -> Iterator[AttackValidity]:
    name, subject = one.attribute.name, trial.subject
    labels = subject.labels("test", name)[trial.test]
    few = min(len(np.unique(labels)), len(np.unique(subject.labels("train", name)[trial.train]))) < 2
    planted = None if few else _planted(trial, one.attribute)
    in_pool = None
    if subject.substitution is not None and not few:
        in_pool = _planted_in_pool(trial, one.attribute, subject.substitution)
    baseline = subject.baseline(one.attribute)[trial.test]
    scoring = one.scoring.on(trial.test, subject.dependent(), baseline.argmax(axis=1))
    for named in attacks:
        release = in_pool if named.attack.needs_pool else planted
        if release is None:
            why = "the records tried have fewer than two classes" if few else "the pool has fewer donors than two per class"
            yield AttackValidity(attribute=name, attack=named.name, found=None, p_value=None, share=None, nag=None, reason=why)
            continue
        on_epoch = functools.partial(on_attack, f"{name} planted: {named.name}")
        rng = trial.rng_for("validity", name, named.name)
        guessed = named.attack.learn(release.task, named.config, rng, on_epoch).probabilities(release.records)
        test = score_test(hedged(guessed, baseline), labels, subject.dealing(one.attribute, trial.test), rng)
        read = 1.0 if named.attack.needs_pool else _read(scoring)
        share = test.gain / _worth(trial.share * read, baseline[np.arange(len(labels)), labels])
        yield AttackValidity(
            attribute=name,
            attack=named.name,
            found=test.p_value <= SIGNIFICANCE and share >= FRACTION,
            p_value=test.p_value,
            share=share,
            nag=scoring.nag(hits_of(guessed, labels)) if scoring.readable else None,
            reason=None,
        )


def _read(scoring: Scoring) -> float:
    """How much of a class an original reveals to the best attack: 1 where it is always right."""
    return max(float(scoring.control.mean()) - scoring.guess, 0.01) / max(1 - scoring.guess, 0.01)


def _worth(share: float, expected: DoubleArray) -> float:
    """Nats per record that `score_test` finds for who reads the class of a share of the records, not knowing of which.

    `expected` (m,) is what the baseline gives the true classes.
    """
    right, wrong = np.log1p(HEDGE * share * (1 / np.maximum(expected, FLOOR) - 1)), np.log1p(-HEDGE * share)
    return float((share * (1 - expected) * (right - wrong)).mean())


def _planted(trial: _Trial, attribute: Attribute) -> _Planted:
    """Some records are released as their own originals."""
    task = AttackTask(
        released_train=lambda _: trial.released,
        train_labels=trial.subject.labels("train", attribute.name)[trial.train],
        n_classes=attribute.n_classes,
        original_train=trial.subject.train.records.features[trial.train],
    )
    return _Planted(task, trial.records)


def _planted_in_pool(trial: _Trial, attribute: Attribute, pool: Substitution) -> _Planted | None:
    """Some records get a donor of a random set that stands for their class. All training records, since lookups are quick."""
    subject, name, count = trial.subject, attribute.name, attribute.n_classes
    joint, labels = pool.train_law.joint[name], subject.labels("train", name)
    shown, n = joint.sum(axis=0), len(pool.donor_features)
    if n < 2 * count:
        return None
    stands_for = trial.rng_for("validity", name, "sets").permutation(np.arange(n) % count)
    own = one_hot(stands_for, count).T * (shown + 1e-9)  # as often as they are shown anyway, lest they be conspicuous
    own /= own.sum(axis=1, keepdims=True)
    share, prior = trial.share, joint.sum(axis=1, keepdims=True)

    def released(draw: int) -> FloatArray:
        rng, n_draws = trial.rng_for("validity", name, "draw", str(draw)), len(pool.train_law.draws)
        return pool.donor_features[_redrawn(pool.train_law.draws[draw % n_draws], labels, own, share, rng)]

    table = DonorTable((1 - share) * joint + share * prior * own, pool.donor_features)
    task = AttackTask(released_train=released, train_labels=labels, n_classes=count, donors=table)
    test_labels, rng = subject.labels("test", name)[trial.test], trial.rng_for("validity", name, "drawn")
    return _Planted(task, pool.donor_features[_redrawn(pool.drawn[trial.test], test_labels, own, share, rng)])


def _redrawn(drawn: IntArray, labels: IntArray, own: DoubleArray, share: float, rng: np.random.Generator) -> IntArray:
    """Donors, a share of which is drawn anew from the set (classes, pool) of the record's class."""
    found, planted = drawn.copy(), np.flatnonzero(rng.random(len(drawn)) < share)
    for label in np.unique(labels[planted]):
        rows = planted[labels[planted] == label]
        found[rows] = rng.choice(own.shape[1], len(rows), p=own[label])
    return found
