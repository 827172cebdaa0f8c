"""The exact attacker against brute force and hand-made cases."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pass_core.channel.joint_law import channel_law, mutual_information, plug_in_accuracy, rule_accuracy, substitution_confusion
from pass_core.channel.substitution import SubstitutionChannel
from pass_core.data import Attribute, one_hot
from pass_core.randomness import stream

TABLE = np.array([[0.3, 0.0, 0.2], [0.1, 0.4, 0.0]])  # P(A=a, X'=d)


def test_hand_case() -> None:
    assert plug_in_accuracy(TABLE) == pytest.approx(0.3 + 0.4 + 0.2)
    expected = 0.3 * np.log(0.3 / (0.5 * 0.4)) + 0.2 * np.log(0.2 / (0.5 * 0.2))
    expected += 0.1 * np.log(0.1 / (0.5 * 0.4)) + 0.4 * np.log(0.4 / (0.5 * 0.4))
    assert mutual_information(TABLE) == pytest.approx(expected)
    assert substitution_confusion(TABLE, np.array([0, 1, 1])) == pytest.approx(np.array([[0.6, 0.4], [0.2, 0.8]]))


def test_extremes() -> None:
    leaking = np.eye(3) / 3
    assert plug_in_accuracy(leaking) == pytest.approx(1)
    assert mutual_information(leaking) == pytest.approx(np.log(3))
    private = np.outer([0.7, 0.3], [0.2, 0.5, 0.3])
    assert plug_in_accuracy(private) == pytest.approx(0.7)
    assert mutual_information(private) == pytest.approx(0, abs=1e-12)


def test_rule_gives_unseen_donors_the_majority() -> None:
    learnt = np.array([[0.6, 0.0, 0.0], [0.0, 0.4, 0.0]])  # donor 2 was never seen
    scored = np.array([[0.1, 0.1, 0.3], [0.1, 0.2, 0.2]])
    assert rule_accuracy(learnt, scored) == pytest.approx(0.1 + 0.2 + 0.3)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10_000), n_classes=st.integers(1, 4), pool=st.integers(1, 6))
def test_no_rule_beats_the_plug_in_figure(seed: int, n_classes: int, pool: int) -> None:
    rng = np.random.default_rng(seed)
    table = rng.dirichlet(np.full(n_classes * pool, 0.3)).reshape(n_classes, pool)
    other = rng.dirichlet(np.full(n_classes * pool, 0.3)).reshape(n_classes, pool)
    best = max(
        sum(table[rule[d], d] for d in range(pool))
        for rule in np.stack(np.meshgrid(*[range(n_classes)] * pool), -1).reshape(-1, pool)
    )
    assert plug_in_accuracy(table) == pytest.approx(best)
    assert rule_accuracy(other, table) <= plug_in_accuracy(table) + 1e-12
    assert rule_accuracy(table, table) == pytest.approx(plug_in_accuracy(table))
    assert 0 <= mutual_information(table) <= np.log(max(n_classes, 1)) + 1e-9


def test_channel_law_equals_the_probabilities() -> None:
    rng = stream(1, "law")
    generator = torch.Generator().manual_seed(1)
    channel = SubstitutionChannel(torch.nn.Identity(), torch.randn(5, 4, generator=generator), 0.3)
    x = rng.normal(size=(40, 4)).astype(np.float32)
    labels = {"a": rng.integers(0, 3, 40)}
    law = channel_law(channel, x, labels, (Attribute("a", ("x", "y", "z"), "private"),), rng=rng, n_draws=4000)
    p = np.concatenate([p for _, p in channel.blocks(x)]).astype(np.float64)
    assert law.joint["a"] == pytest.approx(one_hot(labels["a"], 3).T @ p / 40, abs=1e-7)
    assert law.joint["a"].sum(axis=0) == pytest.approx(p.mean(axis=0), abs=1e-6)
    entropy = float(-(p * np.log(p)).sum(axis=1).mean())
    assert law.row_entropy == pytest.approx(entropy, abs=1e-6)
    marginal = p.mean(axis=0)
    assert law.record_information == pytest.approx(-(marginal * np.log(marginal)).sum() - entropy, abs=1e-6)
    # 4,000 draws of each record: shares within 5 standard deviations (0.04) of P.
    shares = np.stack([(law.draws == d).mean(axis=0) for d in range(5)], axis=1)
    assert np.abs(shares - p).max() < 0.04
