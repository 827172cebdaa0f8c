"""What every constraint demands of transport's potentials, how far the donors are from it, and steps that get there sooner."""

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from pass_core.methods.transport.cells import Constraint

REMEMBERED = 6  # rounds that an accelerated step looks back on
WORSE = 2.0  # a round whose corrections are so much longer than the last ones' starts to remember afresh
RIDGE = 1e-8  # of their products, as a share of their trace
SMALLEST_LOG = -80.0  # ln of a class's share of a donor it never draws: far below any that counts


@dataclass(frozen=True, slots=True)
class Totals:
    """Of the records of a round, by cell: the sums of their rows of P, and how many they are."""

    rows: Tensor  # (cells, pool)
    counts: Tensor  # (cells,)


@dataclass(frozen=True, slots=True)
class Projection:
    """What one constraint demands of the potentials, and how far the donors' distributions are from it."""

    correction: Tensor  # (cells, pool) to add
    gap: float  # the largest total variation between a private class's distribution and the shared one
    information: float  # I(X';S|A), nats


def project(constraint: Constraint, totals: Totals, counts: Tensor, majority: float) -> Projection:
    """The projection onto one constraint; `counts` (cells,) of all records, not only the round's, weigh the classes."""
    of_group = F.one_hot(constraint.groups).double().T  # (groups, cells)
    whole, seen = (of_group @ counts)[:, None], (of_group @ totals.counts)[:, None]
    marginals = of_group @ totals.rows / seen.clamp_min(1)  # q; 0 of a group without a record in this round
    corrections = torch.zeros_like(marginals)
    gap = information = 0.0
    for members in constraint.classes:
        q, present = marginals[members], seen[members] > 0  # a round on a part of the records leaves what it misses as it is
        if not present.any():
            continue
        weights = (whole[members] / whole[members].sum()).pow(majority)
        weights = weights / weights.sum()
        logs = q.log().clamp_min(SMALLEST_LOG)
        shared = F.log_softmax((weights * present * logs).sum(dim=0) / (weights * present).sum(), dim=0)  # ln m
        corrections[members] = present * (shared - logs)
        gap = max(gap, float((present * (q - shared.exp()).abs()).sum(dim=1).max() / 2))
        information += float(seen[members].sum() / seen.sum()) * _information(q, seen[members] / seen[members].sum())
    return Projection(corrections[constraint.groups], gap, information)


def _information(marginals: Tensor, shares: Tensor) -> float:
    """I(X';S) of class distributions, nats."""
    mixture = (shares * marginals).sum(dim=0)
    return max(0.0, float((shares * torch.xlogy(marginals, marginals)).sum() - torch.xlogy(mixture, mixture).sum()))


@dataclass(slots=True)
class Anderson:
    """Anderson's acceleration: a step to where the corrections of the last rounds, taken as linear, would cancel."""

    weights: Tensor  # (cells, 1) how much a cell's correction counts
    reached: list[Tensor] = field(default_factory=list)  # potentials after the plain correction, of the last rounds
    corrections: list[Tensor] = field(default_factory=list)

    def step(self, potentials: Tensor, correction: Tensor) -> Tensor:
        """The next potentials; the first step, and one after corrections grew, is the plain one."""
        if self.corrections and self._length(correction) > WORSE * self._length(self.corrections[-1]):
            self.reached, self.corrections = [], []
        self.reached = [*self.reached, potentials + correction][-REMEMBERED:]
        self.corrections = [*self.corrections, correction][-REMEMBERED:]
        if len(self.corrections) == 1:
            return self.reached[-1]
        changes = torch.stack(self.corrections).diff(dim=0)
        weighted = (changes * self.weights).flatten(1)
        products = weighted @ weighted.T
        products.diagonal().add_(RIDGE * products.trace() + torch.finfo(products.dtype).tiny)
        shares = torch.linalg.solve(products, weighted @ (correction * self.weights).flatten())
        return self.reached[-1] - torch.einsum("k,kcd->cd", shares, torch.stack(self.reached).diff(dim=0))

    def _length(self, correction: Tensor) -> float:
        return float((correction * self.weights).norm())
