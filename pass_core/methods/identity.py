"""No protection: the released record is the original. The control on which every attack must succeed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from pass_core.data import FloatArray, Records
from pass_core.methods.base import ReleaseContext


@dataclass(frozen=True, slots=True)
class IdentityConfig:
    """No settings."""


@dataclass(frozen=True, slots=True)
class FittedIdentity:
    """Releases records unchanged."""

    @property
    def channel(self) -> None:
        return None

    def transform(self, features: FloatArray, rng: np.random.Generator) -> FloatArray:  # noqa: ARG002 (draws nothing)
        return features

    def state_dict(self) -> dict[str, Tensor]:
        return {}


class Identity:
    """No protection."""

    summary: ClassVar[str] = "no protection: the control that every attack must break"
    config_type: ClassVar[type[IdentityConfig]] = IdentityConfig

    def fit(self, data: Records, **_: object) -> FittedIdentity:  # noqa: ARG002 (learns nothing)
        return FittedIdentity()

    def from_state_dict(self, state: Mapping[str, Tensor], context: ReleaseContext, config: IdentityConfig) -> FittedIdentity:
        del state, context, config
        return FittedIdentity()


METHOD = Identity()
