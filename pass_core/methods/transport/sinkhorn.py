"""Potentials that give every private class the same distribution over donors: Sinkhorn scaling in the log domain.

    channel     P_c(d|x) = softmax over d of k(x,d) + v_c(d)                      of private class c
    round       q_c = mean over records of class c of P_c;  ln m = Σ_c w_c ln q_c;  v_c += ln m − ln q_c

m is not given: it is the classes' entropic Wasserstein barycentre on the pool. Its weights w_c, shares to the power of p, decide
whose records stay near: p = 0 treats all classes alike, p = 1 moves records least overall, and p above 1 lets the largest class
keep its own donors, to which the others move.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from pass_core.channel.substitution import BLOCK_ROWS
from pass_core.training.epochs import Epoch, OnEpoch

SMALLEST_LOG = -80.0  # ln of a class's share of a donor it never draws: far below any that counts
UNDAMPED_ROUNDS = 10  # of those that see only a part of the records; later ones average over what they happened to see

LogKernel = Callable[[Tensor], Tensor]  # record indices (n,) -> k (n, pool)


@dataclass(frozen=True, slots=True)
class Scaling:
    """How long to scale, and on how many records per round."""

    rounds: int
    tolerance: float  # stop when each class's distribution over donors is this near to the shared one
    majority: float  # p of the barycentre's weights
    records_per_round: int  # of a larger training set every round sees another random part


def solve_potentials(
    log_kernel: LogKernel, classes: Tensor, n_donors: int, scaling: Scaling, *, generator: torch.Generator, on_epoch: OnEpoch
) -> Tensor:
    """v (classes, donors); memory is that of one block of records, whatever their number.

    Each round reports `total`, the largest total variation between a class's distribution and the shared one, and
    `private_information`, I(X';S) over the records of the round, nats.
    """
    counts = torch.bincount(classes).double()
    weights = (counts / counts.sum()).pow(scaling.majority)
    weights = (weights / weights.sum())[:, None]
    potentials = torch.zeros(len(counts), n_donors, dtype=torch.float64, device=classes.device)
    for number in range(1, scaling.rounds + 1):
        rows = _rows_of_round(len(classes), scaling.records_per_round, generator).to(classes.device)
        marginals, shares = _class_marginals(log_kernel, rows, classes, potentials.float())  # q_c
        present = shares > 0  # a round on a part of the records may miss a small class, and then leaves it as it is
        logs = marginals.log().clamp_min(SMALLEST_LOG)
        shared = F.log_softmax((weights * present * logs).sum(dim=0) / (weights * present).sum(), dim=0)  # ln m
        gap = float((present * (marginals - shared.exp()).abs()).sum(dim=1).max() / 2)
        last = gap <= scaling.tolerance or number == scaling.rounds
        figures = {"total": gap, "private_information": _information(marginals, shares)}
        on_epoch(Epoch(number, number if last else scaling.rounds, figures))
        if last:
            break
        step = 1.0 if len(rows) == len(classes) else min(1.0, UNDAMPED_ROUNDS / number)
        potentials += step * present * (shared - logs)
    return potentials.float()


def _rows_of_round(n_records: int, at_most: int, generator: torch.Generator) -> Tensor:
    if n_records <= at_most:
        return torch.arange(n_records)
    return torch.randperm(n_records, generator=generator)[:at_most].sort().values


def _class_marginals(log_kernel: LogKernel, rows: Tensor, classes: Tensor, potentials: Tensor) -> tuple[Tensor, Tensor]:
    """(q (classes, pool), shares (classes, 1)) of these records; a class without a record among them has q = 0."""
    sums = torch.zeros(potentials.shape, dtype=torch.float64, device=potentials.device)
    for block in rows.split(BLOCK_ROWS):
        with torch.inference_mode():
            probabilities = F.softmax(log_kernel(block).add_(potentials[classes[block]]), dim=1)
            members = F.one_hot(classes[block], len(potentials)).to(probabilities.dtype)
            sums += (members.T @ probabilities).double()
    counts = torch.bincount(classes[rows], minlength=len(potentials)).double()[:, None]
    return sums / counts.clamp_min(1), counts / counts.sum()


def _information(marginals: Tensor, shares: Tensor) -> float:
    """I(X';S) of class distributions, nats."""
    mixture = (shares * marginals).sum(dim=0)
    return max(0.0, float((shares * torch.xlogy(marginals, marginals)).sum() - torch.xlogy(mixture, mixture).sum()))
