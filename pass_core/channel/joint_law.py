"""The exact attacker: a released record is one of finitely many donors, so the best possible guess can be computed.

Everything is a function of T[a, d] = P(A=a, X'=d), the joint law of an attribute and the donor over a set of records.
On average over draws, no classifier that reads the released record can beat `plug_in_accuracy` on those records.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from pass_core.channel.draws import inverse_cdf, uniform_words
from pass_core.channel.substitution import Channel
from pass_core.data import Attribute, DoubleArray, FloatArray, IntArray, one_hot


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelLaw:
    """The result of one pass of a set of records through the channel."""

    joint: Mapping[str, DoubleArray]  # attribute -> T (classes, pool), sums to 1
    row_entropy: float  # mean H(X'|X=x), nats
    largest: DoubleArray  # (pool,) max over the records of P(X'=d|x)
    draws: IntArray  # (n_draws, n): independent fresh draws of a donor for every record
    readouts: Mapping[str, DoubleArray]  # name -> (n, k): P(.|x) times the (pool, k) matrix of that name

    @property
    def record_information(self) -> float:
        """I(X';X) = H(X') − H(X'|X), nats."""
        return entropy(next(iter(self.joint.values())).sum(axis=0)) - self.row_entropy


def channel_law(
    channel: Channel,
    features: FloatArray,
    labels: Mapping[str, IntArray],
    attributes: tuple[Attribute, ...],
    *,
    rng: np.random.Generator | None = None,
    n_draws: int = 0,
    readouts: Mapping[str, DoubleArray] | None = None,
) -> ChannelLaw:
    """One streamed pass: joint laws of all attributes, row entropy, read-outs, and `n_draws` draws per record from `rng`."""
    starts = np.cumsum([0, *(a.n_classes for a in attributes)])
    joint = torch.zeros(int(starts[-1]), channel.pool_size, dtype=torch.float64)
    largest = torch.zeros(channel.pool_size)
    draws: IntArray = np.zeros((n_draws, len(features)), dtype=np.int64)
    matrices = {name: torch.from_numpy(matrix).float() for name, matrix in (readouts or {}).items()}
    read = {name: np.zeros((len(features), matrix.shape[1])) for name, matrix in matrices.items()}
    total_entropy = 0.0
    for rows, block in channel.blocks(features):
        p = torch.from_numpy(block)
        p *= (1 / p.sum(dim=1, dtype=torch.float64, keepdim=True)).float()  # float32 rows sum to 1 only to 1e-6
        # All attributes at once: one product of their indicators with P. Blocks are summed in double precision.
        indicators = torch.zeros(len(block), int(starts[-1]))
        for attribute, start in zip(attributes, starts[:-1], strict=True):
            columns = torch.from_numpy(labels[attribute.name][rows]) + int(start)
            indicators[torch.arange(len(block)), columns] = 1.0
        joint += indicators.T @ p
        largest = torch.maximum(largest, p.amax(dim=0))
        total_entropy += float(torch.special.entr(p).sum(dtype=torch.float64))
        for name, matrix in matrices.items():
            read[name][rows] = (p @ matrix).numpy()
        if rng is not None and n_draws:
            draws[:, rows] = inverse_cdf(p.numpy(), uniform_words(rng, n_draws * len(block)).reshape(n_draws, -1))
    tables = (joint / len(features)).numpy()
    split = {a.name: tables[start : start + a.n_classes] for a, start in zip(attributes, starts[:-1], strict=True)}
    highest, entropy_of_rows = largest.numpy().astype(np.float64), total_entropy / len(features)
    return ChannelLaw(joint=split, row_entropy=entropy_of_rows, largest=highest, draws=draws, readouts=read)


def accumulate(channel: Channel, features: FloatArray, codes: IntArray, n_codes: int) -> DoubleArray:
    """(n_codes, pool) sums of P(.|x) over the records of every code, in one pass; `codes` (n,), or (k, n) for k at once."""
    columns = np.atleast_2d(codes)
    sums = torch.zeros(n_codes, channel.pool_size, dtype=torch.float64)
    for rows, block in channel.blocks(features):
        indicators = torch.zeros(len(block), n_codes)
        place = torch.from_numpy(np.ascontiguousarray(columns[:, rows].T))  # (rows, k)
        indicators.scatter_add_(1, place, torch.ones(place.shape))
        sums += indicators.T @ torch.from_numpy(block)
    return sums.numpy()


def plug_in_accuracy(joint: DoubleArray) -> float:
    """Bayes accuracy Σ_d max_a T[a, d] on these very records: what no attacker of them exceeds on average over draws."""
    return float(joint.max(axis=0).sum())


def rule_accuracy(learnt_on: DoubleArray, scored_on: DoubleArray) -> float:
    """Accuracy on one set of the best rule donor → class learnt on another; a donor never seen there gets its majority."""
    return float(scored_on[best_rule(learnt_on), np.arange(scored_on.shape[1])].sum())


def best_rule(joint: DoubleArray) -> IntArray:
    """The likeliest class of every donor; a donor never seen gets the commonest class."""
    return np.asarray(np.where(joint.sum(axis=0) > 0, joint.argmax(axis=0), joint.sum(axis=1).argmax()))


def posterior(joint: DoubleArray) -> DoubleArray:
    """P(A=a|X'=d), (classes, pool); a donor never seen has the class shares."""
    shown = joint.sum(axis=0)
    prior = joint.sum(axis=1, keepdims=True) / joint.sum()
    return np.asarray(np.where(shown > 0, joint / np.maximum(shown, np.finfo(np.float64).tiny), prior))


def mutual_information(joint: DoubleArray) -> float:
    """I(X';A) of the joint law, nats. On few records it is biased upwards, so it errs on the careful side."""
    product = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    held = joint > 0
    return max(0.0, float((joint[held] * np.log(joint[held] / product[held])).sum()))


def substitution_confusion(joint: DoubleArray, donor_labels: IntArray) -> DoubleArray:
    """C[i, j] = probability that a record of class i is replaced by a donor of class j; an absent class has a zero row."""
    counts = joint @ one_hot(donor_labels, len(joint))  # (classes, classes)
    totals = counts.sum(axis=1, keepdims=True)
    return np.asarray(np.divide(counts, totals, out=np.zeros_like(counts), where=totals > 0))


def entropy(distribution: DoubleArray) -> float:
    """H of a distribution, nats."""
    held = distribution[distribution > 0]
    return float(-(held * np.log(held)).sum())
