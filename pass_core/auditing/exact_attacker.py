"""The exact attacker: two streamed passes through the channel, and everything that follows from them by arithmetic.

The certificate at the end bounds how much any donor, and any two records, can differ in what they reveal about an attribute.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import special
from scipy.spatial.distance import pdist

from pass_core.auditing.findings import Certificate, DonorLeakage, ExactFindings, Information
from pass_core.auditing.subject import Subject, Substitution
from pass_core.auditing.thresholds import Depth
from pass_core.auditing.trained_attacks import Attacked, RngFor
from pass_core.auditing.validity import Validity
from pass_core.channel.joint_law import ChannelLaw, accumulate, best_rule, channel_law, plug_in_accuracy, posterior
from pass_core.data import Attribute, DoubleArray, IntArray, combinations, one_hot, with_role
from pass_core.statistics.intervals import CONFIDENCE
from pass_core.statistics.nag import FLOOR, nag
from pass_core.statistics.null_distribution import MOST_CELLS, DonorSums, choose_units, compare_with_null, donor_sums

MOST_COMBINATIONS = 256  # of a private and a known class: what an attacker who knows an attribute is computed for
MOST_PAIRED = 3000  # records among which the farthest two are sought; all where the attribute has two classes
RARE = 0.01  # share of the releases that a robust bound leaves out


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactPass:
    """The result of two passes through the channel: over the training records, then over the test records."""

    law: ChannelLaw  # of the test records
    hits: Mapping[str, DoubleArray]  # attribute -> (m,) probability that the rule learnt on train is right
    scores: Mapping[str, DoubleArray]  # attribute -> (m, classes) mean log-scores of what was learnt on train, over the draws
    known_hits: Mapping[tuple[str, str], DoubleArray]  # (attribute, known one) -> hits of rules learnt per known class,
    known_scores: Mapping[tuple[str, str], DoubleArray]  # and their log-scores
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
    validity: Validity | None = None  # which attacks find a planted leak; None: not tried


def known_pairs(subject: Subject) -> list[tuple[Attribute, Attribute]]:
    """Private attributes with what an attacker may know beside the release.

    What determines the attribute alone is left out, unless it is published with the release: then the release is to blame.
    """
    pairs, released = [], [one.attribute for one in subject.columns]
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
    """Rules and log-scores are learnt on the training records and read out for the test records."""
    test, joints = subject.test, substitution.train_law.joint
    rows = np.arange(len(test))
    tables = _known_tables(subject, substitution)
    readouts = {f"rule {a.name}": one_hot(best_rule(joints[a.name]), a.n_classes) for a in subject.attributes}
    for attribute in with_role(subject.attributes, "private"):
        name, joint = attribute.name, joints[attribute.name]
        readouts[f"log {name}"] = donor_log_scores(len(subject.train) * joint)
        readouts[f"inferred {name}"] = np.ascontiguousarray(posterior(joint).T)
        readouts[f"rare {name}"] = rare_donors(joint)[:, None]
    for (private, known), parts in tables.items():
        rules = [one_hot(best_rule(part), len(part)) for part in parts]
        readouts[f"rule {private} knowing {known}"] = np.concatenate(rules, axis=1)
        readouts[f"log {private} knowing {known}"] = np.concatenate([donor_log_scores(part) for part in parts], axis=1)
    records, channel = test.records, substitution.channel("test", rows)
    law = channel_law(channel, records.features, records.labels, subject.attributes, readouts=readouts)
    hits = {a.name: law.readouts[f"rule {a.name}"][rows, subject.labels("test", a.name)] for a in subject.attributes}
    known_hits, known_scores = {}, {}
    for private, known in tables:
        first = subject.labels("test", known) * len(joints[private])
        known_hits[private, known] = law.readouts[f"rule {private} knowing {known}"][
            rows, first + subject.labels("test", private)
        ]
        places = first[:, None] + np.arange(len(joints[private]))
        known_scores[private, known] = np.take_along_axis(law.readouts[f"log {private} knowing {known}"], places, axis=1)
    # Nulls are computed on all test records where they fall into few cells, else on some of them at random.
    groupings = [test.persons, test.blocks, *records.labels.values()]
    if len(test) > depth.null_records and combinations(groupings).max() >= MOST_CELLS:
        rows = np.sort(rng_for("null records").permutation(len(test))[: depth.null_records])
    groupings, channel = [grouping[rows] for grouping in groupings], substitution.channel("test", rows)
    return ExactPass(
        law=law,
        hits=hits,
        scores={a.name: law.readouts[f"log {a.name}"] for a in with_role(subject.attributes, "private")},
        known_hits=known_hits,
        known_scores=known_scores,
        sums=donor_sums(channel, records.features[rows], groupings),
        rows=rows,
    )


def donor_log_scores(table: DoubleArray) -> DoubleArray:
    """(pool, classes) ln P(class|donor) from sums of P(donor|x) over the records of every class, with one average record more."""
    prior = table.sum(axis=1, keepdims=True) / table.sum() if table.sum() > 0 else np.full((len(table), 1), 1 / len(table))
    return np.ascontiguousarray(np.log(np.maximum((table + prior) / (table.sum(axis=0) + 1), FLOOR)).T)


def _known_tables(subject: Subject, substitution: Substitution) -> dict[tuple[str, str], list[DoubleArray]]:
    """(private, known) -> for every known class (classes, pool) sums of P(.|x) over the training records."""
    pairs = known_pairs(subject)
    if not pairs:
        return {}
    ends = np.cumsum([private.n_classes * known.n_classes for private, known in pairs])
    codes = [
        start + subject.labels("train", known.name) * private.n_classes + subject.labels("train", private.name)
        for (private, known), start in zip(pairs, (0, *ends), strict=False)
    ]
    channel = substitution.channel("train", np.arange(len(subject.train)))
    sums = accumulate(channel, subject.train.records.features, np.stack(codes), int(ends[-1]))
    split = zip(pairs, np.split(sums, ends[:-1]), strict=True)
    return {(private.name, known.name): np.split(table, known.n_classes) for (private, known), table in split}


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
    return Information.of(whole, units), {label: Information.of(comparison, units) for label, comparison in each.items()}


def exact_findings(audited: Audited, attacked: Attacked) -> ExactFindings | None:
    """The exact attacker's figures of one attribute; None without a pool."""
    passed, substitution = audited.passed, audited.subject.substitution
    if passed is None or substitution is None:
        return None
    name, scoring, rng_for = attacked.attribute.name, attacked.scoring, audited.rng_for
    train, test = substitution.train_law.joint[name], passed.law.joint[name]
    hits, plug_in = passed.hits[name], plug_in_accuracy(test)
    # McDiarmid: another person in a person's place moves the plug-in accuracy by at most that person's share of the records.
    shares = np.unique(audited.subject.test.persons, return_counts=True)[1] / len(audited.subject.test)
    bound = min(1.0, plug_in + math.sqrt(-math.log(1 - CONFIDENCE) / 2 * float((shares**2).sum())))
    unprotected = float(scoring.control.mean())
    priors = test.sum(axis=1, keepdims=True)
    present = priors[:, 0] > 0
    certificate = None
    if attacked.attribute.role == "private":
        inferred, rarely = passed.law.readouts[f"inferred {name}"], passed.law.readouts[f"rare {name}"][:, 0]
        certificate = certify(train, inferred, rarely, rng_for("certificate", name))
    return ExactFindings(
        rule=scoring.nag(hits),
        plug_in=nag(plug_in, scoring.guess, unprotected),
        bound=nag(bound, scoring.guess, unprotected),
        rule_accuracy=scoring.accuracy(hits),
        plug_in_accuracy=plug_in,
        bound_accuracy=bound,
        balanced_plug_in_accuracy=plug_in_accuracy(test[present] / priors[present] / present.sum()),
        information=information(audited, attacked.attribute, rng_for("null", name))[0],
        leakage=donor_leakage(train),
        certificate=certificate,
    )


def donor_divergence(joint: DoubleArray) -> DoubleArray:
    """(pool,) KL(P(A|x')‖P(A)) of every donor, nats; 0 for donors never shown."""
    prior = joint.sum(axis=1, keepdims=True)
    return np.asarray(np.maximum(special.rel_entr(posterior(joint), prior).sum(axis=0), 0.0))


def donor_leakage(joint: DoubleArray) -> DonorLeakage:
    """The worst donor, and what nearly all releases stay below."""
    prior, shown = joint.sum(axis=1, keepdims=True), joint.sum(axis=0)
    ratios = posterior(joint)[:, shown > 0] / np.where(prior > 0, prior, 1)
    divergence = donor_divergence(joint)
    quantiles = {str(q): _mass_quantile(divergence, shown, q) for q in (0.5, 0.95, 1 - RARE)}
    return DonorLeakage(float(ratios.max()), float(divergence.max()), quantiles)


def rare_donors(joint: DoubleArray) -> np.ndarray:
    """(pool,) 1.0 for donors that reveal more than 99 % of the releases do."""
    divergence, shown = donor_divergence(joint), joint.sum(axis=0)
    return (divergence > _mass_quantile(divergence, shown, 1 - RARE)).astype(np.float64)


def certify(joint: DoubleArray, inferred: DoubleArray, rarely: DoubleArray, rng: np.random.Generator) -> Certificate:
    """The certificate of one attribute.

    Args:
        joint: (classes, pool) P(A=a, X'=d) over the training records.
        inferred: (m, classes) E over x' of P(A|x') for every test record.
        rarely: (m,) probability that a test record gets a donor of `rare_donors`.
    """
    prior, shown = joint.sum(axis=1, keepdims=True), joint.sum(axis=0)
    divergence = donor_divergence(joint)
    distance = 0.5 * np.abs(posterior(joint) - prior).sum(axis=0)
    usual = _mass_quantile(divergence, shown, 1 - RARE)
    binary = inferred.shape[1] == 2
    rows: IntArray = np.arange(len(inferred)) if binary else rng.permutation(len(inferred))[:MOST_PAIRED]
    delta = float(np.ptp(inferred[:, 0])) if binary else 0.5 * float(pdist(inferred[rows], "cityblock").max(initial=0.0))
    gamma = float(divergence.max())
    return Certificate(
        gamma=gamma,
        pinsker=math.sqrt(2 * gamma),
        twice_distance=2 * float(distance.max()),
        delta=delta,
        robust_gamma=usual,
        robust_bound=math.sqrt(2 * usual) + float(np.sort(rarely)[-2:].sum()),
        records=len(rows),
    )


def _mass_quantile(values: DoubleArray, mass: DoubleArray, share: float) -> float:
    """The smallest value that at least `share` of the mass does not exceed."""
    order = np.argsort(values)
    reached = np.searchsorted(np.cumsum(mass[order]), share * mass.sum() - 1e-12)
    return float(values[order][min(int(reached), len(values) - 1)])
