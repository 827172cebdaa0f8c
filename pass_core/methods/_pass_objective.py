"""The PASS objective of a batch with its gradient, in few passes over the (batch, pool) matrix, and in little memory.

With P = softmax(z) and z = cos(f, g)/τ, every term is a function of P, and ∂L/∂z = P ⊙ (G − ⟨P, G⟩) with G = ∂L/∂P:

    L_S(i)   ln q_s(d)/B for a record of class s          q_s is the class's mean row; constants cancel in the bracket
    L_S|A    ln q_sa(d)/B − ln q_a(d)/B                   the same within the class a of an attribute that recipients know
    H(X')    −ln q(d)/B                                   q is the batch's mean row
    L_U(j)   −ln|U_j|/B · 1[U'_j(d) = U_j(x)]/A_j(x)      A_j is the probability of the record's own class
    L_X      −ln P/B
    L_T      −T/(P B)                                     T are a teacher's rows to imitate; its ∂/∂z is (P − T)/B

All but the last two are a thin matrix product, class indicators times a table over donors, which one `addmm` adds to
−μ ln P/B. One matrix of the batch's size is held, ln P, which becomes ∂L/∂z in place; autograd would hold one for every
operation. The tests hold a reference that computes the terms one by one.

    L = Σ_i L_S(i) + λ Σ_j L_U(j) + μ L_X        (eq. 3)

The paper prints minus signs in eq. 3, but derives, and needs for its bound, the plus signs: L_U is a cross-entropy and L_X
an entropy. Its constant (eq. 10) counts the slack λ once; it is needed once per useful attribute.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from pass_core.training.loop import fast_products
from pass_core.training.parallel import ALONE, World

ROWS_AT_ONCE = 256  # of the (batch, pool) matrix, so that they stay in the cache from pass to pass
# Below the smallest class mean that float32 can hold, so it changes no value; it keeps ln 0 out of the gradient.
SMALLEST_PROBABILITY = 1e-30
SMALLEST_MASS = 1e-20  # below it A_j is computed among logarithms: float32 ends at 1e-38


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """α Σ L_S + (α − β) n_S H(X') + λ Σ L_U + μ L_X + ν L_T + κ Σ L_S|A over a pool.

    With α = β = 1 and ν = κ = 0 it is eq. 3 with the signs of its proof. Since L_S is −H(X'|S), the first two are
    α Σ I(X';S) − β n_S H(X') in the batch: hiding and spreading, weighed apart. L_T is the cross-entropy with a teacher's rows.
    κ weighs Σ I(X';S|A) of the batch, for every attribute A that recipients know: H(X'|A) − H(X'|S,A).
    """

    private_classes: tuple[int, ...]  # number of classes of each private attribute
    useful_donors: tuple[Tensor, ...]  # indicators (classes, pool) of the donors' class, per useful attribute
    useful_weight: float
    general_weight: float
    temperature: float
    private_weight: float = 1.0  # α
    spread_weight: float = 1.0  # β
    teacher_weight: float = 0.0  # ν
    known_classes: tuple[int, ...] = ()  # number of classes of each attribute that recipients know
    known_weight: float = 0.0  # κ
    fast: bool = False  # the products with the donors' embeddings as in `fast_products`
    world: World = ALONE  # processes that hold equal parts of the batch; value and gradient are those of the whole

    @property
    def excess_weight(self) -> float:
        """(α − β) n_S: what H(X') costs beyond the paper's objective, in which it has none."""
        return (self.private_weight - self.spread_weight) * len(self.private_classes)

    def __call__(
        self,
        embedded: Tensor,
        donors: Tensor,
        private: Sequence[Tensor],
        useful: Sequence[Tensor],
        *,
        teacher: Tensor | None = None,
        known: Sequence[Tensor] = (),
    ) -> tuple[Tensor, Tensor]:
        """(total, terms) of a batch: f (batch, dim), g (pool, dim), one label per record and attribute, T (batch, pool).

        `terms` holds every L_S, every L_U, H(X'), L_X, with a teacher L_T, and I(X';S|A) of every pair, in this order, without
        gradient.
        """
        unit = F.normalize(embedded, dim=1), F.normalize(donors, dim=1)
        labels = self._groups(private, known), tuple(useful)
        total, terms = _ObjectiveFunction.apply(*unit, labels, teacher, self)  # type: ignore[no-untyped-call]
        return total, terms

    def _groups(self, private: Sequence[Tensor], known: Sequence[Tensor]) -> "tuple[_Group, ...]":
        """The classes of records whose mean rows count: of every S, then of every A, then of every pair, S by S."""
        single = zip(private, self.private_classes, strict=True)
        of_known = list(zip(known, self.known_classes, strict=True))
        groups = [_Group(labels, n, self.private_weight) for labels, n in single]
        within = [_Group(labels, n, -self.known_weight * len(private)) for labels, n in of_known]
        pairs = [
            _Group(group.labels * n + labels, group.classes * n, self.known_weight) for group in groups for labels, n in of_known
        ]
        return (*groups, *within, *pairs)


@dataclass(frozen=True, slots=True)
class _Group:
    """A classification of the batch; −H(X'|class) counts with this weight."""

    labels: Tensor
    classes: int
    weight: float


class _ObjectiveFunction(torch.autograd.Function):
    """Computes ∂L/∂z with L: backward is two matrix products."""

    @staticmethod
    def forward(
        ctx: Any, f: Tensor, g: Tensor, labels: tuple[tuple[_Group, ...], tuple[Tensor, ...]], *given: Any
    ) -> tuple[Tensor, Tensor]:
        (groups, useful), (teacher, parts) = labels, given
        log_p, law = _first_pass(f, g, groups, parts)
        terms, table, weights, faint = _terms(log_p, law, groups, useful, parts)
        imitation = None if teacher is None else -parts.world.mean(torch.dot(teacher.view(-1), log_p.view(-1)) / len(log_p))
        corrections = [_faint_gradient(log_p, *each, parts) for each in zip(faint, useful, parts.useful_donors, strict=True)]
        _gradient_in_place(log_p, table, weights, teacher, parts)
        for rows, correction in zip(faint, corrections, strict=True):
            log_p[rows] += correction
        ctx.save_for_backward(log_p, f, g)  # by now ∂L/∂z
        ctx.parts = parts
        n_private, n_known = len(parts.private_classes), len(parts.known_classes)
        grouped, kept, (spread, general) = terms[: len(groups)], terms[len(groups) : -2], terms[-2:]
        hidden, within = grouped[:n_private], grouped[n_private : n_private + n_known]
        terms = torch.cat([hidden, kept, terms[-2:]])
        total = parts.private_weight * hidden.sum() + parts.excess_weight * spread
        total = total + parts.useful_weight * kept.sum() + parts.general_weight * general
        if imitation is not None:
            total, terms = total + parts.teacher_weight * imitation, torch.cat([terms, imitation[None]])
        if n_known:
            informations = grouped[n_private + n_known :] - within.repeat(n_private)
            total, terms = total + parts.known_weight * informations.sum(), torch.cat([terms, informations])
        ctx.mark_non_differentiable(terms)
        return total, terms

    @staticmethod
    def backward(ctx: Any, grad_total: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        grad_z, f, g = ctx.saved_tensors
        scale = grad_total / ctx.parts.temperature
        with fast_products(ctx.parts.fast):
            return (grad_z @ g) * scale, (grad_z.T @ f) * scale, None, None, None


# Means of P (classes, pool) and shares (classes,) per group; P(U'=u|x) (batch, classes) per useful one; mean H(X'|X)
_BatchLaw = tuple[list[Tensor], list[Tensor], list[Tensor], Tensor]


def _chunks(batch: int) -> Iterator[slice]:
    return (slice(start, min(start + ROWS_AT_ONCE, batch)) for start in range(0, batch, ROWS_AT_ONCE))


def _first_pass(f: Tensor, g: Tensor, groups: tuple[_Group, ...], parts: Objective) -> tuple[Tensor, _BatchLaw]:
    """ln P of the batch, and its class means, useful masses and entropy."""
    batch, pool = len(f), len(g)
    members = [F.one_hot(group.labels, group.classes).to(f.dtype) for group in groups]
    sums = [f.new_zeros(group.classes, pool) for group in groups]
    masses = [f.new_empty(batch, len(donors)) for donors in parts.useful_donors]
    log_p = f.new_empty(batch, pool)
    entropy = f.new_zeros((), dtype=torch.float64)
    scaled = g.T / parts.temperature
    for rows in _chunks(batch):
        with fast_products(parts.fast):
            scores = f[rows] @ scaled
        log_p[rows] = F.log_softmax(scores, dim=1)
        p = log_p[rows].exp()
        for total, member in zip(sums, members, strict=True):
            total.addmm_(member[rows].T, p)
        for mass, donors in zip(masses, parts.useful_donors, strict=True):
            mass[rows] = p @ donors.T
        entropy -= torch.dot(p.view(-1), log_p[rows].reshape(-1)).double()
    counts = [parts.world.sum(member.sum(dim=0)) for member in members]
    sums = [parts.world.sum(total) for total in sums]
    entropy, batch = parts.world.sum(entropy), batch * parts.world.processes
    means = [total / count.clamp_min(1)[:, None] for total, count in zip(sums, counts, strict=True)]
    return log_p, (means, [count / batch for count in counts], masses, (entropy / batch).to(f.dtype))


def _terms(
    log_p: Tensor, law: _BatchLaw, groups: tuple[_Group, ...], useful: tuple[Tensor, ...], parts: Objective
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """The terms; the table (k, pool) and weights (batch, k) whose product is G but for L_X; rows to correct per useful one."""
    batch = len(log_p) * parts.world.processes
    terms, table, weights, faint = [], [], [], []
    class_means, class_shares, useful_masses, row_entropy = law
    for group, means, shares in zip(groups, class_means, class_shares, strict=True):
        logs = means.clamp_min(SMALLEST_PROBABILITY).log()
        terms.append((shares * (means * logs).sum(dim=1)).sum())
        table.append(logs * (group.weight / batch))
        weights.append(F.one_hot(group.labels, len(means)).to(log_p.dtype))
    overall = class_shares[0] @ class_means[0]  # every record is of one class of the first attribute
    logs = overall.clamp_min(SMALLEST_PROBABILITY).log()
    spread = -(overall * logs).sum()
    if parts.excess_weight:
        table.append(logs[None] * (-parts.excess_weight / batch))
        weights.append(log_p.new_ones(len(log_p), 1))
    for labels, masses, donors in zip(useful, useful_masses, parts.useful_donors, strict=True):
        own = masses.gather(1, labels[:, None])[:, 0]
        rows = torch.nonzero(own < SMALLEST_MASS)[:, 0]
        logs = own.clamp_min(SMALLEST_MASS).log()
        logs[rows] = torch.logsumexp(_matching(log_p[rows], labels[rows], donors), dim=1)
        terms.append(-math.log(len(donors)) * parts.world.mean(logs.mean()))
        table.append(donors * (-parts.useful_weight * math.log(len(donors)) / batch))
        weight = F.one_hot(labels, len(donors)) / own.clamp_min(SMALLEST_MASS)[:, None]
        weight[rows] = 0
        weights.append(weight)
        faint.append(rows)
    return torch.stack([*terms, spread, row_entropy]), torch.cat(table), torch.cat(weights, dim=1), faint


def _matching(log_p: Tensor, labels: Tensor, donors: Tensor) -> Tensor:
    """ln P where the donor is of the record's class, −∞ elsewhere."""
    return log_p.masked_fill(donors[labels] == 0, -math.inf)


def _faint_gradient(log_p: Tensor, rows: Tensor, labels: Tensor, donors: Tensor, parts: Objective) -> Tensor:
    """∂(λ L_U)/∂z of rows that give their own class next to nothing: P − P(·|U' = U), computed among logarithms."""
    matched = F.softmax(_matching(log_p[rows], labels[rows], donors), dim=1)
    return (log_p[rows].exp() - matched) * (parts.useful_weight * math.log(len(donors)) / (len(log_p) * parts.world.processes))


def _gradient_in_place(log_p: Tensor, table: Tensor, weights: Tensor, teacher: Tensor | None, parts: Objective) -> None:
    """ln P becomes ∂L/∂z = P ⊙ (G − ⟨P, G⟩), and ν (P − T)/B more with a teacher."""
    batch = len(log_p) * parts.world.processes
    for rows in _chunks(len(log_p)):
        logs = log_p[rows]
        p = logs.exp()
        g = torch.addmm(logs, weights[rows], table, beta=-parts.general_weight / batch)
        g -= torch.linalg.vecdot(p, g)[:, None]
        torch.mul(p, g, out=logs)
        if teacher is not None:
            logs.add_(p.sub_(teacher[rows]), alpha=parts.teacher_weight / batch)


def bound_constant(n_private: int, pool_size: int, useful_entropies: Sequence[float], weights: tuple[float, float]) -> float:
    """C (eq. 10, corrected) of E[L] + C ≥ Σ I(X';S) − λ Σ I(X';U) − μ I(X';X) (eq. 9), for weights (λ, μ) and μ ≤ `n_private`."""
    useful_weight, general_weight = weights
    spread, kept = (n_private - general_weight) * math.log(pool_size), useful_weight * sum(useful_entropies)
    return spread - kept + useful_weight * len(useful_entropies)
