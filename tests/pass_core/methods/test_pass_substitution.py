"""PASS's own settings: records of any scale, and donors' embeddings that can turn."""

import numpy as np
import pytest
import torch

from pass_core.data import Attribute, FloatArray, Records
from pass_core.methods.base import ReleaseContext
from pass_core.methods.pass_substitution import METHOD, PassConfig
from pass_core.randomness import stream
from pass_core.training.context import TrainingContext
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
