"""Transport: the same distribution of donors for every private class, at the least cost (`pass_core.methods.transport`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from pass_core.channel.substitution import draw_substitutes
from pass_core.data import FloatArray, IntArray, Records, with_role
from pass_core.errors import MethodError
from pass_core.methods.base import ReleaseContext
from pass_core.methods.transport.neighbourhoods import Neighbourhoods
from pass_core.methods.transport.solver import TransportChannel, TransportConfig, build_channel, build_classifier, solve_transport
from pass_core.training.context import TrainingContext
from pass_core.training.loop import TrainConfig


@dataclass(frozen=True, slots=True)
class FittedTransport:
    """A solved channel and the donors' features it releases."""

    channel: TransportChannel
    donor_features: FloatArray  # (pool, *shape)

    def transform(self, features: FloatArray, rng: np.random.Generator) -> FloatArray:
        return draw_substitutes(self.channel, features, self.donor_features, rng)

    def state_dict(self) -> dict[str, Tensor]:
        classifier = {f"classifier.{name}": value for name, value in self.channel.classifier.state_dict().items()}
        space = {"mean": self.channel.neighbourhoods.mean, "projection": self.channel.neighbourhoods.projection}
        return classifier | space | {"potentials": self.channel.potentials}


class TransportSubstitution:
    """Transport."""

    summary: ClassVar[str] = "transport: donors' distribution equal for every private class, records moved as little as possible"
    config_type: ClassVar[type[TransportConfig]] = TransportConfig

    def fit(
        self,
        data: Records,
        setting: ReleaseContext,
        config: TransportConfig,
        training: TrainConfig,
        rng: np.random.Generator,
        run: TrainingContext,
    ) -> FittedTransport:
        """See `solve_transport`."""
        return FittedTransport(solve_transport(data, setting, config, training, rng, run), setting.pool.features)

    def from_state_dict(self, state: Mapping[str, Tensor], setting: ReleaseContext, config: TransportConfig) -> FittedTransport:
        potentials = state["potentials"]
        if potentials.shape[1] != len(setting.pool):
            raise MethodError(f"the model knows {potentials.shape[1]} donors, the pool has {len(setting.pool)}: retrain")
        useful = with_role(setting.attributes, "useful")
        if not useful:
            raise MethodError("transport scores records against its donors themselves: load it together with its pool")
        # The weights drawn here are overwritten at once; any generator does.
        classifier = build_classifier(setting.pool.feature_shape, len(potentials), useful, torch.Generator().manual_seed(0))
        prefix = "classifier."
        classifier.load_state_dict({name.removeprefix(prefix): v for name, v in state.items() if name.startswith(prefix)})
        moved = {name: state[name].to(setting.device) for name in ("mean", "projection", "potentials")}
        space = Neighbourhoods(moved["mean"], moved["projection"])
        channel = build_channel(classifier.to(setting.device).eval(), space, moved["potentials"], setting, config)
        return FittedTransport(channel, setting.pool.features)

    def without_donors(self, state: Mapping[str, Tensor], kept: IntArray) -> dict[str, Tensor]:
        return {**state, "potentials": state["potentials"][:, torch.from_numpy(kept)]}


METHOD = TransportSubstitution()
