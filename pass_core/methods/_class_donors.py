"""Channels that know a donor by its useful classes alone: whom a classifier's guess leads to, and how often to another kind."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pass_core.channel.substitution import Channel, draw_substitutes, padded_blocks
from pass_core.data import FloatArray, Records, with_role
from pass_core.errors import MethodError
from pass_core.methods.base import ReleaseContext
from pass_core.randomness import torch_generator
from pass_core.training.context import TrainingContext
from pass_core.training.loop import TrainConfig, fit_heads
from pass_core.training.networks import Widths, build_network
from pass_core.training.parallel import share_statistics

CLASSIFIER = Widths(hidden=(512, 256))  # the probing attack's


@dataclass(frozen=True)
class FittedDonors:
    """A channel over the pool that needs no saving beyond what `learnt` holds."""

    channel: Channel
    donor_features: FloatArray  # (pool, *shape)
    learnt: Mapping[str, Tensor]

    def transform(self, features: FloatArray, rng: np.random.Generator) -> FloatArray:
        return draw_substitutes(self.channel, features, self.donor_features, rng)

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self.learnt)


@dataclass(frozen=True)
class KindChannel:
    """P(x'|x): a kind of donor, a combination of useful classes, by a classifier's best guess; uniform within the kind.

    Any other kind of the pool is e^−ε times as likely as the guessed one: no two records' probabilities of a donor differ by more
    than a factor of e^ε.
    """

    classifier: nn.Module  # logits of every useful attribute, one head after the other
    classes: Tensor  # (useful,) number of classes of each
    donors: Tensor  # (pool, useful) class of every donor
    epsilon: float  # infinite: always the guess

    @property
    def pool_size(self) -> int:
        return len(self.donors)

    def blocks(self, features: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
        self.classifier.eval()
        kinds, kind_of, counts = torch.unique(self.donors, dim=0, return_inverse=True, return_counts=True)
        other = math.exp(-self.epsilon)
        guess = 1 / (1 + (len(kinds) - 1) * other)
        for rows, block in padded_blocks(features, self.donors.device):
            with torch.inference_mode():
                heads = self.classifier(block).split(self.classes.tolist(), dim=1)
                scores = torch.stack([F.log_softmax(head, dim=1)[:, kinds[:, j]] for j, head in enumerate(heads)]).sum(dim=0)
                guessed = F.one_hot(scores.argmax(dim=1), len(kinds)).bool()  # the likeliest kind that has a donor
                share = torch.where(guessed, guess, guess * other) / counts  # (block, kinds)
                probabilities = share[:, kind_of]
            yield rows, probabilities[: rows.stop - rows.start].cpu().numpy()


def fit_kind_channel(
    data: Records, setting: ReleaseContext, epsilon: float, training: TrainConfig, rng: np.random.Generator, run: TrainingContext
) -> KindChannel:
    """Trains the classifier of useful attributes.

    Raises:
        MethodError: no attribute is useful.
    """
    useful = with_role(setting.attributes, "useful")
    if not useful:
        raise MethodError("a donor's class is a useful attribute's: name at least one; see the data set's section in params.yaml")
    generator = torch_generator(rng)
    data = data.subset(np.setdiff1d(np.arange(len(data)), run.held_out))
    widths = [a.n_classes for a in useful]
    drawn = build_network("auto", data.feature_shape, sum(widths), generator, CLASSIFIER)
    classifier = share_statistics(drawn, run.world).to(setting.device)
    features = torch.from_numpy(data.features).to(setting.device)
    targets = [(torch.from_numpy(data.labels[a.name]).to(setting.device), a.n_classes) for a in useful]
    fit_heads(classifier, features, targets, training, generator, run)
    donors = torch.from_numpy(np.stack([setting.pool.labels[a.name] for a in useful], axis=1)).to(setting.device)
    return KindChannel(classifier, torch.tensor(widths), donors, epsilon)


def fitted_kinds(channel: KindChannel, setting: ReleaseContext) -> FittedDonors:
    """The channel as a protector; what it knows of its donors is saved with it."""
    classifier = {f"classifier.{name}": value for name, value in channel.classifier.state_dict().items()}
    return FittedDonors(channel, setting.pool.features, classifier | {"classes": channel.classes, "donors": channel.donors})


def restored_kinds(state: Mapping[str, Tensor], setting: ReleaseContext, epsilon: float) -> FittedDonors:
    """The protector again, from its tensors.

    Raises:
        MethodError: it was trained for another pool.
    """
    if len(state["donors"]) != len(setting.pool):
        raise MethodError(f"the model knows {len(state['donors'])} donors, the pool has {len(setting.pool)}: retrain")
    # The weights drawn here are overwritten at once; any generator does.
    anything = torch.Generator().manual_seed(0)
    classifier = build_network("auto", setting.pool.feature_shape, int(state["classes"].sum()), anything, CLASSIFIER)
    prefix = "classifier."
    classifier.load_state_dict({name.removeprefix(prefix): v for name, v in state.items() if name.startswith(prefix)})
    channel = KindChannel(classifier.to(setting.device).eval(), state["classes"], state["donors"].to(setting.device), epsilon)
    return fitted_kinds(channel, setting)
