"""What every obfuscation method keeps to; what learns (Method) and what was learnt (Fitted) are different types."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

import pass_core.methods
from pass_core import discovery
from pass_core.attacks.base import Adversary
from pass_core.channel.substitution import Channel, Exclusion
from pass_core.data import Attribute, FloatArray, IntArray, Records
from pass_core.training.context import TrainingContext
from pass_core.training.held_out import hold_out
from pass_core.training.loop import TrainConfig


@dataclass(frozen=True, slots=True)
class ReleaseContext:
    """What is fixed before training and known again at release: attributes with roles, donors, device."""

    attributes: tuple[Attribute, ...]
    pool: Records
    device: torch.device
    exclusion: Exclusion | None = None  # in training: whom its records will not meet when they are released


class Fitted(Protocol):
    """A protector that was learnt: small, frozen, saved as tensors."""

    @property
    def channel(self) -> Channel | None:
        """P(x'|x) over the pool for methods that substitute by donors, None for those that make new records."""

    def transform(self, features: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Protected records of the same shape, with fresh draws from `rng` (experiments and attacks only)."""

    def state_dict(self) -> dict[str, Tensor]:
        """Everything learnt, as tensors."""


@runtime_checkable
class Adversarial(Protocol):
    """A protector that was trained against adversaries of its own, and keeps them."""

    @property
    def adversaries(self) -> Mapping[str, Adversary]:
        """Attribute -> its adversary."""


@runtime_checkable
class Withdrawable(Protocol):
    """A method whose protectors go on when donors leave: the others' probabilities scaled to sum to one."""

    def without_donors(self, state: Mapping[str, Tensor], kept: IntArray) -> dict[str, Tensor]:
        """What `state_dict` gave, for a pool of only these of its donors."""


class Method(Protocol):
    """An obfuscation method; its config type is a frozen dataclass beside it."""

    summary: ClassVar[str]
    config_type: ClassVar[type[Any]]

    def fit(
        self,
        data: Records,
        setting: ReleaseContext,
        config: Any,
        training: TrainConfig,
        rng: np.random.Generator,
        run: TrainingContext,
    ) -> Fitted:
        """Learns a protector from labelled training records."""

    def from_state_dict(self, state: Mapping[str, Tensor], setting: ReleaseContext, config: Any) -> Fitted:
        """The fitted protector again, from what `state_dict` gave."""


def find_method(name: str) -> Method:
    """The method of that name; an unknown one is a ConfigError that lists the known ones."""
    method: Method = discovery.load(pass_core.methods, name).METHOD
    return method


def fit_method(
    method: Method,
    data: Records,
    blocks: IntArray,
    setting: ReleaseContext,
    config: Any,
    *,
    training: TrainConfig,
    rng_for: Callable[[str], np.random.Generator],
    run: TrainingContext,
) -> tuple[Fitted, IntArray]:
    """A protector, and the positions of the records it learnt from; the others are held out, in whole blocks.

    The pipeline and the Python API both train here.
    """
    held_out = hold_out(blocks, training.validation_share, rng_for("validation"))
    fitted = method.fit(data, setting, config, training, rng_for("fit"), replace(run, held_out=held_out))
    return fitted, np.delete(np.arange(len(data)), held_out)
