"""PASS's own settings: records of any scale, and donors' embeddings that can turn."""

from typing import Any

import numpy as np
import pytest
import torch

from pass_core.channel.joint_law import mutual_information
from pass_core.data import Attribute, FloatArray, Records
from pass_core.methods.base import FittedChannel, ReleaseContext
from pass_core.methods.pass_substitution import METHOD, PassConfig
from pass_core.randomness import stream
from pass_core.training.context import TrainingContext
from pass_core.training.epochs import Epoch
from pass_core.training.loop import TrainConfig

ATTRIBUTES = (Attribute("s", ("a", "b"), "private"), Attribute("u", ("a", "b", "c"), "useful"))


def _records(shape: tuple[int, ...]) -> Records:
    rng = stream(1, "records")
    s, u = rng.integers(0, 2, 256), rng.integers(0, 3, 256)
    features = rng.normal(size=(256, *shape))
    features[:, 0] += 2 * s.reshape(-1, *[1] * (len(shape) - 1))
    features[:, 1] += 2 * u.reshape(-1, *[1] * (len(shape) - 1))
    return Records(features.astype(np.float32), {"s": s, "u": u})


def _channel_rows(data: Records, epochs: int = 8, **settings: float) -> FloatArray:
    context = ReleaseContext(ATTRIBUTES, data.subset(np.arange(64)), torch.device("cpu"))
    training = TrainConfig(epochs=epochs, batch_size=64, learning_rate=0.002)
    config = PassConfig(embedding_size=16, **settings)
    fitted = METHOD.fit(
        data, context=context, config=config, training=training, rng=stream(1, "fit"), run=TrainingContext(lambda _: None)
    )
    assert fitted.channel is not None
    return np.concatenate([rows for _, rows in fitted.channel.blocks(data.features)])


@pytest.mark.parametrize("shape", [(6,), (4, 32)])
def test_the_scale_of_the_records_does_not_matter(shape: tuple[int, ...]) -> None:
    data = _records(shape)
    scale = stream(1, "scale").uniform(0.5, 2, (shape[0], *[1] * (len(shape) - 1)))  # another one for every feature or channel
    scaled = Records((64 * scale * data.features + 8).astype(np.float32), data.labels)
    differences = np.abs(_channel_rows(data) - _channel_rows(scaled)).sum(axis=1) / 2
    assert differences.mean() < 0.02  # rounding grows over the epochs


def test_short_embeddings_of_donors_turn_further() -> None:
    """What a donor stands for is learnt: with long vectors a few epochs leave it where it started."""
    data = _records((6,))
    u, donors_u = data.labels["u"], data.labels["u"][:64]
    kept = {
        length: float((rows * (u[:, None] == donors_u)).sum(axis=1).mean())
        for length in (0.02, 20.0)
        for rows in [_channel_rows(data, epochs=3, donor_length=length)]
    }
    assert kept[0.02] > kept[20.0] + 0.02


SPEAKERS = (*ATTRIBUTES, Attribute("age", tuple("abcdef"), "general"))
N_SPEAKERS, CLIPS, DONORS = 12, 960, 96


def _speakers() -> Records:
    """Twelve voices, a man and a woman of each age: whose voice it is says the gender to people who know the age."""
    rng = stream(2, "speakers")
    person, u = np.arange(CLIPS) % N_SPEAKERS, rng.integers(0, 3, CLIPS)
    features = rng.normal(0, 0.4, (CLIPS, 12))
    features[:, :8] += rng.normal(0, 2, (N_SPEAKERS, 8))[person]
    features[:, 8:11] += 2 * np.eye(3)[u]
    return Records(features.astype(np.float32), {"s": person % 2, "u": u, "age": person // 2})


def _fit_speakers(known: tuple[str, ...], epochs: int = 40, **settings: Any) -> tuple[FittedChannel, dict[str, float]]:
    """The channel, and the terms of its last epoch."""
    data, told = _speakers(), list[Epoch]()
    context = ReleaseContext(SPEAKERS, data.subset(np.arange(DONORS)), torch.device("cpu"), known=known)
    training = TrainConfig(epochs=epochs, batch_size=480, learning_rate=0.005)
    config = PassConfig(embedding_size=16, **settings)
    fitted = METHOD.fit(
        data, context=context, config=config, training=training, rng=stream(1, "fit"), run=TrainingContext(told.append)
    )
    return fitted, dict(told[-1].terms)


def _information_given_age(fitted: FittedChannel) -> float:
    data, found = _speakers(), 0.0
    rows = np.concatenate([rows for _, rows in fitted.channel.blocks(data.features)]).astype(np.float64)
    for age in range(6):
        inside = data.labels["age"] == age
        joint = np.stack([rows[inside & (data.labels["s"] == s)].sum(axis=0) for s in (0, 1)])
        found += inside.mean() * mutual_information(joint / joint.sum())
    return found


def test_known_weight_hides_from_people_who_know_the_age() -> None:
    fitted, terms = _fit_speakers(("age",), known_weight=3.0)
    control, control_terms = _fit_speakers(("age",))
    assert _information_given_age(control) > 0.1
    assert _information_given_age(fitted) < 0.2 * _information_given_age(control)
    assert terms["private_information_s_given_age"] < 0.05
    assert "private_information_s_given_age" not in control_terms
    assert "bound" in control_terms
    assert "bound" not in terms  # no longer eq. 3


def test_without_known_weight_the_papers_setting_stays_as_it_is_to_the_last_bit() -> None:
    """Whatever recipients are declared to know."""
    plain, knowing = (_fit_speakers(known, epochs=3)[0].state_dict() for known in ((), ("u", "age")))
    assert plain.keys() == knowing.keys()
    assert all(torch.equal(plain[name], knowing[name]) for name in plain)
