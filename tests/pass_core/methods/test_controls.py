"""Controls over the pool: any donor hides everything; a donor of the seen class keeps that class and no more."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from pass_core.channel.joint_law import channel_law, mutual_information
from pass_core.channel.substitution import ExcludingChannel, Exclusion
from pass_core.data import Attribute, Records
from pass_core.errors import ConfigError, MethodError
from pass_core.methods import random_donor, randomised_response, same_class_donor
from pass_core.methods.base import FittedChannel, Method, RecordMaker, ReleaseContext
from pass_core.methods.identity import unchanged
from pass_core.randomness import stream
from pass_core.training.context import TrainingContext
from pass_core.training.loop import TrainConfig
from tests.pass_core.methods.planted import S, U, attacker_advantage, planted, setting_of

SHAPE = (32,)
TRAIN, TEST = planted(SHAPE, 600), planted(SHAPE, 600, seed=1)
TRAINING = TrainConfig(epochs=15, batch_size=64, learning_rate=0.003)


def _fit(method: Method, config: object, setting: ReleaseContext | None = None) -> FittedChannel:
    fitted = method.fit(
        TRAIN, context=setting or setting_of(TRAIN), config=config, training=TRAINING, rng=stream(1, "fit"), run=TrainingContext()
    )
    assert isinstance(fitted, FittedChannel)
    return fitted


def _information(fitted: FittedChannel) -> dict[str, float]:
    law = channel_law(fitted.channel, TEST.features, TEST.labels, (S, U), rng=stream(1, "law"))
    return {name: mutual_information(joint) for name, joint in law.joint.items()}


def test_random_donor_hides_everything() -> None:
    fitted = _fit(random_donor.METHOD, random_donor.METHOD.config_type())
    assert max(_information(fitted).values()) < 1e-6
    assert attacker_advantage(fitted, TRAIN, TEST, S) < 0.2
    assert attacker_advantage(fitted, TRAIN, TEST, U) < 0.2
    drawn = fitted.transform(np.zeros((6000, *SHAPE), dtype=np.float32), stream(2, "t"))
    _, counts = np.unique(drawn[:, 0], return_counts=True)
    assert len(counts) == 60
    assert stats.chisquare(counts).pvalue > 0.01


def test_same_class_donor_keeps_the_useful_class_and_hides_the_private() -> None:
    fitted = _fit(same_class_donor.METHOD, same_class_donor.METHOD.config_type())
    information = _information(fitted)
    assert information["u"] > 0.8 * math.log(3)
    assert information["s"] < 0.005  # no donor is told from another of its class
    assert attacker_advantage(fitted, TRAIN, TEST, U) > 0.85
    assert attacker_advantage(fitted, TRAIN, TEST, S) < 0.2


def test_attacker_reads_both_classes_of_originals() -> None:
    """The control of the two tests above."""
    for attribute in (S, U):
        assert attacker_advantage(RecordMaker(unchanged, {}), TRAIN, TEST, attribute) > 0.85


def test_donors_of_the_seen_class_are_equally_likely() -> None:
    fitted = _fit(same_class_donor.METHOD, same_class_donor.METHOD.config_type())
    labels = setting_of(TRAIN).pool.labels["u"]
    for _, probabilities in fitted.channel.blocks(TEST.features):
        for row in probabilities:
            seen = labels[row > 0]
            assert len(set(seen)) == 1
            assert len(seen) == (labels == seen[0]).sum()
            assert row[row > 0] == pytest.approx(1 / len(seen))


def test_several_useful_attributes_are_kept_together() -> None:
    second = Attribute("v", ("a", "b"), "useful")
    x = TRAIN.features.copy()
    v = stream(3, "v").integers(0, 2, len(x))
    x[:, :8] += 3 * v[:, None]
    data = Records(x, {**TRAIN.labels, "v": v})
    rows = np.flatnonzero(~((data.labels["u"] == 2) & (v == 1)))[:80]  # the pool has no donor of that combination
    setting = dataclasses.replace(setting_of(data, attributes=(S, U, second)), pool=data.subset(rows))
    fitted = same_class_donor.METHOD.fit(
        data,
        context=setting,
        config=same_class_donor.METHOD.config_type(),
        training=TRAINING,
        rng=stream(1, "fit"),
        run=TrainingContext(),
    )
    pool = setting.pool.labels
    for block, probabilities in fitted.channel.blocks(x):
        guessed = probabilities.argmax(axis=1)
        possible = ~((data.labels["u"][block] == 2) & (v[block] == 1))
        both = (pool["u"][guessed] == data.labels["u"][block]) & (pool["v"][guessed] == v[block])
        assert both[possible].mean() > 0.9
        assert probabilities.sum(axis=1) == pytest.approx(np.ones(len(probabilities)), abs=1e-4)


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_randomised_response_tells_the_truth_as_often_as_it_says(epsilon: float) -> None:
    fitted = _fit(randomised_response.METHOD, randomised_response.RandomisedResponseConfig(epsilon))
    honest = _fit(same_class_donor.METHOD, same_class_donor.METHOD.config_type())
    labels = setting_of(TRAIN).pool.labels["u"]
    probabilities = next(iter(fitted.channel.blocks(TEST.features)))[1]
    seen = labels[next(iter(honest.channel.blocks(TEST.features)))[1].argmax(axis=1)]
    ratio = (probabilities.max(axis=0) / probabilities.min(axis=0)).max()
    assert ratio == pytest.approx(math.exp(epsilon), rel=1e-4)  # ε-local differential privacy, and no less
    features_of = {row.tobytes(): label for row, label in zip(setting_of(TRAIN).pool.features, labels, strict=True)}
    counts = np.zeros(3)
    for draw in range(20):
        shown = np.array([features_of[row.tobytes()] for row in fitted.transform(TEST.features, stream(draw, "rr"))])
        counts += np.bincount((shown - seen) % 3, minlength=3)
    truth = math.exp(epsilon) / (math.exp(epsilon) + 2)
    assert stats.chisquare(counts, counts.sum() * np.array([truth, (1 - truth) / 2, (1 - truth) / 2])).pvalue > 0.01


def test_forbidden_donors_are_never_drawn() -> None:
    fitted = _fit(same_class_donor.METHOD, same_class_donor.METHOD.config_type())
    own = Exclusion(np.arange(60), np.arange(60))
    pool = setting_of(TRAIN).pool
    for _, probabilities in ExcludingChannel(fitted.channel, own).blocks(pool.features):
        assert (np.diag(probabilities) == 0).all()
        assert probabilities.sum(axis=1) == pytest.approx(np.ones(60), abs=1e-4)


@pytest.mark.parametrize("method", [same_class_donor, randomised_response])
def test_without_a_useful_attribute_there_is_no_class_to_keep(method: object) -> None:
    with pytest.raises(MethodError, match="expected at least one useful attribute"):
        _fit(method.METHOD, method.METHOD.config_type(), setting_of(TRAIN, attributes=(S,)))


def test_another_pool_is_refused() -> None:
    fitted = _fit(same_class_donor.METHOD, same_class_donor.METHOD.config_type())
    with pytest.raises(MethodError, match="the model's 60 donors, found 59"):
        same_class_donor.METHOD.from_state_dict(fitted.state_dict(), setting_of(TRAIN, 59), same_class_donor.METHOD.config_type())


def test_epsilon_must_be_positive() -> None:
    with pytest.raises(ConfigError, match="epsilon"):
        randomised_response.RandomisedResponseConfig(0.0)
