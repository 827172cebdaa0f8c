"""DP-Image (Xue et al. 2021): Laplace noise on the short vector of an autoencoder."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from pass_core.channel.substitution import BLOCK_ROWS
from pass_core.checks import Checked, ranged
from pass_core.data import FloatArray, Records, Rng
from pass_core.methods._noise import laplace
from pass_core.methods.adversarial.generators import Autoencoder
from pass_core.methods.base import RecordMaker, ReleaseContext
from pass_core.randomness import torch_generator
from pass_core.training.context import TrainingContext
from pass_core.training.loop import TrainConfig, minimise
from pass_core.training.networks import below, drawn_from, restored, with_prefix


@dataclass(frozen=True, slots=True)
class DpImageConfig(Checked):
    """ε of every number of the short vector, and where those are clipped."""

    epsilon: float = ranged(10.0, above=0)
    latent: int = ranged(128, at_least=1)
    within: float = ranged(0.99, above=0, at_most=1)  # share of the training records' numbers that clipping leaves as they are


@dataclass(frozen=True)
class FittedDpImage(RecordMaker):
    """A trained autoencoder and the range of its numbers."""

    network: Autoencoder
    low: Tensor  # (latent,)
    high: Tensor
    epsilon: float

    @torch.inference_mode()
    def release(self, records: FloatArray, rng: Rng) -> FloatArray:
        scale = ((self.high - self.low) / self.epsilon).cpu().numpy()
        latent = self.network.encode(torch.from_numpy(np.array(records)).to(self.low.device))
        clipped = torch.minimum(torch.maximum(latent, self.low), self.high)
        noise = torch.from_numpy(laplace(rng, tuple(latent.shape), scale)).to(self.low.device)
        return self.network.decode(clipped + noise).cpu().numpy()

    def state_dict(self) -> dict[str, Tensor]:
        return with_prefix("network", self.network.state_dict()) | {"low": self.low, "high": self.high}


class DpImage:
    """x' = decode( clip(encode(x)) + Lap(range/ε) )."""

    summary: ClassVar[str] = "DP-Image: Laplace noise on the short vector of an autoencoder"
    config_type: ClassVar[type[DpImageConfig]] = DpImageConfig

    def fit(
        self,
        data: Records,
        *,
        context: ReleaseContext,
        config: DpImageConfig,
        training: TrainConfig,
        rng: Rng,
        run: TrainingContext,
    ) -> FittedDpImage:
        """Learns to reconstruct records (mean squared error of standardised values), then the range of the short vectors."""
        generator = torch_generator(rng)
        data = data.subset(run.trained_rows(len(data)))
        features = torch.from_numpy(data.features).to(context.device)
        network = drawn_from(generator, lambda: Autoencoder(data.feature_shape, config.latent))
        network.space.learn(torch.from_numpy(data.features))
        network.to(context.device).train()

        def batch_loss(rows: Tensor, epoch: int) -> dict[str, Tensor]:  # noqa: ARG001 (every epoch is alike)
            records = features[rows]
            difference = network.space.standard(network.decode(network.encode(records))) - network.space.standard(records)
            return {"total": run.world.mean(difference.square().mean())}

        minimise(batch_loss, network.state_dict(keep_vars=True), len(data), training, generator=generator, run=run)
        network.eval()
        with torch.inference_mode():
            latents = torch.cat([network.encode(block) for block in features.split(BLOCK_ROWS)]).cpu().numpy()
        outside = (1 - config.within) / 2
        low, high = np.quantile(latents, [outside, 1 - outside], axis=0).astype(np.float32)
        device = context.device
        return FittedDpImage(network, torch.from_numpy(low).to(device), torch.from_numpy(high).to(device), config.epsilon)

    def from_state_dict(self, state: Mapping[str, Tensor], context: ReleaseContext, config: DpImageConfig) -> FittedDpImage:
        shape = context.pool.feature_shape
        network = restored(lambda any_: drawn_from(any_, lambda: Autoencoder(shape, config.latent)), below("network", state))
        low, high = (state[name].to(context.device) for name in ("low", "high"))
        return FittedDpImage(network.to(context.device), low, high, config.epsilon)


METHOD = DpImage()
