"""Transport: equal donors for every private class, little cost, the useful class kept; and what breaks without it."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor

from pass_core.channel.joint_law import channel_law, mutual_information, rule_accuracy
from pass_core.channel.substitution import ExcludingChannel, Exclusion
from pass_core.data import Attribute, FloatArray, IntArray, Records, combinations
from pass_core.errors import ConfigError, MethodError
from pass_core.methods.base import FittedChannel, ReleaseContext
from pass_core.methods.transport.channel import Seen, TransportChannel, TransportConfig
from pass_core.methods.transport_substitution import METHOD
from pass_core.randomness import stream
from pass_core.training.context import TrainingContext
from pass_core.training.epochs import Epoch
from pass_core.training.loop import TrainConfig

TRAINING = TrainConfig(epochs=30, batch_size=128, learning_rate=0.003)


def _data(n: int, seed: int, shape: tuple[int, ...] = (12,)) -> Records:
    """A private class of unequal shares, a useful one, and a hidden style that nobody names, all readable."""
    rng = stream(seed, "transport")
    labels = {"s": (rng.random(n) < 0.3).astype(np.int64), "u": rng.integers(0, 3, n), "style": rng.integers(0, 4, n)}
    x = rng.normal(0, 0.3, (n, *shape)).astype(np.float32)
    flat = x.reshape(n, -1)
    flat[:, 0] += 3 * labels["s"]
    flat[:, 1:4] += 3 * np.eye(3)[labels["u"]]
    flat[:, 4:8] += 3 * np.eye(4)[labels["style"]]
    return Records(x, labels)


ATTRIBUTES = (
    Attribute("s", ("a", "b"), "private"),
    Attribute("u", ("a", "b", "c"), "useful"),
    Attribute("style", ("a", "b", "c", "d"), "general"),
)


def _setting(data: Records, donors: int = 200) -> ReleaseContext:
    return ReleaseContext(
        ATTRIBUTES, Records(data.features[:donors], {k: v[:donors] for k, v in data.labels.items()}), torch.device("cpu")
    )


def _fit(data: Records, config: TransportConfig, told: list[Epoch] | None = None) -> FittedChannel:
    epochs: list[Epoch] = [] if told is None else told
    return METHOD.fit(
        data, context=_setting(data), config=config, training=TRAINING, rng=stream(1, "fit"), run=TrainingContext(epochs.append)
    )


def _laws(fitted: FittedChannel, train: Records, test: Records) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    laws = [channel_law(fitted.channel, d.features, d.labels, ATTRIBUTES, rng=stream(2, "law")) for d in (train, test)]
    return dict(laws[0].joint), dict(laws[1].joint)


@pytest.fixture(scope="module")
def solved() -> tuple[FittedChannel, Records, Records, list[Epoch]]:
    train, test = _data(1500, 1), _data(600, 2)
    told: list[Epoch] = []
    return _fit(train, TransportConfig(epsilon=0.05, rounds=200, tolerance=0.01), told), train, test, told


def test_every_private_class_has_the_same_donors(solved: tuple[FittedChannel, Records, Records, list[Epoch]]) -> None:
    fitted, train, test, told = solved
    joint, test_joint = _laws(fitted, train, test)
    marginals = joint["s"] / joint["s"].sum(axis=1, keepdims=True)
    assert np.abs(marginals[0] - marginals[1]).sum() / 2 < 0.02
    assert mutual_information(joint["s"]) <= 1e-3
    assert told[-1].terms["total"] <= 0.01  # converged, and said so
    assert told[-1].number == told[-1].total < 200
    assert told[0].terms["private_information"] > 0.1 > told[-1].terms["private_information"]
    majority = max(np.bincount(test.labels["s"])) / len(test)
    assert rule_accuracy(joint["s"], test_joint["s"]) <= majority + 0.03


def test_useful_class_and_unnamed_style_survive(solved: tuple[FittedChannel, Records, Records, list[Epoch]]) -> None:
    fitted, train, test, _ = solved
    joint, test_joint = _laws(fitted, train, test)
    assert rule_accuracy(joint["u"], test_joint["u"]) > 0.95
    assert rule_accuracy(joint["style"], test_joint["style"]) > 0.9


def test_without_scaling_the_private_class_is_plain_to_see() -> None:
    """The control: one round leaves the potentials at zero, so every record goes to its likest donor."""
    train, test = _data(1500, 1), _data(600, 2)
    joint, test_joint = _laws(_fit(train, TransportConfig(epsilon=0.05, rounds=1)), train, test)
    assert rule_accuracy(joint["s"], test_joint["s"]) > 0.85  # guessing gives 0.7
    assert mutual_information(joint["s"]) > 0.3


def _cost(fitted: FittedChannel, data: Records, probabilities: FloatArray) -> float:
    """Mean expected 1 − cos(φ(x), φ(x'))."""
    channel = fitted.channel
    similarity = channel.neighbourhoods(torch.from_numpy(data.features)) @ channel.donors.T
    return float((torch.from_numpy(probabilities) * (1 - similarity)).sum(dim=1).mean())


def test_costs_less_than_any_donor_of_the_useful_class(solved: tuple[FittedChannel, Records, Records, list[Epoch]]) -> None:
    fitted, train, _, _ = solved
    donors = fitted.channel.useful_donors[0].numpy()
    same_class = (train.labels["u"][:, None] == donors[None, :]).astype(np.float32)
    same_class /= same_class.sum(axis=1, keepdims=True)
    ours = np.concatenate([p for _, p in fitted.channel.blocks(train.features)])
    assert _cost(fitted, train, ours) < 0.8 * _cost(fitted, train, same_class)


def test_several_private_attributes_are_hidden_together() -> None:
    """Also a combination: each attribute alone could be hidden while the two together tell."""
    train = _data(1500, 1)
    second = Attribute("style", ("a", "b", "c", "d"), "private")
    setting = ReleaseContext((ATTRIBUTES[0], second, ATTRIBUTES[1]), _setting(train).pool, torch.device("cpu"))
    config = TransportConfig(epsilon=0.1, rounds=200, tolerance=0.001)
    fitted = METHOD.fit(train, context=setting, config=config, training=TRAINING, rng=stream(1, "fit"), run=TrainingContext())
    both = combinations([train.labels["s"], train.labels["style"]])
    joined = Attribute("both", tuple("abcdefgh"), "private")
    law = channel_law(fitted.channel, train.features, {"both": both}, (joined,), rng=stream(2, "law"))
    assert mutual_information(law.joint["both"]) < 5e-3


def test_combinations_number_only_what_occurs() -> None:
    first: IntArray = np.array([0, 0, 5, 5, 0])
    second: IntArray = np.array([1, 2, 1, 1, 2])
    assert combinations([first, second]).tolist() == [0, 1, 2, 2, 1]


def test_the_larger_class_keeps_the_more_donors_the_more_it_weighs() -> None:
    train = _data(1500, 1)
    shares = {}
    for majority in (0.0, 1.0, 2.0):
        fitted = _fit(train, TransportConfig(epsilon=0.05, rounds=100, majority=majority))
        joint = channel_law(fitted.channel, train.features, train.labels, ATTRIBUTES, rng=stream(2, "law")).joint["s"]
        shares[majority] = joint.sum(axis=0)[fitted_labels(train) == 1].sum()
    assert shares[0.0] > shares[1.0] + 0.05 > shares[2.0] + 0.05


def test_rounds_on_parts_of_the_records_equalise_all_of_them() -> None:
    """What millions of records need: no round sees them all. One such round, undamped, would not do."""
    train = _data(1500, 3)
    config = TransportConfig(epsilon=0.1, rounds=60, tolerance=0.0001, records_per_round=300)
    joint, _ = _laws(_fit(train, config), train, train)
    assert mutual_information(joint["s"]) < 0.01
    unscaled, _ = _laws(_fit(train, dataclasses.replace(config, rounds=1)), train, train)
    assert mutual_information(unscaled["s"]) > 0.2


@pytest.mark.parametrize(("records_per_round", "looked_at"), [(1500, {1500}), (300, {300})])
def test_of_many_records_no_more_than_a_block_is_looked_at(
    records_per_round: int, looked_at: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """φ of a million records would take as much memory as their features; of few, it is computed once."""
    train, sizes = _data(1500, 3), list[int]()
    look_at = TransportChannel.look_at

    def noted(channel: TransportChannel, features: Tensor, exclusion: Exclusion | None = None) -> Seen:
        sizes.append(len(features))
        return look_at(channel, features, exclusion)

    monkeypatch.setattr(TransportChannel, "look_at", noted)
    config = TransportConfig(epsilon=0.1, rounds=4, tolerance=1e-9, records_per_round=records_per_round)
    setting = dataclasses.replace(_setting(train), exclusion=Exclusion(np.arange(1500), np.arange(200)))
    METHOD.fit(train, context=setting, config=config, training=TRAINING, rng=stream(1, "fit"), run=TrainingContext())
    assert set(sizes) == looked_at
    assert len(sizes) == (1 if records_per_round == 1500 else 4)


@pytest.mark.parametrize("solved_with_the_rule", [True, False])
def test_potentials_are_solved_for_the_rule_of_the_release(solved_with_the_rule: bool) -> None:
    """Records that may not meet their own person: the classes are equal under that rule only if it was known."""
    train = _data(1200, 4)
    persons = np.arange(1200) % 200  # every one has a donor, and one class
    train.labels["s"][:] = np.tile(train.labels["s"][:200], 6)
    flat = train.features.reshape(1200, -1)
    flat[:, 8:] += stream(5, "voices").normal(0, 2, (200, 4)).astype(np.float32)[persons]
    flat[:, 0] = train.labels["s"] + flat[:, 8] / 2
    exclusion = Exclusion(persons, persons[:200])
    setting = dataclasses.replace(_setting(train), exclusion=exclusion if solved_with_the_rule else None)
    config = TransportConfig(epsilon=0.02, rounds=200, tolerance=0.003)
    fitted = METHOD.fit(train, context=setting, config=config, training=TRAINING, rng=stream(1, "fit"), run=TrainingContext())
    channel = ExcludingChannel(fitted.channel, exclusion)
    law = channel_law(channel, train.features, train.labels, ATTRIBUTES, rng=stream(2, "law"))
    assert (mutual_information(law.joint["s"]) <= 0.002) == solved_with_the_rule


def test_a_rule_that_leaves_no_donor_is_refused() -> None:
    train = _data(50, 1)
    setting = dataclasses.replace(_setting(train, 5), exclusion=Exclusion(np.zeros(50, np.int64), np.zeros(5, np.int64)))
    with pytest.raises(MethodError, match="expected a donor for every record"):
        METHOD.fit(
            train,
            context=setting,
            config=TransportConfig(),
            training=TrainConfig(1, 16),
            rng=stream(1, "fit"),
            run=TrainingContext(),
        )


def fitted_labels(train: Records) -> IntArray:
    """Private class of the donors."""
    return train.labels["s"][:200]


def test_settings_and_roles_are_checked() -> None:
    with pytest.raises(ConfigError, match="epsilon: expected above 0"):
        TransportConfig(epsilon=0)
    with pytest.raises(ConfigError, match="rounds: expected at least 1"):
        TransportConfig(rounds=0)
    data = _data(100, 1)
    setting = ReleaseContext(ATTRIBUTES[1:], _setting(data, 20).pool, torch.device("cpu"))
    with pytest.raises(MethodError, match=r"at least one (private|useful) attribute"):
        METHOD.fit(data, context=setting, config=TransportConfig(), training=TRAINING, rng=stream(1, "f"), run=TrainingContext())
