"""The PASS objective on a mini-batch term by term, in nats: the reference for the fast one (equations of the ICML 2025 paper).

All terms take `log_p`, the (batch, pool) matrix of ln P(x'|x), and are to be minimised.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from pass_core.methods._pass_objective import SMALLEST_PROBABILITY


def log_probabilities(embedded: Tensor, donors: Tensor, temperature: float) -> Tensor:
    """ln P(x'_d|x) = log-softmax over d of cos(f(x), g_d)/τ (eq. 2), for f (batch, dim) and g (pool, dim)."""
    cosine = F.normalize(embedded, dim=1) @ F.normalize(donors, dim=1).T  # (batch, pool)
    return F.log_softmax(cosine / temperature, dim=1)


def class_means(probabilities: Tensor, labels: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """(means (present, pool), shares (present,)): P(x'|S=s, batch) and P(S=s|batch) of the classes present."""
    membership = F.one_hot(labels, n_classes).to(probabilities.dtype)  # (batch, classes)
    counts = membership.sum(dim=0)
    present = counts > 0
    sums = membership.T[present] @ probabilities  # (present, pool)
    return sums / counts[present, None], counts[present] / len(labels)


def private_loss(log_p: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    """L_S = −Σ_s P(s|B) H(q_s) (eq. 4), q_s the mean row of class s (eq. 5): −H(X'|S, B), an upper bound on −H(X'|S)."""
    means, shares = class_means(log_p.exp(), labels, n_classes)
    negative_entropy = (means * means.clamp_min(SMALLEST_PROBABILITY).log()).sum(dim=1)  # (present,)
    return (shares * negative_entropy).sum()


def spread(log_p: Tensor) -> Tensor:
    """H(X'|B), entropy of the batch's mean row: over how many donors releases spread. The paper bounds it by ln |pool|."""
    mean = log_p.exp().mean(dim=0)
    return -(mean * mean.clamp_min(SMALLEST_PROBABILITY).log()).sum()


def useful_loss(log_p: Tensor, labels: Tensor, donor_labels: Tensor, n_classes: int) -> Tensor:
    """L_U = ln|U| · mean of −ln P(U'=U|x) (eq. 6, 7): cross-entropy of the label that the substitute carries."""
    total = log_p.new_zeros(())
    for useful_class in range(n_classes):
        rows = labels == useful_class
        if rows.any():
            matching = log_p[rows][:, donor_labels == useful_class]
            total = total - torch.logsumexp(matching, dim=1).sum()
    return math.log(n_classes) * total / len(labels)


def general_loss(log_p: Tensor) -> Tensor:
    """L_X = mean row entropy H(X'|X, B) (eq. 8); ln P is finite, so a zero probability contributes an exact 0."""
    return -(log_p.exp() * log_p).sum(dim=1).mean()
