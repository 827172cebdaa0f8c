"""The exact attacker: a released record is one of finitely many donors, so the best possible guess can be computed.

Everything is a function of T[a, d] = P(A=a, X'=d), the joint law of an attribute and the donor over a set of records.
On average over draws, no classifier that reads the released record can beat `plug_in_accuracy` on those records.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pass_core.data import Attribute, DoubleArray, FloatArray, IntArray, one_hot
from pass_core.draws import inverse_cdf, uniform_words
from pass_core.substitution import Channel


@dataclass(frozen=True, slots=True)
class ChannelLaw:
    """What one pass of a set of records through the channel tells."""

    joint: Mapping[str, DoubleArray]  # attribute -> T (classes, pool), sums to 1
    row_entropy: float  # mean H(X'|X=x), nats
    draws: IntArray  # (n_draws, n): independent fresh draws of a donor for every record

    @property
    def donor_marginal(self) -> DoubleArray:
        """P(X'=d), the share of releases that show donor d."""
        marginal: DoubleArray = next(iter(self.joint.values())).sum(axis=0)
        return marginal

    @property
    def record_information(self) -> float:
        """I(X';X) = H(X') − H(X'|X), nats."""
        return entropy(self.donor_marginal) - self.row_entropy


def channel_law(
    channel: Channel,
    features: FloatArray,
    labels: Mapping[str, IntArray],
    attributes: tuple[Attribute, ...],
    rng: np.random.Generator,
    n_draws: int = 0,
) -> ChannelLaw:
    """One streamed pass: joint laws of all attributes, row entropy, and `n_draws` draws per record."""
    joint = {a.name: np.zeros((a.n_classes, channel.pool_size)) for a in attributes}
    draws: IntArray = np.zeros((n_draws, len(features)), dtype=np.int64)
    entropy = 0.0
    for rows, block in channel.blocks(features):
        probabilities = block.astype(np.float64)
        probabilities /= probabilities.sum(axis=1, keepdims=True)  # float32 rows sum to 1 only to 1e-6
        for attribute in attributes:
            joint[attribute.name] += one_hot(labels[attribute.name][rows], attribute.n_classes).T @ probabilities
        entropy += float(-(probabilities * np.log(np.maximum(probabilities, np.finfo(np.float64).tiny))).sum())
        if n_draws:
            draws[:, rows] = inverse_cdf(probabilities, uniform_words(rng, n_draws * len(block)).reshape(n_draws, -1))
    n = len(features)
    return ChannelLaw({name: table / n for name, table in joint.items()}, entropy / n, draws)


def plug_in_accuracy(joint: DoubleArray) -> float:
    """Bayes accuracy Σ_d max_a T[a, d] on these very records: what no attacker of them exceeds on average over draws."""
    return float(joint.max(axis=0).sum())


def rule_accuracy(learnt_on: DoubleArray, scored_on: DoubleArray) -> float:
    """Accuracy on one set of the best rule donor → class learnt on another; a donor never seen there gets its majority."""
    rule = np.where(learnt_on.sum(axis=0) > 0, learnt_on.argmax(axis=0), learnt_on.sum(axis=1).argmax())
    return float(scored_on[rule, np.arange(scored_on.shape[1])].sum())


def mutual_information(joint: DoubleArray) -> float:
    """I(X';A) of the joint law, nats. On few records it is biased upwards, so it errs on the careful side."""
    product = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    held = joint > 0
    return max(0.0, float((joint[held] * np.log(joint[held] / product[held])).sum()))


def substitution_confusion(joint: DoubleArray, donor_labels: IntArray) -> DoubleArray:
    """C[i, j] = probability that a record of class i is replaced by a donor of class j; an absent class has a zero row."""
    n_classes = len(joint)
    counts = joint @ one_hot(donor_labels, n_classes)  # (classes, classes)
    totals = counts.sum(axis=1, keepdims=True)
    shares: DoubleArray = np.divide(counts, totals, out=np.zeros_like(counts), where=totals > 0)
    return shares


def entropy(distribution: DoubleArray) -> float:
    """H of a distribution, nats."""
    held = distribution[distribution > 0]
    return float(-(held * np.log(held)).sum())
