"""PASS: a learnt substitution channel over a pool of real donors (ICML 2025)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from pass_core.data import FloatArray, Records, one_hot, with_role
from pass_core.errors import ConfigError, MethodError
from pass_core.exact import entropy
from pass_core.losses import bound_constant
from pass_core.methods.base import Setting
from pass_core.networks import NetworkKind, build_network
from pass_core.objective import Objective
from pass_core.parallel import share_statistics
from pass_core.randomness import torch_generator
from pass_core.run import Run
from pass_core.substitution import SubstitutionChannel, draw_substitutes
from pass_core.training import TrainConfig, Validation, encoder_precision, minimise
from pass_core.validation import TOTAL, HeldOut


@dataclass(frozen=True, slots=True)
class PassConfig:
    """The channel and the weights of its objective; null weights take the rule of the paper's experiments."""

    temperature: float = 0.01  # τ
    embedding_size: int = 512
    encoder: NetworkKind = "auto"
    useful_weight: float | None = None  # λ of eq. 1; null: number of private / number of useful attributes
    general_weight: float | None = None  # μ of eq. 1; null: 0.2 × number of private attributes

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise ConfigError(f"temperature: expected above 0, found {self.temperature}")
        if self.embedding_size < 1:
            raise ConfigError(f"embedding_size: expected at least 1, found {self.embedding_size}")
        for name in ("useful_weight", "general_weight"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ConfigError(f"{name}: expected 0 or more, or null, found {value}")

    def weights(self, n_private: int, n_useful: int) -> tuple[float, float]:
        """(λ, μ) for these numbers of attributes; μ above the number of private ones would break the bound."""
        useful = n_private / n_useful if self.useful_weight is None else self.useful_weight
        general = 0.2 * n_private if self.general_weight is None else self.general_weight
        if general > n_private:
            raise ConfigError(f"general_weight: expected at most the {n_private} private attribute(s), found {general}")
        return useful, general


@dataclass(frozen=True, slots=True)
class FittedPass:
    """A trained channel and the donors' features it releases."""

    channel: SubstitutionChannel
    donor_features: FloatArray  # (pool, *shape)

    def transform(self, features: FloatArray, rng: np.random.Generator) -> FloatArray:
        return draw_substitutes(self.channel, features, self.donor_features, rng)

    def state_dict(self) -> dict[str, Tensor]:
        encoder = {f"encoder.{name}": value for name, value in self.channel.encoder.state_dict().items()}
        return encoder | {"donors": self.channel.donors}


class PassSubstitution:
    """PASS."""

    summary: ClassVar[str] = "PASS: every record replaced by a real donor's, drawn from a trained P(x'|x)"
    config_type: ClassVar[type[PassConfig]] = PassConfig

    def fit(
        self,
        data: Records,
        setting: Setting,
        config: PassConfig,
        training: TrainConfig,
        rng: np.random.Generator,
        run: Run,
    ) -> FittedPass:
        """Minimises Σ L_S + λ Σ L_U + μ L_X (eq. 3 with the signs of its proof) over the encoder f and the donors' embeddings g.

        Told per epoch: every term, and `bound`, above which Σ I(X';S) − λ Σ I(X';U) − μ I(X';X) is not on average (eq. 9); with
        held-out records, which are not trained on, also that sum and its parts as they are on them.

        Raises:
            MethodError: no private or no useful attribute, or a useful class without a donor.
        """
        private, useful = with_role(setting.attributes, "private"), with_role(setting.attributes, "useful")
        if not private or not useful:
            raise MethodError(
                "PASS needs at least one private and one useful attribute; see the data set's section in params.yaml"
            )
        useful_weight, general_weight = config.weights(len(private), len(useful))
        generator = torch_generator(rng)
        held_out = HeldOut.choose(data.subset(run.held_out), private + useful, rng)
        data = data.subset(np.setdiff1d(np.arange(len(data)), run.held_out))
        encoder = share_statistics(_encoder(config, data.feature_shape, generator), run.world).to(setting.device)
        donors = torch.randn(len(setting.pool), config.embedding_size, generator=generator).to(setting.device).requires_grad_()
        features = torch.from_numpy(data.features).to(setting.device)
        labels = {a.name: torch.from_numpy(data.labels[a.name]).to(setting.device) for a in private + useful}
        for attribute in useful:
            if not np.isin(data.labels[attribute.name], setting.pool.labels[attribute.name]).all():
                raise MethodError(f"a class of useful attribute {attribute.name!r} has no donor: raise pool.donors")

        carried = tuple(
            torch.from_numpy(one_hot(setting.pool.labels[a.name], a.n_classes).T.astype(np.float32)).to(setting.device)
            for a in useful
        )
        n_classes = tuple(a.n_classes for a in private)
        objective = Objective(n_classes, carried, useful_weight, general_weight, config.temperature, world=run.world)
        entropies = [entropy(np.bincount(data.labels[a.name]) / len(data)) for a in useful]
        constant = bound_constant(len(private), len(setting.pool), entropies, useful_weight, general_weight)
        names = [*(f"private_{a.name}" for a in private), *(f"useful_{a.name}" for a in useful), "spread", "general"]

        def batch_loss(rows: Tensor, epoch: int) -> dict[str, Tensor]:  # noqa: ARG001 (the data are the same every epoch)
            classes = [[labels[a.name][rows] for a in kind] for kind in (private, useful)]
            with encoder_precision(training, setting.device):
                embedded = encoder(features[rows])
            total, terms = objective(embedded.float(), donors, *classes)
            return {"total": total, **dict(zip(names, terms, strict=True)), "bound": total.detach() + constant}

        def figures() -> dict[str, float]:
            channel = SubstitutionChannel(encoder, donors.detach(), config.temperature)
            told = held_out.figures(channel, useful_weight, general_weight)
            encoder.train()
            return told

        encoder.train()
        learnt = {**encoder.state_dict(keep_vars=True), "donors": donors}
        validation = Validation(figures, TOTAL, training.patience) if len(held_out.records) else None
        minimise(batch_loss, learnt, len(data), training, generator, run, validation)
        return _fitted(encoder, donors.detach(), config, setting)

    def from_state_dict(self, state: Mapping[str, Tensor], setting: Setting, config: PassConfig) -> FittedPass:
        # The weights drawn here are overwritten at once; any generator does.
        encoder = _encoder(config, setting.pool.feature_shape, torch.Generator().manual_seed(0))
        encoder.load_state_dict({name.removeprefix("encoder."): v for name, v in state.items() if name.startswith("encoder.")})
        if len(state["donors"]) != len(setting.pool):
            raise MethodError(f"the model knows {len(state['donors'])} donors, the pool has {len(setting.pool)}: retrain")
        return _fitted(encoder.to(setting.device), state["donors"].to(setting.device), config, setting)


def _encoder(config: PassConfig, shape: tuple[int, ...], generator: torch.Generator) -> nn.Module:
    return build_network(config.encoder, shape, config.embedding_size, generator)


def _fitted(encoder: nn.Module, donors: Tensor, config: PassConfig, setting: Setting) -> FittedPass:
    return FittedPass(SubstitutionChannel(encoder.eval(), donors, config.temperature), setting.pool.features)


METHOD = PassSubstitution()
