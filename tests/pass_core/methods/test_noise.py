"""Noise methods: the noise has the stated law, what is blotted out is counted, a fresh attacker reads the class through it."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from pass_core import discovery, methods
from pass_core.data import FloatArray, Records
from pass_core.errors import ConfigError
from pass_core.methods import dp_image, dppix, laplace, snow
from pass_core.methods.adversarial.generators import Autoencoder
from pass_core.methods.base import Fitted, Method
from pass_core.randomness import stream
from pass_core.training.context import TrainingContext
from pass_core.training.loop import TrainConfig
from pass_core.training.networks import drawn_from
from tests.pass_core.methods.planted import S, attacker_advantage, planted, setting_of

TRAINING = TrainConfig(epochs=20, batch_size=64, learning_rate=0.003)
VECTORS, WINDOWS, IMAGES = (17,), (2, 32), (3, 32, 32)


def _uniform(shape: tuple[int, ...], n: int) -> Records:
    """Values within ±√3 deviations of their mean, so that clipping changes none; images fill [0, 1]."""
    x = stream(1, "uniform").random((n, *shape)).astype(np.float32)
    x.reshape(-1)[:2] = 0, 1
    return Records(x, {"s": np.arange(n) % 2, "u": np.arange(n) % 3})


def _fit(method: Method, config: object, data: Records) -> Fitted:
    return method.fit(
        data, context=setting_of(data, 20), config=config, training=TRAINING, rng=stream(1, "fit"), run=TrainingContext()
    )


def _spans(data: Records) -> FloatArray:
    """Six deviations of every entry of a vector or channel of a window; the range of pixels."""
    x = data.features
    over = (0, *range(2, x.ndim))
    spans: FloatArray = np.ones(1) if x.ndim == 4 else 6 * x.std(axis=over, keepdims=True)[0]
    return spans


@pytest.mark.parametrize("shape", [VECTORS, WINDOWS])
@pytest.mark.parametrize("epsilon", [1.0, 10.0])
def test_laplace_noise_has_the_stated_scale(shape: tuple[int, ...], epsilon: float) -> None:
    data = _uniform(shape, 1000)
    released = _fit(laplace.METHOD, laplace.LaplaceConfig(epsilon), data).transform(data.features, stream(2, "noise"))
    noise = ((released - data.features) / (_spans(data) / epsilon)).ravel()
    assert stats.kstest(noise, stats.laplace.cdf).pvalue > 0.01
    assert stats.kstest(noise / 1.1, stats.laplace.cdf).pvalue < 0.01  # a tenth more noise would be seen


def test_laplace_images_stay_images() -> None:
    data = _uniform(IMAGES, 30)
    released = _fit(laplace.METHOD, laplace.LaplaceConfig(1.0), data).transform(data.features, stream(2, "noise"))
    assert released.min() == 0
    assert released.max() == 1
    inside = (released > 0) & (released < 1)
    x, y = data.features[inside].astype(np.float64), released[inside].astype(np.float64)
    law = stats.laplace
    place = (law.cdf(y - x) - law.cdf(-x)) / (law.cdf(1 - x) - law.cdf(-x))  # uniform, if the noise is Lap(1) cut at both ends
    assert stats.kstest(place, stats.uniform.cdf).pvalue > 0.01


@pytest.mark.parametrize("shape", [VECTORS, WINDOWS])
def test_dppix_cells_are_means_with_the_stated_noise(shape: tuple[int, ...]) -> None:
    data = _uniform(shape, 500)
    config = dppix.DppixConfig(epsilon=2.0, cell=8, differing=3)
    released = _fit(dppix.METHOD, config, data).transform(data.features, stream(2, "noise"))
    spans = np.broadcast_to(_spans(data), shape)
    noises = []
    for start in range(0, shape[-1], 8):
        cell = slice(start, start + 8)
        values = released[..., cell]
        assert (values == values[..., :1]).all()
        scale = spans[..., cell].max(axis=-1) * 3 / (data.features[..., cell].shape[-1] * 2.0)
        noises.append(((values[..., 0] - data.features[..., cell].mean(axis=-1)) / scale).ravel())
    noise = np.concatenate(noises)
    assert stats.kstest(noise, stats.laplace.cdf).pvalue > 0.01
    assert stats.kstest(noise / 1.2, stats.laplace.cdf).pvalue < 0.01


def test_dppix_image_cells_are_squares() -> None:
    data = _uniform(IMAGES, 20)
    released = _fit(dppix.METHOD, dppix.DppixConfig(epsilon=1000.0), data).transform(data.features, stream(2, "noise"))
    squares = data.features.reshape(20, 3, 4, 8, 4, 8).mean(axis=(3, 5))
    assert np.abs(released[:, :, ::8, ::8] - squares).max() < 0.01  # Lap(16/64/1000): hardly any noise
    assert (released.reshape(20, 3, 4, 8, 4, 8) == released[:, :, ::8, ::8][:, :, :, None, :, None]).all()


@pytest.mark.parametrize("shape", [VECTORS, WINDOWS, IMAGES])
def test_snow_blots_out_the_stated_share_in_all_channels(shape: tuple[int, ...]) -> None:
    data = _uniform(shape, 60)
    fitted = _fit(snow.METHOD, snow.SnowConfig(delta=0.25), data)
    released = fitted.transform(data.features, stream(2, "snow"))
    changed = released != data.features
    if len(shape) > 1:
        assert (changed == changed[:, :1]).all()  # a place is blotted out in all channels or in none
        changed = changed[:, 0]
    places = changed[0].size
    assert (changed.reshape(60, -1).sum(axis=1) == round(0.75 * places)).all()
    assert stats.chisquare(changed.reshape(60, -1).sum(axis=0)).pvalue > 0.01  # no place more often than another
    over = (0, *range(2, released.ndim))
    middle = np.array(0.5) if len(shape) == 3 else data.features.mean(axis=over, keepdims=True)
    expected = np.where(released == data.features, data.features, middle)
    assert np.abs(released - expected).max() < 1e-4


class Passing(Autoencoder):
    """Its short vector is the record."""

    def encode(self, records: Tensor) -> Tensor:
        return records

    def decode(self, latent: Tensor) -> Tensor:
        return latent


def test_dp_image_noise_is_on_the_clipped_short_vector() -> None:
    network = drawn_from(torch.Generator().manual_seed(0), lambda: Passing((8,), 8))
    low, high = torch.full((8,), -1.0), torch.linspace(0.0, 3.0, 8)
    fitted = dp_image.fitted_autoencoder(network, low, high, epsilon=2.0)
    x = 5 * stream(1, "x").normal(size=(2000, 8)).astype(np.float32)
    noise = fitted.transform(x, stream(2, "noise")) - np.clip(x, low.numpy(), high.numpy())
    assert stats.kstest((noise / ((high - low) / 2.0).numpy()).ravel(), stats.laplace.cdf).pvalue > 0.01


@pytest.mark.parametrize("shape", [VECTORS, IMAGES])
def test_dp_image_gives_records_back_when_epsilon_is_large(shape: tuple[int, ...]) -> None:
    data = planted(shape, 240)
    config = dp_image.DpImageConfig(1e6, within=1.0)
    fitted = dp_image.METHOD.fit(
        data,
        context=setting_of(data),
        config=config,
        training=TrainConfig(20, 24, 0.005),
        rng=stream(1, "fit"),
        run=TrainingContext(),
    )
    noisy = dp_image.METHOD.from_state_dict(fitted.state_dict(), setting_of(data), dp_image.DpImageConfig(1.0))
    close, far = (((f.transform(data.features, stream(2, "t")) - data.features) ** 2).mean() for f in (fitted, noisy))
    assert close < 0.75 * data.features.var()
    assert close < 0.9 * far


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("laplace", laplace.LaplaceConfig()),
        ("dppix", dppix.DppixConfig(epsilon=10.0, cell=2)),
        ("snow", snow.SnowConfig()),
        ("dp_image", dp_image.DpImageConfig()),
    ],
)
def test_fresh_attacker_reads_the_class_through_the_noise(name: str, config: object) -> None:
    train, test = planted((32,), 600), planted((32,), 600, seed=1)
    fitted = _fit(discovery.load(methods, name).METHOD, config, train)
    assert attacker_advantage(fitted, train, test, S) > 0.3


def test_attacker_cannot_read_through_enough_noise() -> None:
    train, test = planted((32,), 600), planted((32,), 600, seed=1)
    assert attacker_advantage(_fit(laplace.METHOD, laplace.LaplaceConfig(0.05), train), train, test, S) < 0.2


@pytest.mark.parametrize(
    ("config_type", "wrong"),
    [
        (laplace.LaplaceConfig, {"epsilon": 0.0}),
        (dppix.DppixConfig, {"cell": 0}),
        (dppix.DppixConfig, {"differing": 0}),
        (snow.SnowConfig, {"delta": 1.5}),
        (dp_image.DpImageConfig, {"latent": 0}),
        (dp_image.DpImageConfig, {"within": 0.0}),
    ],
)
def test_configs_name_what_is_wrong(config_type: type, wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        config_type(**wrong)
