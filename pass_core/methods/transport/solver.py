"""Transport: the donors' distribution is made the same for every private class, at the least cost in feature space.

I(X';S) = 0 means that P(X'|S=s) is one distribution m over donors, whatever s. Among all such channels this is the one
that moves records least and keeps the useful class: an entropic optimal transport problem to a shared, free marginal, solved by
Sinkhorn scaling in the log domain.

    ln kernel   k(x,d) = cos(φ(x), φ(d))/ε + ω Σ_j ln p(U_j = U'_j(d) | x)
    channel     P_c(d|x) = softmax over d of k(x,d) + v_c(d)                      of private class c
    round       q_c = mean over records of class c of P_c;  ln m = Σ_c w_c ln q_c;  v_c += ln m − ln q_c
    release     P(d|x) = Σ_c p(S=c|x) P_c(d|x)                                    over the likeliest classes

m is not given: it is the classes' entropic Wasserstein barycentre on the pool. Its weights w_c, shares to the power of
`majority`, decide whose records stay near: 0 treats all classes alike, 1 moves records least overall, and a larger power lets the
largest class keep its own donors, to which the others move.

Several private attributes count as one, whose classes are their combinations in training. p(S|x) and p(U|x) come from
one small network, φ from `pass_core.methods.transport.neighbourhoods`.

The potentials are solved for records as they will be released: donors that `pool.forbid` excludes for a record are out of its
kernel. Without donors of its own person, a training record is like one of a person not seen in training, so that these
potentials hold for unseen people, too.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pass_core.channel.substitution import BLOCK_ROWS, Exclusion, padded_blocks
from pass_core.checks import Checked, ranged
from pass_core.data import Attribute, FloatArray, Records, Rng, combinations, with_role
from pass_core.errors import MethodError
from pass_core.methods.base import ReleaseContext
from pass_core.methods.transport.neighbourhoods import Neighbourhoods, learn_neighbourhoods
from pass_core.randomness import torch_generator
from pass_core.training.context import TrainingContext
from pass_core.training.epochs import Epoch, OnEpoch
from pass_core.training.loop import TrainConfig, fit_heads
from pass_core.training.networks import build_network
from pass_core.training.parallel import share_statistics

SMALLEST_LOG = -80.0  # ln of a class's share of a donor it never draws: far below any that counts
UNDAMPED_ROUNDS = 10  # of those that see only a part of the records; later ones average over what they happened to see


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportConfig(Checked):
    """How sharp the channel is, how faithful to the useful class, and how long it is solved."""

    epsilon: float = ranged(0.015, above=0)  # ε: temperature of similarity; smaller keeps more of the record, larger mixes more
    useful_weight: float = ranged(1.0, at_least=0)  # ω
    rounds: int = ranged(60, at_least=1)
    tolerance: float = ranged(0.001, above=0)  # stop when each class's distribution over donors is this near to the shared one
    # class weights of the shared distribution: 0 all alike, 1 by records, more: the largest class stays
    majority: float = ranged(2.0, at_least=0)
    likeliest: int = ranged(3, at_least=1)  # private classes that a release mixes over
    records_per_round: int = ranged(50_000, at_least=1)  # of a larger training set every round sees another random part


@dataclass(frozen=True, slots=True)
class Seen:
    """Records as the channel sees them."""

    space: Tensor  # (n, dim) φ
    private: Tensor  # (n, combinations) ln p(S|x)
    useful: tuple[Tensor, ...]  # (n, classes) ln p(U_j|x)
    units: tuple[Tensor, Tensor] | None = None  # (n,) of records and (pool,) of donors: a donor of the same unit is excluded

    def rows(self, rows: Tensor) -> "Seen":
        """Some of these records."""
        units = None if self.units is None else (self.units[0][rows], self.units[1])
        return Seen(self.space[rows], self.private[rows], tuple(logs[rows] for logs in self.useful), units)


@dataclass(frozen=True, kw_only=True)
class TransportChannel:
    """Everything that P(x'|x) is computed from."""

    classifier: nn.Module  # logits of the private combinations, then of every useful attribute
    neighbourhoods: Neighbourhoods  # φ
    donors: Tensor  # (pool, dim) φ of donors, unit length
    potentials: Tensor  # (combinations, pool) v_c
    useful_donors: tuple[Tensor, ...]  # (pool,) label of every donor, per useful attribute
    useful_classes: tuple[int, ...]
    config: TransportConfig

    @property
    def pool_size(self) -> int:
        return len(self.donors)

    def blocks(self, features: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
        self.classifier.eval()
        for rows, padded in padded_blocks(features, self.donors.device):
            scores = self.probabilities(self.look_at(padded))
            yield rows, scores[: rows.stop - rows.start].cpu().numpy()

    @torch.inference_mode()
    def look_at(self, features: Tensor, exclusion: Exclusion | None = None) -> Seen:
        """The channel's view of these records, by blocks; raises MethodError when a record is left without any donor."""
        units = None
        if exclusion is not None:
            if len(np.unique(exclusion.donor_units)) == 1 and np.isin(exclusion.record_units, exclusion.donor_units).any():
                raise MethodError("pool.forbid leaves records without any donor: raise pool.donors, or forbid less")
            record_units, donor_units = (torch.from_numpy(u) for u in (exclusion.record_units, exclusion.donor_units))
            units = record_units.to(features.device), donor_units.to(features.device)
        blocks = features.split(BLOCK_ROWS)
        widths = [len(self.potentials), *self.useful_classes]
        heads = [self.classifier(block).split(widths, dim=1) for block in blocks]
        private, *useful = (F.log_softmax(torch.cat(each), dim=1) for each in zip(*heads, strict=True))
        return Seen(torch.cat([self.neighbourhoods(block) for block in blocks]), private, tuple(useful), units)

    def log_kernel(self, seen: Seen) -> Tensor:
        """k (n, pool)."""
        kernel = seen.space @ self.donors.T / self.config.epsilon
        for logs, labels in zip(seen.useful, self.useful_donors, strict=True):
            kernel += self.config.useful_weight * logs[:, labels]
        if seen.units is not None:
            kernel.masked_fill_(seen.units[0][:, None] == seen.units[1], -torch.inf)
        return kernel

    @torch.inference_mode()
    def probabilities(self, seen: Seen) -> Tensor:
        """P (n, pool) as released, mixed over the likeliest private classes."""
        kernel = self.log_kernel(seen)
        shares, classes = seen.private.exp().topk(min(self.config.likeliest, len(self.potentials)), dim=1)
        shares = shares / shares.sum(dim=1, keepdim=True)
        mixed = torch.zeros_like(kernel)
        for share, likely in zip(shares.T, classes.T, strict=True):
            mixed += share[:, None] * F.softmax(kernel + self.potentials[likely], dim=1)
        return mixed


def solve_transport(
    data: Records, *, context: ReleaseContext, config: TransportConfig, training: TrainConfig, rng: Rng, run: TrainingContext
) -> TransportChannel:
    """Trains the classifier, then scales until every private class has the same distribution over donors.

    No record is held out: each round reports figures of the training records, and the rounds stop by themselves.
    """
    private, useful = context.private_and_useful()
    combined = combinations([data.labels[a.name] for a in private])
    n_combinations = int(combined.max()) + 1
    generator = torch_generator(rng)
    drawn = build_classifier(data.feature_shape, n_combinations, useful, generator)
    classifier = share_statistics(drawn, run.world).to(context.device)
    features = torch.from_numpy(data.features).to(context.device)
    classes = [(combined, n_combinations), *((data.labels[a.name], a.n_classes) for a in useful)]
    targets = [(torch.from_numpy(labels).to(context.device), width) for labels, width in classes]
    quiet = TrainingContext(checkpoints=run.checkpoints, world=run.world)  # the curves are those of the rounds
    fit_heads(classifier, features, targets, training, generator=generator, run=quiet)
    kinds = torch.from_numpy(combinations([data.labels[a.name] for a in useful])).to(context.device)
    space = learn_neighbourhoods(features, kinds, generator)
    unscaled = torch.zeros(n_combinations, len(context.pool), device=context.device)
    channel = build_channel(classifier, space, unscaled, context, config)
    seen = channel.look_at(features, context.exclusion)  # once: it is the same in every round
    potentials = _solve_potentials(channel, seen, targets[0][0], generator, run.on_epoch)
    return build_channel(classifier, space, potentials, context, config)


def build_classifier(
    shape: tuple[int, ...], n_combinations: int, useful: tuple[Attribute, ...], generator: torch.Generator
) -> nn.Module:
    """The network for p(S|x) and p(U|x), one head after the other."""
    return build_network("auto", shape, n_combinations + sum(a.n_classes for a in useful), generator)


def build_channel(
    classifier: nn.Module, space: Neighbourhoods, potentials: Tensor, context: ReleaseContext, config: TransportConfig
) -> TransportChannel:
    """The channel with these parts, over the context's donors."""
    useful = with_role(context.attributes, "useful")
    return TransportChannel(
        classifier=classifier,
        neighbourhoods=space,
        donors=space(torch.tensor(context.pool.features, device=context.device)),
        potentials=potentials,
        useful_donors=tuple(torch.from_numpy(context.pool.labels[a.name]).to(context.device) for a in useful),
        useful_classes=tuple(a.n_classes for a in useful),
        config=config,
    )


def _solve_potentials(
    channel: TransportChannel, seen: Seen, classes: Tensor, generator: torch.Generator, on_epoch: OnEpoch
) -> Tensor:
    """v (classes, donors); memory is that of one block of records, whatever their number.

    Each round reports `total`, the largest total variation between a class's distribution and the shared one, and
    `private_information`, I(X';S) over the records of the round, nats.
    """
    config, counts = channel.config, torch.bincount(classes).double()
    weights = (counts / counts.sum()).pow(config.majority)
    weights = (weights / weights.sum())[:, None]
    potentials = torch.zeros(len(counts), channel.pool_size, dtype=torch.float64, device=classes.device)
    for number in range(1, config.rounds + 1):
        rows = _rows_of_round(len(classes), config.records_per_round, generator).to(classes.device)
        marginals, shares = _class_marginals(channel, seen, rows, classes, potentials.float())  # q_c
        present = shares > 0  # a round on a part of the records may miss a small class, and then leaves it as it is
        logs = marginals.log().clamp_min(SMALLEST_LOG)
        shared = F.log_softmax((weights * present * logs).sum(dim=0) / (weights * present).sum(), dim=0)  # ln m
        gap = float((present * (marginals - shared.exp()).abs()).sum(dim=1).max() / 2)
        last = gap <= config.tolerance or number == config.rounds
        figures = {"total": gap, "private_information": _information(marginals, shares)}
        on_epoch(Epoch(number, number if last else config.rounds, figures))
        if last:
            break
        step = 1.0 if len(rows) == len(classes) else min(1.0, UNDAMPED_ROUNDS / number)
        potentials += step * present * (shared - logs)
    return potentials.float()


def _rows_of_round(n_records: int, at_most: int, generator: torch.Generator) -> Tensor:
    if n_records <= at_most:
        return torch.arange(n_records)
    return torch.randperm(n_records, generator=generator)[:at_most].sort().values


def _class_marginals(
    channel: TransportChannel, seen: Seen, rows: Tensor, classes: Tensor, potentials: Tensor
) -> tuple[Tensor, Tensor]:
    """(q (classes, pool), shares (classes, 1)) of these records; a class without a record among them has q = 0."""
    sums = torch.zeros(potentials.shape, dtype=torch.float64, device=potentials.device)
    for block in rows.split(BLOCK_ROWS):
        with torch.inference_mode():
            probabilities = F.softmax(channel.log_kernel(seen.rows(block)).add_(potentials[classes[block]]), dim=1)
            members = F.one_hot(classes[block], len(potentials)).to(probabilities.dtype)
            sums += (members.T @ probabilities).double()
    counts = torch.bincount(classes[rows], minlength=len(potentials)).double()[:, None]
    return sums / counts.clamp_min(1), counts / counts.sum()


def _information(marginals: Tensor, shares: Tensor) -> float:
    """I(X';S) of class distributions, nats."""
    mixture = (shares * marginals).sum(dim=0)
    return max(0.0, float((shares * torch.xlogy(marginals, marginals)).sum() - torch.xlogy(mixture, mixture).sum()))
