"""The interface of obfuscation methods; what learns (Method) and what was learnt (Fitted) are different types."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

import pass_core.methods
from pass_core import discovery
from pass_core.attacks.base import Adversary
from pass_core.channel.substitution import BLOCK_ROWS, Channel, Exclusion, draw_substitutes
from pass_core.data import Attribute, FloatArray, IntArray, Records, Rng, with_role
from pass_core.errors import MethodError
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

    def private_and_useful(self) -> tuple[tuple[Attribute, ...], tuple[Attribute, ...]]:
        """The attributes of both roles; raises MethodError when either has none."""
        private, useful = with_role(self.attributes, "private"), with_role(self.attributes, "useful")
        if not private or not useful:
            raise MethodError("expected at least one private and one useful attribute; see the data set's section")
        return private, useful

    def check_pool(self, n_donors: int) -> None:
        """Raises MethodError when a model was trained for a pool of another size."""
        if n_donors != len(self.pool):
            raise MethodError(f"expected a pool of the model's {n_donors} donors, found {len(self.pool)}; train again")


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

    def transform(self, features: FloatArray, rng: Rng) -> FloatArray:
        return draw_substitutes(self.channel, features, self.donor_features, rng)

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self.learnt)


class RecordMaker(ABC):
    """A trained protector that generates new records, a block at a time."""

    @property
    def channel(self) -> None:
        """It draws no donors."""
        return None

    @abstractmethod
    def release(self, records: FloatArray, rng: Rng) -> FloatArray:
        """New records for one block."""

    def transform(self, features: FloatArray, rng: Rng) -> FloatArray:
        released: FloatArray = np.empty_like(features)
        for start in range(0, len(features), BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            released[rows] = self.release(features[rows], rng)
        return released


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
    run = replace(run, held_out=held_out)
    fitted = method.fit(data, context=context, config=config, training=training, rng=rng_for("fit"), run=run)
    return fitted, np.delete(np.arange(len(data)), held_out)
