"""The objective with its own gradient, against the terms one by one under autograd in float64."""

import dataclasses
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from pass_core.methods._pass_objective import ROWS_AT_ONCE, Objective
from tests.pass_core.methods.reference_losses import general_loss, log_probabilities, private_loss, spread, useful_loss


def _case(
    batch: int,
    pool: int,
    seed: int,
    private: tuple[int, ...],
    useful: tuple[int, ...],
    dtype: torch.dtype,
    temperature: float,
    hiding: tuple[float, float] = (1.0, 1.0),
) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor], list[Tensor], Objective]:
    """f, g, labels, donors' labels, and the objective; every useful class asked for has a donor."""
    generator = torch.Generator().manual_seed(seed)
    f = torch.randn(batch, 6, generator=generator, dtype=dtype, requires_grad=True)
    g = torch.randn(pool, 6, generator=generator, dtype=dtype, requires_grad=True)
    labels = [torch.randint(n, (batch,), generator=generator) for n in private]
    donor_labels = [torch.randint(n, (pool,), generator=generator) for n in useful]
    wanted = [donors[torch.randint(pool, (batch,), generator=generator)] for donors in donor_labels]
    indicators = tuple(F.one_hot(donors, n).T.to(dtype) for donors, n in zip(donor_labels, useful, strict=True))
    parts = Objective(
        private_classes=private,
        useful_donors=indicators,
        useful_weight=1.3,
        general_weight=0.4,
        temperature=temperature,
        private_weight=hiding[0],
        spread_weight=hiding[1],
    )
    return f, g, labels, wanted, donor_labels, parts


def _one_by_one(
    f: Tensor, g: Tensor, labels: list[Tensor], wanted: list[Tensor], donor_labels: list[Tensor], parts: Objective
) -> tuple[Tensor, Tensor]:
    log_p = log_probabilities(f, g, parts.temperature)
    terms = [private_loss(log_p, s, n) for s, n in zip(labels, parts.private_classes, strict=True)]
    useful = [
        useful_loss(log_p, u, donors, len(indicators))
        for u, donors, indicators in zip(wanted, donor_labels, parts.useful_donors, strict=True)
    ]
    general = general_loss(log_p)
    marginal = spread(log_p)
    informations = [marginal + term for term in terms]  # I(X';S) in the batch
    total = parts.general_weight * general + parts.useful_weight * sum(useful, start=torch.zeros(()))
    total = total + parts.private_weight * sum(informations, start=torch.zeros(()))
    total = total - parts.spread_weight * len(terms) * marginal
    return total, torch.stack([*terms, *useful, marginal, general]).detach()


@settings(max_examples=60, deadline=None)
@given(
    batch=st.integers(1, 2 * ROWS_AT_ONCE + 3),
    pool=st.integers(2, 20),
    private=st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple),
    useful=st.lists(st.integers(2, 4), min_size=1, max_size=2).map(tuple),
    temperature=st.sampled_from([0.02, 0.3, 1.0]),
    hiding=st.sampled_from([(1.0, 1.0), (3.0, 1.0), (2.0, 0.0), (0.5, 1.0)]),
    seed=st.integers(0, 10_000),
)
def test_value_terms_and_gradients_equal_the_terms_one_by_one(
    batch: int,
    pool: int,
    private: tuple[int, ...],
    useful: tuple[int, ...],
    temperature: float,
    hiding: tuple[float, float],
    seed: int,
) -> None:
    f, g, labels, wanted, donor_labels, parts = _case(batch, pool, seed, private, useful, torch.float64, temperature, hiding)
    expected, expected_terms = _one_by_one(f, g, labels, wanted, donor_labels, parts)
    expected_gradients = torch.autograd.grad(expected, (f, g))
    total, terms = parts(f, g, labels, wanted)
    gradients = torch.autograd.grad(total * 2, (f, g))  # the factor checks that what comes from above is used
    assert total.item() == pytest.approx(expected.item(), abs=1e-9)
    assert terms == pytest.approx(expected_terms, abs=1e-9)
    for ours, reference in zip(gradients, expected_gradients, strict=True):
        assert ours / 2 == pytest.approx(reference, abs=1e-8, rel=1e-6)


@pytest.mark.parametrize("batch", [1, 40, ROWS_AT_ONCE + 5])
@pytest.mark.parametrize("private", [(3,), (2, 3)])
def test_known_attributes_add_the_information_given_them_and_its_gradient(batch: int, private: tuple[int, ...]) -> None:
    f, g, labels, wanted, _, parts = _case(batch, 9, 4, private, (2,), torch.float64, 0.3, (3.0, 1.0))
    generator = torch.Generator().manual_seed(5)
    classes = (2, 4)  # a class of two may lack in a small batch
    known = [torch.randint(n, (batch,), generator=generator) for n in classes]
    plain, plain_terms = parts(f, g, labels, wanted)
    rows = log_probabilities(f, g, 0.3).exp()
    informations = []
    for s, n in zip(labels, private, strict=True):
        for a in known:
            found = rows.new_zeros(())
            for label in a.unique():
                inside = a == label
                logs = rows[inside].log()
                within = private_loss(logs, s[inside], n) + spread(logs)  # I(X';S) among the records of one class of A
                found = found + inside.double().mean() * within
            informations.append(found)
    expected_total = plain + 0.7 * torch.stack(informations).sum()
    expected = torch.autograd.grad(expected_total, (f, g))
    hiding = dataclasses.replace(parts, known_classes=classes, known_weight=0.7)
    total, terms = hiding(f, g, labels, wanted, known=known)
    assert total.item() == pytest.approx(expected_total.item())
    assert terms.tolist() == pytest.approx([*plain_terms.tolist(), *(each.item() for each in informations)], abs=1e-12)
    for ours, reference in zip(torch.autograd.grad(total, (f, g)), expected, strict=True):
        assert ours == pytest.approx(reference, abs=1e-9)


@pytest.mark.parametrize("batch", [1, ROWS_AT_ONCE + 5])
def test_a_teacher_adds_its_cross_entropy_and_nothing_else(batch: int) -> None:
    f, g, labels, wanted, _, parts = _case(batch, 9, 4, (3,), (2,), torch.float64, 0.3)
    teacher = torch.rand(batch, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    teacher /= teacher.sum(dim=1, keepdim=True)
    plain, plain_terms = parts(f, g, labels, wanted)
    expected_term = -(teacher * log_probabilities(f, g, 0.3)).sum(dim=1).mean()
    expected = torch.autograd.grad(plain + 0.7 * expected_term, (f, g))
    taught = dataclasses.replace(parts, teacher_weight=0.7)
    total, terms = taught(f, g, labels, wanted, teacher=teacher)
    assert total.item() == pytest.approx((plain + 0.7 * expected_term).item())
    assert terms.tolist() == pytest.approx([*plain_terms.tolist(), expected_term.item()])
    for ours, reference in zip(torch.autograd.grad(total, (f, g)), expected, strict=True):
        assert ours == pytest.approx(reference, abs=1e-9)


def test_saturated_rows_keep_a_true_gradient_in_float32() -> None:
    """At τ = 0.001 a record's own class has a probability far below what float32 can hold."""
    f, g, labels, wanted, donor_labels, parts = _case(40, 12, 3, (3,), (2,), torch.float32, 0.001)
    precise = [t.detach().double().requires_grad_() for t in (f, g)]
    parts64 = Objective(
        private_classes=parts.private_classes,
        useful_donors=tuple(d.double() for d in parts.useful_donors),
        useful_weight=1.3,
        general_weight=0.4,
        temperature=parts.temperature,
    )
    expected, _ = _one_by_one(*precise, labels, wanted, donor_labels, parts64)
    reference = torch.autograd.grad(expected, precise)
    log_p = log_probabilities(f, g, parts.temperature)
    own = [math.exp(v) for v in (log_p.exp() @ parts.useful_donors[0].T).gather(1, wanted[0][:, None]).log()[:, 0].tolist()]
    assert min(own) == 0.0  # the control: without care the logarithm would be of nothing
    total, terms = parts(f, g, labels, wanted)
    gradients = torch.autograd.grad(total, (f, g))
    assert total.item() == pytest.approx(expected.item(), rel=1e-3)
    assert torch.isfinite(terms).all()
    for ours, exact in zip(gradients, reference, strict=True):
        assert torch.isfinite(ours).all()
        assert (ours.double() - exact).norm() < 2e-3 * exact.norm()


class _Precisions(TorchDispatchMode):
    """Notes, of every product of two float32 matrices, its shape and whether its inputs might be rounded."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[tuple[int, ...], set[str]] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if function is torch.ops.aten.mm.default:
            self.found.setdefault(tuple(result.shape), set()).add(torch.get_float32_matmul_precision())
        return result


@pytest.mark.parametrize("fast", [False, True])
def test_only_the_products_of_embeddings_and_donors_round_their_inputs(fast: bool) -> None:
    f, g, labels, wanted, _, parts = _case(40, 12, 3, (3,), (2,), torch.float32, 0.05)
    with _Precisions() as seen:
        dataclasses.replace(parts, fast=fast)(f, g, labels, wanted)[0].backward()
    of_embeddings = {(40, 12), (40, 6), (12, 6)}  # scores, and the gradients of both sides
    assert of_embeddings < seen.found.keys()
    for shape, precisions in seen.found.items():
        assert precisions == {"medium" if fast and shape in of_embeddings else "highest"}, shape
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize("temperature", [0.01, 0.1])
def test_fast_products_keep_value_and_gradient_within_bfloat16(temperature: float) -> None:
    """At the paper's size of embeddings. Inputs rounded to bfloat16 changed a gradient by 0.6 % of its length."""
    generator = torch.Generator().manual_seed(2)
    f, g = (torch.randn(n, 512, generator=generator, requires_grad=True) for n in (300, 200))
    *_, labels, wanted, _, parts = _case(300, 200, 3, (3,), (4,), torch.float32, temperature)
    value, _ = parts(f, g, labels, wanted)
    exact = torch.autograd.grad(value, (f, g))
    fast_value, _ = dataclasses.replace(parts, fast=True)(f, g, labels, wanted)
    assert fast_value.item() == pytest.approx(value.item(), abs=0.01)
    for ours, reference in zip(torch.autograd.grad(fast_value, (f, g)), exact, strict=True):
        assert float((ours - reference).norm() / reference.norm()) < 2**-5
