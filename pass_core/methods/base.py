"""The interface of obfuscation methods; what learns (Method) and what was learnt (Fitted) are different types."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

import pass_core.methods
from pass_core import discovery
from pass_core.attacks.base import Adversary
from pass_core.channel.substitution import BLOCK_ROWS, Channel, Exclusion, draw_substitutes
from pass_core.data import Attribute, FloatArray, IntArray, Records, Rng, Role, with_role
from pass_core.errors import ConfigError, MethodError
from pass_core.training.context import TrainingContext
from pass_core.training.held_out import hold_out
from pass_core.training.loop import TrainConfig


@dataclass(frozen=True, slots=True)
class ReleaseContext:
    """What is fixed before training and needed again at release: attributes with roles, donors, device."""

    attributes: tuple[Attribute, ...]
    pool: Records
    device: torch.device
    exclusion: Exclusion | None = None  # in training: donors that its records may not get at release
    known: tuple[str, ...] = ()  # in training: attributes that the recipient of the release knows of every record

    def needed(self, role: Role) -> tuple[Attribute, ...]:
        """The attributes of a role; raises MethodError when it has none."""
        found = with_role(self.attributes, role)
        if not found:
            raise MethodError(f"expected at least one {role} attribute, found none: declare one in the data set's section")
        return found

    def check_pool(self, n_donors: int) -> None:
        """Raises MethodError when a model was trained for a pool of another size."""
        if n_donors != len(self.pool):
            raise MethodError(f"expected a pool of the model's {n_donors} donors, found {len(self.pool)}; train again")


def known_attributes(
    attributes: tuple[Attribute, ...], knows: Sequence[str] | None, released: Sequence[str] = ()
) -> tuple[str, ...]:
    """What a protector hides from: what `Recipient.knows` names; by default the useful attributes, which a release shows anyway.

    Released classes are known to everybody. Nothing hides a private attribute from who knows it: such a name changes nothing. To
    hide from who knows a general attribute that is entangled with the private ones removes it, so it has to be named.
    """
    names = [a.name for a in attributes]
    if unknown := [name for name in knows or () if name not in names]:
        expected = f"expected attributes of the data set ({', '.join(names)}), found {', '.join(unknown)}"
        raise ConfigError(f"attacker.knows: {expected}; name attributes that are declared private, useful or general")
    declared = [a.name for a in attributes if a.role == "useful"] if knows is None else (*knows, *released)
    return tuple(a.name for a in attributes if a.role != "private" and a.name in declared)


class Fitted(Protocol):
    """A trained protector: small, frozen, saved as tensors."""

    @property
    def channel(self) -> Channel | None:
        """P(x'|x) over the pool for methods that substitute by donors, None for those that generate new records."""

    def transform(self, features: FloatArray, rng: Rng) -> FloatArray:
        """Protected records of the same shape, with fresh draws from `rng` (experiments and attacks only)."""

    def state_dict(self) -> dict[str, Tensor]:
        """Everything learnt, as tensors."""


@dataclass(frozen=True)
class FittedChannel:
    """A trained channel over the pool, with the tensors to save."""

    channel: Channel
    donor_features: FloatArray  # (pool, *shape)
    learnt: Mapping[str, Tensor]
    figures: Mapping[str, float] = field(default_factory=dict)  # of its training, beside the curves; not saved with the model
    notes: tuple[str, ...] = ()  # what training left visible, in sentences; not saved either

    def transform(self, features: FloatArray, rng: Rng) -> FloatArray:
        return draw_substitutes(self.channel, features, self.donor_features, rng)

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self.learnt)


@dataclass(frozen=True)
class RecordMaker:
    """A trained protector that generates new records, with the tensors to save."""

    release: Callable[[FloatArray, Rng], FloatArray]  # new records for one block
    learnt: Mapping[str, Tensor]

    @property
    def channel(self) -> None:
        """It draws no donors."""

    def transform(self, features: FloatArray, rng: Rng) -> FloatArray:
        released: FloatArray = np.empty_like(features)
        for start in range(0, len(features), BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            released[rows] = self.release(features[rows], rng)
        return released

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self.learnt)


@runtime_checkable
class Adversarial(Protocol):
    """A protector that was trained against its own adversaries, and keeps them."""

    @property
    def adversaries(self) -> Mapping[str, Adversary]:
        """Attribute -> its adversary."""


@runtime_checkable
class Withdrawable(Protocol):
    """A method whose protectors still work when donors withdraw: the other donors' probabilities are scaled to sum to one."""

    def without_donors(self, state: Mapping[str, Tensor], kept: IntArray) -> dict[str, Tensor]:
        """The `state_dict` for a pool that keeps only these donors."""


class Method(Protocol):
    """An obfuscation method; its config type is a frozen dataclass beside it."""

    summary: ClassVar[str]
    config_type: ClassVar[type[Any]]

    def fit(
        self, data: Records, *, context: ReleaseContext, config: Any, training: TrainConfig, rng: Rng, run: TrainingContext
    ) -> Fitted:
        """Learns a protector from labelled training records."""

    def from_state_dict(self, state: Mapping[str, Tensor], context: ReleaseContext, config: Any) -> Fitted:
        """The fitted protector that `state_dict` saved."""


def find_method(name: str) -> Method:
    """The method of that name; an unknown one is a ConfigError that lists the known ones."""
    method: Method = discovery.load(pass_core.methods, name).METHOD
    return method


def fit_method(
    method: Method,
    data: Records,
    blocks: IntArray,
    *,
    context: ReleaseContext,
    config: Any,
    training: TrainConfig,
    rng_for: Callable[[str], Rng],
    run: TrainingContext,
) -> tuple[Fitted, IntArray]:
    """A protector, and the positions of the records it learnt from; the others are held out, in whole blocks."""
    held_out = hold_out(blocks, training.validation_share, rng_for("validation"))
    run = replace(run, held_out=held_out, blocks=blocks)
    fitted = method.fit(data, context=context, config=config, training=training, rng=rng_for("fit"), run=run)
    return fitted, np.delete(np.arange(len(data)), held_out)
