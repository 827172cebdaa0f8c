"""PASS: a learnt substitution channel over a pool of real donors (ICML 2025)."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from pass_core.channel.entanglement import joint_entropy
from pass_core.channel.substitution import SubstitutionChannel
from pass_core.checks import Checked, ranged
from pass_core.data import Attribute, IntArray, Records, Rng, combinations, one_hot
from pass_core.errors import ConfigError, MethodError
from pass_core.methods._pass_objective import Objective, bound_constant
from pass_core.methods.base import FittedChannel, ReleaseContext
from pass_core.methods.transport.cells import cell_attributes
from pass_core.methods.transport.channel import TransportConfig
from pass_core.methods.transport.solver import solve_transport
from pass_core.randomness import torch_generator
from pass_core.training.context import TrainingContext
from pass_core.training.cross_fit import Steps, cross_fitted, networks_of, rebuilt
from pass_core.training.held_out import TOTAL, HeldOut
from pass_core.training.loop import TrainConfig, Validation, encoder_precision, minimise
from pass_core.training.networks import NetworkKind, below, restored, standardised_network, with_prefix
from pass_core.training.parallel import World, share_statistics

Preset = Literal["paper", "improved"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The weights of the objective's terms (`pass_core.methods._pass_objective`)."""

    private: float  # α
    spread: float  # β
    useful: float  # λ
    general: float  # μ
    teacher: float  # ν
    known: float  # κ

    @property
    def bounded(self) -> bool:
        """Whether this is eq. 3, for which the bound of eq. 9 holds."""
        return (self.private, self.spread, self.teacher, self.known) == (1.0, 1.0, 0.0, 0.0)


def preset_weights(preset: Preset, n_private: int, n_useful: int) -> Weights:
    """`paper`: eq. 3 with the rule of its experiments. `improved`: imitates transport and keeps the useful class."""
    if preset == "paper":
        return Weights(private=1.0, spread=1.0, useful=n_private / n_useful, general=0.2 * n_private, teacher=0.0, known=0.0)
    return Weights(private=0.0, spread=0.0, useful=0.3 / n_useful, general=0.0, teacher=1.0, known=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassConfig(Checked):
    """The channel and the weights of its objective; null: the preset's weight."""

    preset: Preset = "paper"
    temperature: float = ranged(0.01, above=0)  # τ
    embedding_size: int = ranged(512, at_least=1)
    # standard deviation of the donors' embeddings at the start: cosines do not see a length, but a long vector turns slowly
    donor_length: float = ranged(0.02, above=0)
    encoder: NetworkKind = "auto"
    private_weight: float | None = ranged(None, at_least=0)  # α
    spread_weight: float | None = ranged(None, at_least=0)  # β
    useful_weight: float | None = ranged(None, at_least=0)  # λ of eq. 1
    general_weight: float | None = ranged(None, at_least=0)  # μ of eq. 1
    teacher_weight: float | None = ranged(None, at_least=0)  # ν
    known_weight: float | None = ranged(None, at_least=0)  # κ: hide also from who knows an attribute of attacker.knows
    teacher_epsilon: float = ranged(0.015, above=0)  # ε of the transport that is imitated
    folds: int = ranged(
        1, at_least=1
    )  # encoders, each of which has not seen a part of the training records; 1: one that has seen all
    joint_private: bool = False  # hide the combination of private attributes: two that are hidden singly can leak together

    def weights(self, n_private: int, n_useful: int) -> Weights:
        """The weights for these numbers of attributes; μ above the number of private ones would break the bound."""
        chosen = {field.name: getattr(self, f"{field.name}_weight") for field in dataclasses.fields(Weights)}
        weights = dataclasses.replace(
            preset_weights(self.preset, n_private, n_useful), **{name: v for name, v in chosen.items() if v is not None}
        )
        if weights.general > n_private:
            raise ConfigError(f"general_weight: expected at most the {n_private} private attribute(s), found {weights.general}")
        return weights


class PassSubstitution:
    """PASS."""

    summary: ClassVar[str] = "PASS: every record replaced by a real donor's, drawn from a trained P(x'|x)"
    config_type: ClassVar[type[PassConfig]] = PassConfig

    def fit(
        self, data: Records, *, context: ReleaseContext, config: PassConfig, training: TrainConfig, rng: Rng, run: TrainingContext
    ) -> FittedChannel:
        """Minimises the preset's objective, by default Σ L_S + λ Σ L_U + μ L_X (eq. 3), over the encoder f and the embeddings g.

        Each epoch reports the terms; for eq. 3 `bound`, an upper bound on Σ I(X';S) − λ Σ I(X';U) − μ I(X';X) on average (eq. 9);
        and, with held-out records, that sum and its parts on them.
        """
        private, useful = context.needed("private"), context.needed("useful")
        if config.joint_private:
            data, private = _joined(data, private)
        weights = config.weights(len(private), len(useful))
        generator = torch_generator(rng)
        held_out = HeldOut.choose(data.subset(run.held_out), private + useful, rng)
        kept_rows = run.trained_rows(len(data))
        data, exclusion = data.subset(kept_rows), context.exclusion and context.exclusion.subset(kept_rows)
        context = dataclasses.replace(context, exclusion=exclusion)
        folds = run.folds(kept_rows, config.folds, rng)
        encoder = share_statistics(_encoder(config, data, folds, generator, rng), run.world).to(context.device)
        features = torch.from_numpy(data.features).to(context.device)
        donors = config.donor_length * torch.randn(len(context.pool), config.embedding_size, generator=generator)
        donors = donors.to(context.device).requires_grad_()
        known = cell_attributes(data.labels, context.attributes, context.known) if weights.known else ()
        labels = {a.name: torch.from_numpy(data.labels[a.name]).to(context.device) for a in {*private, *useful, *known}}
        teacher: _Teacher | None = None
        if weights.teacher:
            teacher = _teacher(data, context, config, training=training, rng=rng, world=run.world)
        roles = _Roles(private, useful, known)
        objective = _objective(data, context, roles, weights=weights, config=config, world=run.world, fast=training.amp)
        entropies = [joint_entropy([data.labels[a.name]]) for a in useful]
        constant = bound_constant(len(private), len(context.pool), entropies, (weights.useful, weights.general))
        batch_loss = _BatchLoss(
            objective=objective,
            networks=networks_of(encoder),
            donors=donors,
            features=features,
            labels=labels,
            roles=roles,
            teacher=teacher,
            constant=constant if weights.bounded else None,
            steps=Steps(folds),
            training=training,
        )

        # Judged by eq. 1: a teacher's weights define the way, not the goal.
        judged = preset_weights("paper", len(private), len(useful)) if teacher else weights

        def figures() -> dict[str, float]:
            channel = SubstitutionChannel(encoder, donors.detach(), config.temperature)
            found = held_out.figures(channel, judged.useful, judged.general)
            encoder.train()
            return found

        encoder.train()
        learnt = {**encoder.state_dict(keep_vars=True), "donors": donors}
        validation = Validation(figures, TOTAL, training.patience) if len(held_out.records) else None
        minimise(batch_loss, learnt, len(batch_loss.steps), training, generator=generator, run=run, validation=validation)
        notes = tuple(f"the imitated transport: {note}" for note in teacher.notes) if teacher else ()
        return dataclasses.replace(_fitted(encoder, donors.detach(), config, context), notes=notes)

    def from_state_dict(self, state: Mapping[str, Tensor], context: ReleaseContext, config: PassConfig) -> FittedChannel:
        context.check_pool(len(state["donors"]))
        kind, shape, size = config.encoder, context.pool.feature_shape, config.embedding_size
        learnt = below("encoder", state)
        encoder = restored(
            lambda any_: rebuilt(lambda: standardised_network(kind, shape, size, any_), config.folds, learnt), learnt
        )
        return _fitted(encoder.to(context.device), state["donors"].to(context.device), config, context)

    def without_donors(self, state: Mapping[str, Tensor], kept: IntArray) -> dict[str, Tensor]:
        return {**state, "donors": state["donors"][torch.from_numpy(kept)]}


def _encoder(config: PassConfig, data: Records, folds: IntArray, generator: torch.Generator, rng: Rng) -> nn.Module:
    """The encoder of these records, or one for every fold."""

    def build(rows: IntArray) -> nn.Module:
        learnt_from = torch.from_numpy(data.features[rows])
        return standardised_network(config.encoder, data.feature_shape, config.embedding_size, generator, learnt_from)

    return cross_fitted(build, data.features, folds, rng)


def _joined(data: Records, private: tuple[Attribute, ...]) -> tuple[Records, tuple[Attribute, ...]]:
    """The records with the combination of their private classes as one attribute."""
    combined = combinations([data.labels[a.name] for a in private])
    name = " and ".join(a.name for a in private)
    joint = Attribute(name, tuple(str(k) for k in range(int(combined.max()) + 1)), "private")
    return Records(data.features, {**data.labels, name: combined}), (joint,)


@dataclass(frozen=True, slots=True)
class _Roles:
    """The attributes that the objective names."""

    private: tuple[Attribute, ...]
    useful: tuple[Attribute, ...]
    known: tuple[Attribute, ...]  # what recipients know, where κ is not 0

    def terms(self, *, taught: bool) -> list[str]:
        """Names of the objective's terms, in its order."""
        single = [*(f"private_{a.name}" for a in self.private), *(f"useful_{a.name}" for a in self.useful)]
        pairs = [f"private_information_{s.name}_given_{a.name}" for s in self.private for a in self.known]
        return [*single, "spread", "general", *(["teacher"] if taught else []), *pairs]


@dataclass(frozen=True, slots=True)
class _Teacher:
    """What is imitated."""

    rows: Callable[[Tensor], Tensor]  # record indices -> its rows of P
    notes: tuple[str, ...]  # what it leaves visible


@dataclass(frozen=True, slots=True, kw_only=True)
class _BatchLoss:
    """The objective of a batch for every encoder, each on records that it may learn from; encoders share the donors."""

    objective: Objective
    networks: Sequence[nn.Module]
    donors: Tensor
    features: Tensor
    labels: Mapping[str, Tensor]
    roles: _Roles
    teacher: _Teacher | None
    constant: float | None  # of the bound, where the objective is eq. 3
    steps: Steps
    training: TrainConfig

    def __call__(self, places: Tensor, epoch: int) -> dict[str, Tensor]:
        found = [self._of(*each) for each in zip(self.networks, self.steps.rows(places, epoch), strict=True)]
        return {name: torch.stack([terms[name] for terms in found]).mean() for name in found[0]}

    def _of(self, network: nn.Module, rows: Tensor) -> dict[str, Tensor]:
        roles, teacher = self.roles, self.teacher
        hidden, kept, given = ([self.labels[a.name][rows] for a in kind] for kind in (roles.private, roles.useful, roles.known))
        with encoder_precision(self.training, self.features.device):
            embedded = network(self.features[rows])
        imitated = teacher.rows(rows) if teacher else None
        total, terms = self.objective(embedded.float(), self.donors, hidden, kept, teacher=imitated, known=given)
        bound = {} if self.constant is None else {"bound": total.detach() + self.constant}
        return {"total": total, **dict(zip(roles.terms(taught=teacher is not None), terms, strict=True)), **bound}


def _teacher(
    data: Records, context: ReleaseContext, config: PassConfig, *, training: TrainConfig, rng: Rng, world: World
) -> _Teacher:
    """Transport solved on the same records.

    A resumed training solves it again: that takes minutes where training takes longer, and gives the same result.
    """
    transport, run = TransportConfig(epsilon=config.teacher_epsilon), TrainingContext(world=world)
    channel, notes = solve_transport(data, context=context, config=transport, training=training, rng=rng, run=run)
    seen = channel.look_at(torch.from_numpy(data.features).to(context.device), context.exclusion)
    return _Teacher(lambda rows: channel.mixed(seen.rows(rows)), notes)


def _objective(
    data: Records,
    context: ReleaseContext,
    roles: _Roles,
    *,
    weights: Weights,
    config: PassConfig,
    world: World,
    fast: bool,
) -> Objective:
    for attribute in roles.useful:
        if not np.isin(data.labels[attribute.name], context.pool.labels[attribute.name]).all():
            raise MethodError(
                f"pool: expected a donor of each class of {attribute.name!r}, found a class without; raise pool.donors"
            )
    carried = [one_hot(context.pool.labels[a.name], a.n_classes).T.astype(np.float32) for a in roles.useful]
    return Objective(
        private_classes=tuple(a.n_classes for a in roles.private),
        known_classes=tuple(a.n_classes for a in roles.known),
        useful_donors=tuple(torch.from_numpy(indicators).to(context.device) for indicators in carried),
        temperature=config.temperature,
        fast=fast,
        world=world,
        **{f"{name}_weight": weight for name, weight in dataclasses.asdict(weights).items()},
    )


def _fitted(encoder: nn.Module, donors: Tensor, config: PassConfig, context: ReleaseContext) -> FittedChannel:
    learnt = with_prefix("encoder", encoder.state_dict()) | {"donors": donors}
    return FittedChannel(SubstitutionChannel(encoder.eval(), donors, config.temperature), context.pool.features, learnt)


METHOD = PassSubstitution()
