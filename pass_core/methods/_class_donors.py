"""Methods that know a donor by its useful classes alone: they draw one of the kind that a classifier guesses."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pass_core.channel.substitution import BlockChannel
from pass_core.data import Records, Rng
from pass_core.methods.base import FittedChannel, ReleaseContext
from pass_core.randomness import torch_generator
from pass_core.training.context import TrainingContext
from pass_core.training.loop import TrainConfig, fit_heads
from pass_core.training.networks import CLASSIFIER, below, build_network, restored, with_prefix
from pass_core.training.parallel import share_statistics


@dataclass(frozen=True)
class KindChannel(BlockChannel):
    """P(x'|x): a kind of donor, a combination of useful classes, by a classifier's best guess; uniform within the kind.

    Any other kind of the pool is e^−ε times as likely as the guessed one, so that no two records' probabilities of a donor
    differ by more than a factor of e^ε.
    """

    classifier: nn.Module  # logits of every useful attribute, one head after the other
    classes: Tensor  # (useful,) number of classes of each
    donors: Tensor  # (pool, useful) class of every donor
    epsilon: float  # infinite: always the guess

    def probabilities(self, records: Tensor) -> Tensor:
        kinds, kind_of, counts = torch.unique(self.donors, dim=0, return_inverse=True, return_counts=True)
        other = math.exp(-self.epsilon)
        guess = 1 / (1 + (len(kinds) - 1) * other)
        heads = self.classifier.eval()(records).split(self.classes.tolist(), dim=1)
        scores = torch.stack([F.log_softmax(head, dim=1)[:, kinds[:, j]] for j, head in enumerate(heads)]).sum(dim=0)
        guessed = F.one_hot(scores.argmax(dim=1), len(kinds)).bool()  # the likeliest kind that has a donor
        share: Tensor = torch.where(guessed, guess, guess * other) / counts  # (records, kinds)
        return share[:, kind_of]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassDonorMethod:
    """Draws donors by the useful classes that a classifier sees."""

    summary: str
    config_type: type[Any]
    epsilon: Callable[[Any], float]  # config -> ε of the channel; infinite: always the guessed kind

    def fit(
        self, data: Records, *, context: ReleaseContext, config: Any, training: TrainConfig, rng: Rng, run: TrainingContext
    ) -> FittedChannel:
        """Trains the classifier of useful attributes."""
        useful = context.needed("useful")
        generator = torch_generator(rng)
        data = data.subset(run.trained_rows(len(data)))
        widths = [a.n_classes for a in useful]
        classifier = build_network("auto", data.feature_shape, sum(widths), generator, CLASSIFIER)
        classifier = share_statistics(classifier, run.world).to(context.device)
        features = torch.from_numpy(data.features).to(context.device)
        targets = [(torch.from_numpy(data.labels[a.name]).to(context.device), a.n_classes) for a in useful]
        fit_heads(classifier, features, targets, training, generator=generator, run=run)
        donors = torch.from_numpy(np.stack([context.pool.labels[a.name] for a in useful], axis=1)).to(context.device)
        return _fitted(KindChannel(classifier, torch.tensor(widths), donors, self.epsilon(config)), context)

    def from_state_dict(self, state: Mapping[str, Tensor], context: ReleaseContext, config: Any) -> FittedChannel:
        """Raises MethodError when it was trained for another pool."""
        context.check_pool(len(state["donors"]))
        shape, outputs = context.pool.feature_shape, int(state["classes"].sum())
        classifier = restored(lambda any_: build_network("auto", shape, outputs, any_, CLASSIFIER), below("classifier", state))
        donors = state["donors"].to(context.device)
        return _fitted(KindChannel(classifier.to(context.device), state["classes"], donors, self.epsilon(config)), context)


def _fitted(channel: KindChannel, context: ReleaseContext) -> FittedChannel:
    learnt = with_prefix("classifier", channel.classifier.state_dict())
    return FittedChannel(channel, context.pool.features, learnt | {"classes": channel.classes, "donors": channel.donors})
