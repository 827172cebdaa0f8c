"""Loss terms against slow float64 references, finite differences and the theorem they come from."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pass_core.channel.joint_law import mutual_information
from pass_core.data import one_hot
from pass_core.methods._pass_objective import bound_constant
from tests.pass_core.methods.reference_losses import general_loss, log_probabilities, private_loss, useful_loss


def _channel(batch: int, pool: int, seed: int, scale: float = 3.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.log_softmax(scale * torch.randn(batch, pool, generator=generator, dtype=torch.float64), dim=1)


def _slow_private(p: np.ndarray, labels: list[int]) -> float:
    total = 0.0
    for s in set(labels):
        rows = [p[i] for i in range(len(p)) if labels[i] == s]
        for d in range(p.shape[1]):
            q = sum(row[d] for row in rows) / len(rows)
            total += len(rows) / len(p) * (q * math.log(q) if q > 0 else 0.0)
    return total


def _slow_useful(p: np.ndarray, labels: list[int], donors: list[int], n_classes: int) -> float:
    gains = [math.log(sum(p[i][d] for d in range(len(donors)) if donors[d] == labels[i])) for i in range(len(p))]
    return -math.log(n_classes) * sum(gains) / len(p)


@settings(max_examples=60, deadline=None)
@given(batch=st.integers(1, 12), pool=st.integers(3, 20), n_classes=st.integers(1, 5), seed=st.integers(0, 10_000))
def test_terms_equal_slow_references(batch: int, pool: int, n_classes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    log_p = _channel(batch, pool, seed)
    p = log_p.exp().numpy()
    private = rng.integers(0, n_classes, batch)
    donors = np.concatenate([np.arange(min(n_classes, pool)), rng.integers(0, n_classes, max(pool - n_classes, 0))])
    useful = rng.choice(donors, batch)  # every class asked for has a donor; classes may be absent from the batch
    assert private_loss(log_p, torch.tensor(private), n_classes).item() == pytest.approx(_slow_private(p, list(private)))
    assert useful_loss(log_p, torch.tensor(useful), torch.tensor(donors), n_classes).item() == pytest.approx(
        _slow_useful(p, list(useful), list(donors), n_classes), abs=1e-12
    )
    entropy = -sum(float(v) * math.log(v) for v in p.ravel()) / batch
    assert general_loss(log_p).item() == pytest.approx(entropy)


def test_gradients_equal_finite_differences() -> None:
    generator = torch.Generator().manual_seed(1)
    embedded = torch.randn(3, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    donors = torch.randn(4, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    labels, donor_labels = torch.tensor([0, 1, 0]), torch.tensor([0, 1, 1, 0])

    def total(f: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        log_p = log_probabilities(f, g, temperature=0.5)
        return private_loss(log_p, labels, 2) + useful_loss(log_p, labels, donor_labels, 2) + 0.3 * general_loss(log_p)

    assert torch.autograd.gradcheck(total, (embedded, donors))


def test_saturated_float32_logits_give_finite_gradients() -> None:
    """At τ = 0.01 logits span 200 nats and float32 probabilities underflow to exact zeros."""
    embedded = torch.eye(4, requires_grad=True)
    donors = torch.cat([torch.eye(4), -torch.eye(4)])
    log_p = log_probabilities(embedded, donors, 0.01)
    assert (log_p.exp() == 0).any()
    labels = torch.tensor([0, 0, 1, 1])
    loss = private_loss(log_p, labels, 2) + useful_loss(log_p, labels, torch.tensor([0, 1] * 4), 2) + general_loss(log_p)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(embedded.grad).all()


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 100_000), n_useful=st.integers(1, 3), batches=st.integers(1, 4))
def test_loss_plus_constant_bounds_the_objective(seed: int, n_useful: int, batches: int) -> None:
    """E[L over batches] + C ≥ Σ I(X';S) − λ Σ I(X';U) − μ I(X';X) for any channel (eq. 9 with the corrected C)."""
    rng = np.random.default_rng(seed)
    n, pool, weight, general_weight = 8 * batches, 16, float(rng.uniform(0.1, 3)), float(rng.uniform(0, 1))
    log_p = _channel(n, pool, seed, scale=float(rng.uniform(0.1, 6)))
    p = log_p.exp().numpy()
    private = rng.integers(0, 2, n)
    useful = [rng.integers(0, 2, n) for _ in range(n_useful)]
    donors = [np.concatenate([[0, 1], rng.integers(0, 2, pool - 2)]) for _ in range(n_useful)]

    def information(labels: np.ndarray) -> float:
        return mutual_information(one_hot(labels, 2).T @ p / n)

    marginal = p.mean(axis=0)
    record_information = float(-(marginal * np.log(marginal)).sum() - (-(p * np.log(p)).sum(axis=1)).mean())
    objective = information(private) - weight * sum(map(information, useful)) - general_weight * record_information
    order = rng.permutation(n).reshape(batches, -1)
    estimates = []
    for rows in order:
        part = log_p[rows]
        estimate = private_loss(part, torch.tensor(private[rows]), 2) + general_weight * general_loss(part)
        for u, d in zip(useful, donors, strict=True):
            estimate = estimate + weight * useful_loss(part, torch.tensor(u[rows]), torch.tensor(d), 2)
        estimates.append(estimate.item())
    entropies = [-sum(c * math.log(c) for c in np.bincount(u) / n if c > 0) for u in useful]
    constant = bound_constant(1, pool, entropies, (weight, general_weight))
    assert np.mean(estimates) + constant >= objective - 1e-9
