"""The PASS objective on a mini-batch, in nats; equation numbers are those of the paper (ICML 2025).

All terms take `log_p`, the (batch, pool) matrix of ln P(x'|x), and are to be minimised:

    L = Σ_i L_S(i) + λ Σ_j L_U(j) + μ L_X        (eq. 3)

The paper prints minus signs in eq. 3, but derives, and needs for its bound, the plus signs: L_U is a cross-entropy and L_X
an entropy. Its constant (eq. 10) counts the slack λ once; it is needed once per useful attribute.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

# Below the smallest class mean that float32 can hold, so it changes no value; it keeps ln 0 out of the gradient.
SMALLEST_PROBABILITY = 1e-30


def class_means(probabilities: Tensor, labels: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """(means (present, pool), shares (present,)): P(x'|S=s, batch) and P(S=s|batch) of the classes present."""
    membership = torch.nn.functional.one_hot(labels, n_classes).to(probabilities.dtype)  # (batch, classes)
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


def bound_constant(
    n_private: int, pool_size: int, useful_entropies: Sequence[float], useful_weight: float, general_weight: float
) -> float:
    """C (eq. 10, corrected) of the bound E[L] + C ≥ Σ I(X';S) − λ Σ I(X';U) − μ I(X';X) (eq. 9).

    It holds for μ ≤ the number of private attributes.
    """
    return (
        (n_private - general_weight) * math.log(pool_size)
        - useful_weight * sum(useful_entropies)
        + useful_weight * len(useful_entropies)
    )
