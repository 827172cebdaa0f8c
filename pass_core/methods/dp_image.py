"""DP-Image (Xue et al. 2021): Laplace noise on the short vector of an autoencoder."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

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


@torch.inference_mode()
def release(records: FloatArray, rng: Rng, *, network: Autoencoder, low: Tensor, high: Tensor, epsilon: float) -> FloatArray:
    """x' = decode( clip(encode(x)) + Lap(range/ε) ); the range of the short vectors is `low` to `high` (latent,)."""
    latent = network.encode(torch.from_numpy(np.array(records)).to(low.device))
    noise = laplace(rng, tuple(latent.shape), ((high - low) / epsilon).cpu().numpy())
    clipped = torch.minimum(torch.maximum(latent, low), high)
    return network.decode(clipped + torch.from_numpy(noise).to(low.device)).cpu().numpy()


def fitted_autoencoder(network: Autoencoder, low: Tensor, high: Tensor, epsilon: float) -> RecordMaker:
    """The protector made of a trained autoencoder and the range of its numbers."""
    learnt = with_prefix("network", network.state_dict()) | {"low": low, "high": high}
    return RecordMaker(functools.partial(release, network=network, low=low, high=high, epsilon=epsilon), learnt)


class DpImage:
    """DP-Image."""

    summary: ClassVar[str] = "DP-Image: Laplace noise on the short vector of an autoencoder"
    config_type: ClassVar[type[DpImageConfig]] = DpImageConfig

    def fit(
        self, data: Records, *, context: ReleaseContext, config: Any, training: TrainConfig, rng: Rng, run: TrainingContext
    ) -> RecordMaker:
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
        low, high = torch.from_numpy(np.quantile(latents, [outside, 1 - outside], axis=0).astype(np.float32)).to(context.device)
        return fitted_autoencoder(network, low, high, config.epsilon)

    def from_state_dict(self, state: Mapping[str, Tensor], context: ReleaseContext, config: DpImageConfig) -> RecordMaker:
        shape = context.pool.feature_shape
        network = restored(lambda any_: drawn_from(any_, lambda: Autoencoder(shape, config.latent)), below("network", state))
        low, high = (state[name].to(context.device) for name in ("low", "high"))
        return fitted_autoencoder(network.to(context.device), low, high, config.epsilon)


METHOD = DpImage()
