"""PASS: a learnt substitution channel over a pool of real donors (ICML 2025)."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from pass_core.channel.joint_law import entropy
from pass_core.channel.substitution import SubstitutionChannel, draw_substitutes
from pass_core.data import Attribute, FloatArray, IntArray, Records, combinations, one_hot, with_role
from pass_core.errors import ConfigError, MethodError
from pass_core.methods._pass_losses import bound_constant
from pass_core.methods._pass_objective import Objective
from pass_core.methods.base import ReleaseContext
from pass_core.methods.transport.solver import TransportConfig, solve_transport
from pass_core.randomness import torch_generator
from pass_core.training.context import TrainingContext
from pass_core.training.held_out import TOTAL, HeldOut
from pass_core.training.loop import TrainConfig, Validation, encoder_precision, minimise
from pass_core.training.networks import NetworkKind, build_network
from pass_core.training.parallel import share_statistics

Preset = Literal["paper", "improved"]


@dataclass(frozen=True, slots=True)
class Weights:
    """Of the terms of the objective (`pass_core.methods._pass_objective`)."""

    private: float  # α
    spread: float  # β
    useful: float  # λ
    general: float  # μ
    teacher: float  # ν

    @property
    def bounded(self) -> bool:
        """Whether this is eq. 3, for which the bound of eq. 9 holds."""
        return (self.private, self.spread, self.teacher) == (1.0, 1.0, 0.0)


def preset_weights(preset: Preset, n_private: int, n_useful: int) -> Weights:
    """`paper`: eq. 3 with the rule of its experiments. `improved`: imitates transport, and is held to the useful class."""
    if preset == "paper":
        return Weights(private=1.0, spread=1.0, useful=n_private / n_useful, general=0.2 * n_private, teacher=0.0)
    return Weights(private=0.0, spread=0.0, useful=0.3 / n_useful, general=0.0, teacher=1.0)


@dataclass(frozen=True, slots=True)
class PassConfig:
    """The channel and the weights of its objective; null weights are the preset's."""

    preset: Preset = "paper"
    temperature: float = 0.01  # τ
    embedding_size: int = 512
    encoder: NetworkKind = "auto"
    private_weight: float | None = None  # α
    spread_weight: float | None = None  # β
    useful_weight: float | None = None  # λ of eq. 1
    general_weight: float | None = None  # μ of eq. 1
    teacher_weight: float | None = None  # ν
    teacher_epsilon: float = 0.015  # ε of the transport that is imitated
    joint_private: bool = False  # hide the combination of the private attributes: two that are hidden singly can tell together

    def __post_init__(self) -> None:
        for name in ("temperature", "teacher_epsilon"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name}: expected above 0, found {getattr(self, name)}")
        if self.embedding_size < 1:
            raise ConfigError(f"embedding_size: expected at least 1, found {self.embedding_size}")
        for field in dataclasses.fields(Weights):
            value = getattr(self, f"{field.name}_weight")
            if value is not None and value < 0:
                raise ConfigError(f"{field.name}_weight: expected 0 or more, or null, found {value}")

    def weights(self, n_private: int, n_useful: int) -> Weights:
        """For these numbers of attributes; μ above the number of private ones would break the bound."""
        chosen = {field.name: getattr(self, f"{field.name}_weight") for field in dataclasses.fields(Weights)}
        weights = dataclasses.replace(
            preset_weights(self.preset, n_private, n_useful), **{name: v for name, v in chosen.items() if v is not None}
        )
        if weights.general > n_private:
            raise ConfigError(f"general_weight: expected at most the {n_private} private attribute(s), found {weights.general}")
        return weights


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
        setting: ReleaseContext,
        config: PassConfig,
        training: TrainConfig,
        rng: np.random.Generator,
        run: TrainingContext,
    ) -> FittedPass:
        """Minimises the preset's objective, by default Σ L_S + λ Σ L_U + μ L_X (eq. 3), over the encoder f and the embeddings g.

        Told per epoch: every term; for eq. 3 `bound`, above which Σ I(X';S) − λ Σ I(X';U) − μ I(X';X) is not on average (eq. 9);
        with held-out records, which are not trained on, also that sum and its parts as they are on them.

        Raises:
            MethodError: no private or no useful attribute, or a useful class without a donor.
        """
        private, useful = with_role(setting.attributes, "private"), with_role(setting.attributes, "useful")
        if not private or not useful:
            raise MethodError(
                "PASS needs at least one private and one useful attribute; see the data set's section in params.yaml"
            )
        if config.joint_private:
            data, private = _joined(data, private)
        weights = config.weights(len(private), len(useful))
        generator = torch_generator(rng)
        held_out = HeldOut.choose(data.subset(run.held_out), private + useful, rng)
        kept_rows = np.setdiff1d(np.arange(len(data)), run.held_out)
        data, exclusion = data.subset(kept_rows), setting.exclusion and setting.exclusion.subset(kept_rows)
        setting = dataclasses.replace(setting, exclusion=exclusion)
        encoder = share_statistics(_encoder(config, data.feature_shape, generator), run.world).to(setting.device)
        donors = torch.randn(len(setting.pool), config.embedding_size, generator=generator).to(setting.device).requires_grad_()
        features = torch.from_numpy(data.features).to(setting.device)
        labels = {a.name: torch.from_numpy(data.labels[a.name]).to(setting.device) for a in private + useful}
        teacher = _teacher(data, setting, config, training, rng, run) if weights.teacher else None
        objective = _objective(data, setting, private, useful, weights, config, run)
        entropies = [entropy(np.bincount(data.labels[a.name]) / len(data)) for a in useful]
        constant = bound_constant(len(private), len(setting.pool), entropies, weights.useful, weights.general)
        names = [*(f"private_{a.name}" for a in private), *(f"useful_{a.name}" for a in useful), "spread", "general"]
        names += ["teacher"] if teacher else []

        def batch_loss(rows: Tensor, epoch: int) -> dict[str, Tensor]:  # noqa: ARG001 (the data are the same every epoch)
            hidden, kept = ([labels[a.name][rows] for a in kind] for kind in (private, useful))
            with encoder_precision(training, setting.device):
                embedded = encoder(features[rows])
            total, terms = objective(embedded.float(), donors, hidden, kept, teacher(rows) if teacher else None)
            bound = {"bound": total.detach() + constant} if weights.bounded else {}
            return {"total": total, **dict(zip(names, terms, strict=True)), **bound}

        # Judged by eq. 1: a teacher's weights say how to get there, not what is wanted.
        judged = preset_weights("paper", len(private), len(useful)) if teacher else weights

        def figures() -> dict[str, float]:
            channel = SubstitutionChannel(encoder, donors.detach(), config.temperature)
            told = held_out.figures(channel, judged.useful, judged.general)
            encoder.train()
            return told

        encoder.train()
        learnt = {**encoder.state_dict(keep_vars=True), "donors": donors}
        validation = Validation(figures, TOTAL, training.patience) if len(held_out.records) else None
        minimise(batch_loss, learnt, len(data), training, generator, run, validation)
        return _fitted(encoder, donors.detach(), config, setting)

    def from_state_dict(self, state: Mapping[str, Tensor], setting: ReleaseContext, config: PassConfig) -> FittedPass:
        # The weights drawn here are overwritten at once; any generator does.
        encoder = _encoder(config, setting.pool.feature_shape, torch.Generator().manual_seed(0))
        encoder.load_state_dict({name.removeprefix("encoder."): v for name, v in state.items() if name.startswith("encoder.")})
        if len(state["donors"]) != len(setting.pool):
            raise MethodError(f"the model knows {len(state['donors'])} donors, the pool has {len(setting.pool)}: retrain")
        return _fitted(encoder.to(setting.device), state["donors"].to(setting.device), config, setting)

    def without_donors(self, state: Mapping[str, Tensor], kept: IntArray) -> dict[str, Tensor]:
        return {**state, "donors": state["donors"][torch.from_numpy(kept)]}


def _joined(data: Records, private: tuple[Attribute, ...]) -> tuple[Records, tuple[Attribute, ...]]:
    """The records with the combination of their private classes as one attribute."""
    combined = combinations([data.labels[a.name] for a in private])
    name = " and ".join(a.name for a in private)
    joint = Attribute(name, tuple(str(k) for k in range(int(combined.max()) + 1)), "private")
    return Records(data.features, {**data.labels, name: combined}), (joint,)


def _teacher(
    data: Records,
    setting: ReleaseContext,
    config: PassConfig,
    training: TrainConfig,
    rng: np.random.Generator,
    run: TrainingContext,
) -> Callable[[Tensor], Tensor]:
    """Transport solved on the same records: record indices -> its rows of P.

    It is solved anew when a killed training goes on: it takes minutes where training takes longer, and comes out the same.
    """
    channel = solve_transport(
        data, setting, TransportConfig(config.teacher_epsilon), training, rng, TrainingContext(world=run.world)
    )
    seen = channel.look_at(torch.from_numpy(data.features).to(setting.device), setting.exclusion)
    return lambda rows: channel.probabilities(seen.rows(rows))


def _objective(
    data: Records,
    setting: ReleaseContext,
    private: tuple[Attribute, ...],
    useful: tuple[Attribute, ...],
    weights: Weights,
    config: PassConfig,
    run: TrainingContext,
) -> Objective:
    for attribute in useful:
        if not np.isin(data.labels[attribute.name], setting.pool.labels[attribute.name]).all():
            raise MethodError(f"a class of useful attribute {attribute.name!r} has no donor: raise pool.donors")
    carried = [one_hot(setting.pool.labels[a.name], a.n_classes).T.astype(np.float32) for a in useful]
    return Objective(
        private_classes=tuple(a.n_classes for a in private),
        useful_donors=tuple(torch.from_numpy(indicators).to(setting.device) for indicators in carried),
        useful_weight=weights.useful,
        general_weight=weights.general,
        temperature=config.temperature,
        private_weight=weights.private,
        spread_weight=weights.spread,
        teacher_weight=weights.teacher,
        world=run.world,
    )


def _encoder(config: PassConfig, shape: tuple[int, ...], generator: torch.Generator) -> nn.Module:
    return build_network(config.encoder, shape, config.embedding_size, generator)


def _fitted(encoder: nn.Module, donors: Tensor, config: PassConfig, setting: ReleaseContext) -> FittedPass:
    return FittedPass(SubstitutionChannel(encoder.eval(), donors, config.temperature), setting.pool.features)


METHOD = PassSubstitution()
