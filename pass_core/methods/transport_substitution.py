"""Transport: the same distribution of donors for each private class, at the least cost (`pass_core.methods.transport`)."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from pass_core.data import IntArray, Records, with_role
from pass_core.errors import MethodError
from pass_core.methods.base import FittedChannel, ReleaseContext
from pass_core.methods.transport.neighbourhoods import Neighbourhoods
from pass_core.methods.transport.solver import TransportChannel, TransportConfig, build_channel, build_classifier, solve_transport
from pass_core.training.networks import below, restored, with_prefix


class TransportSubstitution:
    """Transport."""

    summary: ClassVar[str] = "transport: donors' distribution equal for every private class, records moved as little as possible"
    config_type: ClassVar[type[TransportConfig]] = TransportConfig

    def fit(self, data: Records, *, context: ReleaseContext, **given: Any) -> FittedChannel:
        """See `solve_transport`."""
        return _fitted(solve_transport(data, context=context, **given), context)

    def from_state_dict(self, state: Mapping[str, Tensor], context: ReleaseContext, config: TransportConfig) -> FittedChannel:
        potentials = state["potentials"]
        context.check_pool(potentials.shape[1])
        useful = with_role(context.attributes, "useful")
        if not useful:
            raise MethodError("transport compares records with its donors: load the model together with its pool")
        shape = context.pool.feature_shape
        classifier = restored(lambda any_: build_classifier(shape, len(potentials), useful, any_), below("classifier", state))
        moved = {name: state[name].to(context.device) for name in ("mean", "projection", "potentials")}
        space = Neighbourhoods(moved["mean"], moved["projection"])
        return _fitted(build_channel(classifier.to(context.device), space, moved["potentials"], context, config), context)

    def without_donors(self, state: Mapping[str, Tensor], kept: IntArray) -> dict[str, Tensor]:
        return {**state, "potentials": state["potentials"][:, torch.from_numpy(kept)]}


def _fitted(channel: TransportChannel, context: ReleaseContext) -> FittedChannel:
    space = {"mean": channel.neighbourhoods.mean, "projection": channel.neighbourhoods.projection}
    learnt = with_prefix("classifier", channel.classifier.state_dict()) | space | {"potentials": channel.potentials}
    return FittedChannel(channel, context.pool.features, learnt)


METHOD = TransportSubstitution()
