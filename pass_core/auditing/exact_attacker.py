"""The exact attacker: two streamed passes through the channel, and everything that follows from them by arithmetic."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pass_core.auditing.certificate import certify, donor_leakage, rare_donors
from pass_core.auditing.findings import ExactFindings, Information
from pass_core.auditing.subject import Subject, Substitution
from pass_core.auditing.thresholds import Depth
from pass_core.auditing.trained_attacks import Attacked, RngFor
from pass_core.channel.joint_law import ChannelLaw, accumulate, best_rule, channel_law, plug_in_accuracy, posterior
from pass_core.data import Attribute, DoubleArray, FloatArray, IntArray, combinations, one_hot, with_role
from pass_core.statistics.intervals import CONFIDENCE
from pass_core.statistics.nag import nag
from pass_core.statistics.null_distribution import (
    MOST_CELLS,
    DonorSums,
    NullComparison,
    Units,
    choose_units,
    compare_with_null,
    donor_sums,
)

MOST_COMBINATIONS = 256  # of a private and a known class: what an attacker who knows an attribute is computed for


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactPass:
    """The result of two passes through the channel: over the training records, then over the test records."""

    law: ChannelLaw  # of the test records
    hits: Mapping[str, DoubleArray]  # attribute -> (m,) probability that the rule learnt on train is right
    known_hits: Mapping[tuple[str, str], DoubleArray]  # (attribute, known one) -> the same for rules learnt per known class
    sums: DonorSums  # of the records that nulls are computed on,
    rows: IntArray  # which are these test records


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """What an analysis may use: the subject, and the results of the attacks on its attributes."""

    subject: Subject
    depth: Depth
    rng_for: RngFor  # a generator per label, so that one analysis changes no other's draws
    attacked: tuple[Attacked, ...] = ()
    passed: ExactPass | None = None  # None without a pool


def known_pairs(subject: Subject) -> list[tuple[Attribute, Attribute]]:
    """Private attributes with what an attacker may know beside the release, unless that alone determines the attribute.

    A column published with the release may determine it: then the release is to blame.
    """
    pairs = []
    released = [one.attribute for one in subject.columns]
    for private in with_role(subject.attributes, "private"):
        for known in subject.known():
            if known.name in (private.name, *subject.combines.get(private.name, ())):
                continue
            labels = [subject.labels("test", name) for name in (known.name, private.name)]
            settled = len(np.unique(combinations(labels))) == len(np.unique(labels[0]))
            if known in released or (not settled and private.n_classes * known.n_classes <= MOST_COMBINATIONS):
                pairs.append((private, known))
    return pairs


def pass_exactly(subject: Subject, substitution: Substitution, depth: Depth, rng_for: RngFor) -> ExactPass:
    """Rules are learnt on the training records and read out for the test records."""
    test = subject.test
    channel = substitution.channel("test", np.arange(len(test)))
    rules = {a.name: one_hot(best_rule(substitution.train_law.joint[a.name]), a.n_classes) for a in subject.attributes}
    known_rules = _known_rules(subject, substitution)
    readouts: dict[str, DoubleArray] = {f"rule {name}": matrix for name, matrix in rules.items()}
    readouts |= {f"rule {private} knowing {known}": matrix for (private, known), matrix in known_rules.items()}
    for attribute in with_role(subject.attributes, "private"):
        joint = substitution.train_law.joint[attribute.name]
        readouts[f"inferred {attribute.name}"] = np.ascontiguousarray(posterior(joint).T)
        readouts[f"rare {attribute.name}"] = rare_donors(joint)[:, None]
    law = channel_law(
        channel, test.records.features, test.records.labels, subject.attributes, rng=rng_for("law"), n_draws=0, readouts=readouts
    )
    records = np.arange(len(test))
    hits = {name: law.readouts[f"rule {name}"][records, subject.labels("test", name)] for name in rules}
    known_hits = {}
    for private, known in known_rules:
        n_classes = len(substitution.train_law.joint[private])
        code = subject.labels("test", known) * n_classes + subject.labels("test", private)
        known_hits[private, known] = law.readouts[f"rule {private} knowing {known}"][records, code]
    sums, rows = _null_sums(subject, substitution, depth, rng_for)
    return ExactPass(law=law, hits=hits, known_hits=known_hits, sums=sums, rows=rows)


def _known_rules(subject: Subject, substitution: Substitution) -> dict[tuple[str, str], DoubleArray]:
    """(pool, known classes × classes) indicators of the best rule donor -> class for every known class, learnt on train."""
    pairs = known_pairs(subject)
    if not pairs:
        return {}
    codes, starts, start = [], [], 0
    for private, known in pairs:
        pair = subject.labels("train", known.name) * private.n_classes + subject.labels("train", private.name)
        codes.append(pair + start)
        starts.append(start)
        start += private.n_classes * known.n_classes
    channel = substitution.channel("train", np.arange(len(subject.train)))
    sums = accumulate(channel, subject.train.records.features, np.stack(codes), start)
    rules = {}
    for (private, known), first in zip(pairs, starts, strict=True):
        tables = sums[first : first + private.n_classes * known.n_classes].reshape(known.n_classes, private.n_classes, -1)
        rules[private.name, known.name] = np.concatenate(
            [one_hot(best_rule(table), private.n_classes) for table in tables], axis=1
        )
    return rules


def _null_sums(subject: Subject, substitution: Substitution, depth: Depth, rng_for: RngFor) -> tuple[DonorSums, IntArray]:
    """Sums over all test records where they fall into few cells, else over some of them at random."""
    test = subject.test
    rows: IntArray = np.arange(len(test))
    groupings = [test.persons, test.blocks, *test.records.labels.values()]
    if len(test) > depth.null_records and combinations(groupings).max() >= MOST_CELLS:
        rows = np.sort(rng_for("null records").permutation(len(test))[: depth.null_records])
    features: FloatArray = test.records.features[rows]
    return donor_sums(substitution.channel("test", rows), features, [grouping[rows] for grouping in groupings]), rows


def information(
    audited: Audited, attribute: Attribute, rng: np.random.Generator, known: Attribute | None = None
) -> tuple[Information, dict[int, Information]]:
    """I(X';A), or I(X';A|known) and its part within every known class, beside its null; of a published column I(X',K;A)."""
    subject, test, passed = audited.subject, audited.subject.test, audited.passed
    assert passed is not None  # noqa: S101 (only called with a pool)
    rows = passed.rows
    labels = subject.labels("test", attribute.name)[rows]
    useful = [subject.labels("test", a.name)[rows] for a in subject.single("useful") if a.name != attribute.name]
    side = None if known is None else subject.labels("test", known.name)[rows]
    released = known is not None and known.name in {one.attribute.name for one in subject.columns}
    # What an attacker knows anyway is given; the values of a published column may reveal something alone, and are not.
    kept = useful if side is None or released else [*useful, side]
    units = choose_units(labels, kept, test.persons[rows], test.blocks[rows])
    permutations = audited.depth.permutations
    whole, each = compare_with_null(passed.sums, labels, units, rng, permutations=permutations, known=side, released=released)
    return described(whole, units), {label: described(comparison, units) for label, comparison in each.items()}


def described(comparison: NullComparison, units: Units) -> Information:
    """A comparison as it is written down."""
    return Information(
        found=comparison.found,
        null_mean=comparison.mean,
        null_deviation=comparison.deviation,
        p_value=comparison.p_value,
        excess=comparison.excess,
        unit=units.name,
        units=units.number,
    )


def exact_findings(audited: Audited, attacked: Attacked) -> ExactFindings | None:
    """The exact attacker's figures of one attribute; None without a pool."""
    passed, substitution = audited.passed, audited.subject.substitution
    if passed is None or substitution is None:
        return None
    name, scoring, rng_for = attacked.attribute.name, attacked.scoring, audited.rng_for
    train, test = substitution.train_law.joint[name], passed.law.joint[name]
    hits = passed.hits[name]
    plug_in = plug_in_accuracy(test)
    bound = min(1.0, plug_in + _deviation_bound(audited.subject.test.persons))
    unprotected = float(scoring.control.mean())
    priors = test.sum(axis=1, keepdims=True)
    present = priors[:, 0] > 0
    certificate = None
    if attacked.attribute.role == "private":
        inferred, rarely = passed.law.readouts[f"inferred {name}"], passed.law.readouts[f"rare {name}"][:, 0]
        certificate = certify(train, inferred, rarely, rng_for("certificate", name))
    return ExactFindings(
        rule=scoring.nag(hits),
        plug_in=nag(plug_in, scoring.majority, unprotected),
        bound=nag(bound, scoring.majority, unprotected),
        rule_accuracy=scoring.accuracy(hits),
        plug_in_accuracy=plug_in,
        bound_accuracy=bound,
        balanced_plug_in_accuracy=plug_in_accuracy(test[present] / priors[present] / present.sum()),
        information=information(audited, attacked.attribute, rng_for("null", name))[0],
        leakage=donor_leakage(train),
        certificate=certificate,
    )


def _deviation_bound(persons: IntArray) -> float:
    """McDiarmid: another person in a person's place moves the plug-in accuracy by at most that person's share of the records."""
    _, counts = np.unique(persons, return_counts=True)
    shares = counts / counts.sum()
    return math.sqrt(-math.log(1 - CONFIDENCE) / 2 * float((shares**2).sum()))
