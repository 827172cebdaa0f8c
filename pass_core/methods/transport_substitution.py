"""Transport: the same distribution of donors for each private class, at the least cost (`pass_core.methods.transport`)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pass_core.data import IntArray, Records, with_role
from pass_core.errors import MethodError
from pass_core.methods.base import FittedChannel, ReleaseContext
from pass_core.methods.transport.cells import Cells
from pass_core.methods.transport.channel import TransportChannel, TransportConfig
from pass_core.methods.transport.classifier import build_classifier, held_out_figures
from pass_core.methods.transport.neighbourhoods import Neighbourhoods
from pass_core.methods.transport.solver import build_channel, solve_transport
from pass_core.training.cross_fit import rebuilt
from pass_core.training.networks import below, restored, with_prefix


class TransportSubstitution:
    """Transport."""

    summary: ClassVar[str] = "transport: donors' distribution equal for every private class, records moved as little as possible"
    config_type: ClassVar[type[TransportConfig]] = TransportConfig

    def fit(self, data: Records, *, context: ReleaseContext, **given: Any) -> FittedChannel:
        """See `solve_transport`."""
        channel, notes = solve_transport(data, context=context, **given)
        figures = held_out_figures(channel.classifier, data, given["run"].held_out, channel.cells)
        return replace(_fitted(channel, context), figures=figures, notes=notes)

    def from_state_dict(self, state: Mapping[str, Tensor], context: ReleaseContext, config: TransportConfig) -> FittedChannel:
        potentials = state["potentials"]
        context.check_pool(potentials.shape[1])
        if not with_role(context.attributes, "useful"):
            raise MethodError(
                "expected the useful attributes of transport's donors, found none; load the model together with its pool"
            )
        cells, shape = Cells(state["cells"].cpu().numpy(), context.attributes), context.pool.feature_shape
        learnt = below("classifier", state)

        def build(any_: torch.Generator) -> nn.Module:
            return rebuilt(lambda: build_classifier(shape, cells, any_, config.classifiers), config.folds, learnt)

        classifier = restored(build, learnt).to(context.device)
        moved = {name: state[name].to(context.device) for name in ("mean", "projection", "potentials")}
        space = Neighbourhoods(moved["mean"], moved["projection"])
        channel = build_channel(classifier, space, cells, moved["potentials"], context=context, config=config)
        return _fitted(channel, context)

    def without_donors(self, state: Mapping[str, Tensor], kept: IntArray) -> dict[str, Tensor]:
        return {**state, "potentials": state["potentials"][:, torch.from_numpy(kept)]}


def _fitted(channel: TransportChannel, context: ReleaseContext) -> FittedChannel:
    space = {"mean": channel.neighbourhoods.mean, "projection": channel.neighbourhoods.projection}
    solved = {"potentials": channel.potentials, "cells": torch.from_numpy(channel.cells.table)}
    learnt = with_prefix("classifier", channel.classifier.state_dict()) | space | solved
    return FittedChannel(channel, context.pool.features, learnt)


METHOD = TransportSubstitution()
