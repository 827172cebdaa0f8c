"""DP-Image (Xue et al. 2021): Laplace noise on the short vector of an autoencoder."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from pass_core.channel.substitution import BLOCK_ROWS
from pass_core.data import FloatArray, Records
from pass_core.errors import ConfigError
from pass_core.methods._noise import check_epsilon, laplace
from pass_core.methods.adversarial.generators import Autoencoder
from pass_core.methods.base import ReleaseContext
from pass_core.randomness import torch_generator
from pass_core.training.context import TrainingContext
from pass_core.training.loop import TrainConfig, minimise
from pass_core.training.networks import drawn_from


@dataclass(frozen=True, slots=True)
class DpImageConfig:
    """ε of every number of the short vector, and where those are clipped."""

    epsilon: float = 10.0
    latent: int = 128
    within: float = 0.99  # share of the training records' numbers that clipping leaves as they are

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if self.latent < 1:
            raise ConfigError(f"latent: expected at least 1, found {self.latent}")
        if not 0 < self.within <= 1:
            raise ConfigError(f"within: expected above 0 and at most 1, found {self.within}")


@dataclass(frozen=True)
class FittedDpImage:
    """A trained autoencoder and the range of its numbers."""

    network: Autoencoder
    low: Tensor  # (latent,)
    high: Tensor
    epsilon: float

    @property
    def channel(self) -> None:
        return None

    def transform(self, features: FloatArray, rng: np.random.Generator) -> FloatArray:
        released: FloatArray = np.empty_like(features)
        scale = ((self.high - self.low) / self.epsilon).cpu().numpy()
        for start in range(0, len(features), BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            with torch.inference_mode():
                latent = self.network.encode(torch.from_numpy(np.array(features[rows])).to(self.low.device))
                clipped = torch.minimum(torch.maximum(latent, self.low), self.high)
                noise = torch.from_numpy(laplace(rng, tuple(latent.shape), scale)).to(self.low.device)
                released[rows] = self.network.decode(clipped + noise).cpu().numpy()
        return released

    def state_dict(self) -> dict[str, Tensor]:
        network = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        return network | {"low": self.low, "high": self.high}


class DpImage:
    """x' = decode( clip(encode(x)) + Lap(range/ε) )."""

    summary: ClassVar[str] = "DP-Image: Laplace noise on the short vector of an autoencoder"
    config_type: ClassVar[type[DpImageConfig]] = DpImageConfig

    def fit(
        self,
        data: Records,
        setting: ReleaseContext,
        config: DpImageConfig,
        training: TrainConfig,
        rng: np.random.Generator,
        run: TrainingContext,
    ) -> FittedDpImage:
        """Learns to give records back (mean squared error of standardised values), then the range of the short vectors."""
        generator = torch_generator(rng)
        data = data.subset(np.setdiff1d(np.arange(len(data)), run.held_out))
        features = torch.from_numpy(data.features).to(setting.device)
        network = drawn_from(generator, lambda: Autoencoder(data.feature_shape, config.latent))
        network.space.learn(torch.from_numpy(data.features))
        network.to(setting.device).train()

        def batch_loss(rows: Tensor, epoch: int) -> dict[str, Tensor]:  # noqa: ARG001 (every epoch is alike)
            records = features[rows]
            difference = network.space.standard(network.decode(network.encode(records))) - network.space.standard(records)
            return {"total": run.world.mean(difference.square().mean())}

        minimise(batch_loss, network.state_dict(keep_vars=True), len(data), training, generator, run)
        network.eval()
        with torch.inference_mode():
            latents = torch.cat([network.encode(block) for block in features.split(BLOCK_ROWS)]).cpu().numpy()
        outside = (1 - config.within) / 2
        low, high = np.quantile(latents, [outside, 1 - outside], axis=0).astype(np.float32)
        device = setting.device
        return FittedDpImage(network, torch.from_numpy(low).to(device), torch.from_numpy(high).to(device), config.epsilon)

    def from_state_dict(self, state: Mapping[str, Tensor], setting: ReleaseContext, config: DpImageConfig) -> FittedDpImage:
        # The weights drawn here are overwritten at once; any generator does.
        anything = torch.Generator().manual_seed(0)
        network = drawn_from(anything, lambda: Autoencoder(setting.pool.feature_shape, config.latent))
        network.load_state_dict({name.removeprefix("network."): v for name, v in state.items() if name.startswith("network.")})
        low, high = (state[name].to(setting.device) for name in ("low", "high"))
        return FittedDpImage(network.to(setting.device).eval(), low, high, config.epsilon)


METHOD = DpImage()
