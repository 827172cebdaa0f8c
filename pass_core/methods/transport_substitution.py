"""Transport: the donors' distribution is made the same for every private class, at the least cost in feature space.

I(X';S) = 0 means that P(X'|S=s) is one distribution m over donors, whatever s. Among all such channels this method takes the one
that moves records least and keeps the useful class: an entropic optimal transport problem to a shared, free marginal (a
Wasserstein barycentre of the classes on the pool), solved by Sinkhorn scaling in the log domain.

    ln kernel   k(x,d) = cos(φ(x), φ(d))/ε + ω Σ_j ln p(U_j = U'_j(d) | x)
    channel     P_c(d|x) = softmax over d of k(x,d) + v_c(d)                      of private class c
    round       q_c = mean over records of class c of P_c;  ln m = Σ_c w_c ln q_c;  v_c += ln m − ln q_c
    release     P(d|x) = Σ_c p(S=c|x) P_c(d|x)                                    over the likeliest classes

Several private attributes count as one: their combinations that occur in training are the classes. p(S|x) and p(U|x) come from
one small network; φ are the features themselves, standardised (for signal windows their log spectrum, which is blind to phase).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pass_core.data import Attribute, FloatArray, IntArray, Records, with_role
from pass_core.epochs import Epoch, OnEpoch
from pass_core.errors import ConfigError, MethodError
from pass_core.methods.base import Setting
from pass_core.networks import build_network
from pass_core.parallel import share_statistics
from pass_core.randomness import torch_generator
from pass_core.run import Run
from pass_core.substitution import BLOCK_ROWS, draw_substitutes, padded_blocks
from pass_core.training import TrainConfig, encoder_precision, minimise

SMALLEST_LOG = -80.0  # ln of a class's share of a donor it never draws: far below any that counts


@dataclass(frozen=True, slots=True)
class TransportConfig:
    """How sharp, how faithful to the useful class, how long."""

    epsilon: float = 0.01  # ε: temperature of similarity; smaller keeps more of the record, larger mixes more
    useful_weight: float = 1.0  # ω
    rounds: int = 60
    tolerance: float = 0.001  # stop when no class's distribution over donors is farther than this from the shared one
    class_weighting: Literal["records", "equal"] = "records"  # w_c: equal shares the cost fairly, records costs least in all
    likeliest: int = 3  # private classes that a release mixes over
    records_per_round: int = 50_000  # of a larger training set a random part is used

    def __post_init__(self) -> None:
        for name in ("epsilon", "tolerance"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name}: expected above 0, found {getattr(self, name)}")
        for name in ("rounds", "likeliest", "records_per_round"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: expected at least 1, found {getattr(self, name)}")
        if self.useful_weight < 0:
            raise ConfigError(f"useful_weight: expected 0 or more, found {self.useful_weight}")


@dataclass(frozen=True)
class TransportChannel:
    """Everything that P(x'|x) is computed from."""

    classifier: nn.Module  # logits of the private combinations, then of every useful attribute
    mean: Tensor  # (dim,) and
    scale: Tensor  # (dim,) of φ over training records
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
        likeliest = min(self.config.likeliest, len(self.potentials))
        for rows, padded in padded_blocks(features, self.donors.device):
            with torch.inference_mode():
                kernel, posterior = self.log_kernel(padded)
                shares, classes = posterior.exp().topk(likeliest, dim=1)
                shares = shares / shares.sum(dim=1, keepdim=True)
                scores = torch.zeros_like(kernel)
                for k in range(likeliest):
                    scores += shares[:, k : k + 1] * F.softmax(kernel + self.potentials[classes[:, k]], dim=1)
            yield rows, scores[: rows.stop - rows.start].cpu().numpy()

    def log_kernel(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """(ln kernel (n, pool), ln p(S|x) (n, combinations)) of records."""
        logits = self.classifier(features).split([len(self.potentials), *self.useful_classes], dim=1)
        similarity = unit(describe(features), self.mean, self.scale) @ self.donors.T
        kernel = similarity / self.config.epsilon
        for scores, labels in zip(logits[1:], self.useful_donors, strict=True):
            kernel = kernel + self.config.useful_weight * F.log_softmax(scores, dim=1)[:, labels]
        return kernel, F.log_softmax(logits[0], dim=1)


def describe(features: Tensor) -> Tensor:
    """φ before standardising: vectors as they are, of windows (channels, time) the log spectrum of every channel."""
    if features.ndim == 2:
        return features
    return torch.log1p(torch.fft.rfft(features, dim=-1).abs()).flatten(1)


def unit(described: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    return F.normalize((described - mean) / scale, dim=1)


@dataclass(frozen=True, slots=True)
class FittedTransport:
    """A solved channel and the donors' features it releases."""

    channel: TransportChannel
    donor_features: FloatArray  # (pool, *shape)

    def transform(self, features: FloatArray, rng: np.random.Generator) -> FloatArray:
        return draw_substitutes(self.channel, features, self.donor_features, rng)

    def state_dict(self) -> dict[str, Tensor]:
        classifier = {f"classifier.{name}": value for name, value in self.channel.classifier.state_dict().items()}
        return classifier | {"mean": self.channel.mean, "scale": self.channel.scale, "potentials": self.channel.potentials}


class TransportSubstitution:
    """Transport."""

    summary: ClassVar[str] = "transport: donors' distribution equal for every private class, records moved as little as possible"
    config_type: ClassVar[type[TransportConfig]] = TransportConfig

    def fit(
        self,
        data: Records,
        setting: Setting,
        config: TransportConfig,
        training: TrainConfig,
        rng: np.random.Generator,
        run: Run,
    ) -> FittedTransport:
        """Trains the classifier, then scales until every private class has the same distribution over donors.

        No record is held out: what is told per round is computed on the records it learns from, and stops by itself.

        Raises:
            MethodError: no private or no useful attribute.
        """
        private, useful = with_role(setting.attributes, "private"), with_role(setting.attributes, "useful")
        if not private or not useful:
            raise MethodError("transport needs at least one private and one useful attribute; see the data set's section")
        combined = combinations([data.labels[a.name] for a in private])
        n_combinations = int(combined.max()) + 1
        generator = torch_generator(rng)
        drawn = _classifier(data.feature_shape, n_combinations, useful, generator)
        classifier = share_statistics(drawn, run.world).to(setting.device)
        features = torch.from_numpy(data.features).to(setting.device)
        targets = [torch.from_numpy(labels).to(setting.device) for labels in (combined, *(data.labels[a.name] for a in useful))]
        widths = [n_combinations, *(a.n_classes for a in useful)]

        def batch_loss(rows: Tensor, epoch: int) -> dict[str, Tensor]:  # noqa: ARG001 (the data are the same every epoch)
            with encoder_precision(training, setting.device):
                logits = classifier(features[rows])
            heads = logits.float().split(widths, dim=1)
            losses = [F.cross_entropy(head, target[rows]) for head, target in zip(heads, targets, strict=True)]
            return {"total": run.world.mean(torch.stack(losses).sum())}

        classifier.train()
        quiet = Run(checkpoints=run.checkpoints, world=run.world)  # the curves are those of the rounds
        minimise(batch_loss, classifier.state_dict(keep_vars=True), len(data), training, generator, quiet)
        described = describe(features)
        mean, scale = described.mean(dim=0), described.std(dim=0, correction=0).clamp_min(1e-6)
        start = torch.zeros(n_combinations, len(setting.pool), device=setting.device)
        channel = _channel(classifier.eval(), mean, scale, start, setting, config)
        chosen = torch.randperm(len(data), generator=generator)[: config.records_per_round].sort().values
        potentials = scale_potentials(channel, features[chosen], targets[0][chosen], config, run.on_epoch)
        return FittedTransport(_channel(classifier, mean, scale, potentials, setting, config), setting.pool.features)

    def from_state_dict(self, state: Mapping[str, Tensor], setting: Setting, config: TransportConfig) -> FittedTransport:
        potentials = state["potentials"]
        if potentials.shape[1] != len(setting.pool):
            raise MethodError(f"the model knows {potentials.shape[1]} donors, the pool has {len(setting.pool)}: retrain")
        useful = with_role(setting.attributes, "useful")
        if not useful:
            raise MethodError("transport scores records against its donors themselves: load it together with its pool")
        # The weights drawn here are overwritten at once; any generator does.
        classifier = _classifier(setting.pool.feature_shape, len(potentials), useful, torch.Generator().manual_seed(0))
        prefix = "classifier."
        classifier.load_state_dict({name.removeprefix(prefix): v for name, v in state.items() if name.startswith(prefix)})
        moved = {name: state[name].to(setting.device) for name in ("mean", "scale", "potentials")}
        channel = _channel(classifier.to(setting.device).eval(), setting=setting, config=config, **moved)
        return FittedTransport(channel, setting.pool.features)


def combinations(labels: list[IntArray]) -> IntArray:
    """One label per record for the combination of its private classes; only combinations that occur are counted."""
    _, combined = np.unique(np.stack(labels), axis=1, return_inverse=True)
    return combined.reshape(-1).astype(np.int64)


def scale_potentials(
    channel: TransportChannel, features: Tensor, classes: Tensor, config: TransportConfig, on_epoch: OnEpoch
) -> Tensor:
    """Sinkhorn rounds over blocks of records: memory is that of one block, whatever their number."""
    n_classes = len(channel.potentials)
    counts = torch.bincount(classes, minlength=n_classes).double()
    weights = counts / counts.sum() if config.class_weighting == "records" else torch.full_like(counts, 1 / n_classes)
    shares = (counts / counts.sum())[:, None]
    potentials = channel.potentials.double()
    for number in range(1, config.rounds + 1):
        marginals = _class_marginals(channel, features, classes, potentials.float()) / counts[:, None]  # q_c
        logs = marginals.log().clamp_min(SMALLEST_LOG)
        shared = F.log_softmax((weights[:, None] * logs).sum(dim=0), dim=0)  # ln m
        gap = float((marginals - shared.exp()).abs().sum(dim=1).max() / 2)  # the farthest class's total variation
        mixture = (shares * marginals).sum(dim=0)
        information = float((shares * torch.xlogy(marginals, marginals)).sum() - torch.xlogy(mixture, mixture).sum())
        last = gap <= config.tolerance or number == config.rounds
        on_epoch(Epoch(number, number if last else config.rounds, {"total": gap, "private_information": max(0.0, information)}))
        if last:
            break
        potentials += shared - logs
    return potentials.float()


def _class_marginals(channel: TransportChannel, features: Tensor, classes: Tensor, potentials: Tensor) -> Tensor:
    """Sums (classes, pool) over the records of each class of their row of P."""
    sums = torch.zeros(potentials.shape, dtype=torch.float64, device=features.device)
    for start in range(0, len(features), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        with torch.inference_mode():
            kernel, _ = channel.log_kernel(features[block])
            rows = F.softmax(kernel.add_(potentials[classes[block]]), dim=1)
            members = F.one_hot(classes[block], len(potentials)).to(rows.dtype)
            sums += (members.T @ rows).double()
    return sums


def _classifier(
    shape: tuple[int, ...], n_combinations: int, useful: tuple[Attribute, ...], generator: torch.Generator
) -> nn.Module:
    return build_network("auto", shape, n_combinations + sum(a.n_classes for a in useful), generator)


def _channel(
    classifier: nn.Module, mean: Tensor, scale: Tensor, potentials: Tensor, setting: Setting, config: TransportConfig
) -> TransportChannel:
    useful = with_role(setting.attributes, "useful")
    described = describe(torch.tensor(setting.pool.features, device=setting.device))
    return TransportChannel(
        classifier=classifier,
        mean=mean,
        scale=scale,
        donors=unit(described, mean, scale),
        potentials=potentials,
        useful_donors=tuple(torch.from_numpy(setting.pool.labels[a.name]).to(setting.device) for a in useful),
        useful_classes=tuple(a.n_classes for a in useful),
        config=config,
    )


METHOD = TransportSubstitution()
