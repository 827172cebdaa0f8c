"""No protection: the released record is the original. The control on which every attack must succeed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from pass_core.data import FloatArray, Records
from pass_core.methods.base import ReleaseContext
from pass_core.training.context import TrainingContext
from pass_core.training.loop import TrainConfig


@dataclass(frozen=True, slots=True)
class IdentityConfig:
    """Nothing to choose."""


@dataclass(frozen=True, slots=True)
class FittedIdentity:
    """Releases records as they are."""

    @property
    def channel(self) -> None:
        return None

    def transform(self, features: FloatArray, rng: np.random.Generator) -> FloatArray:  # noqa: ARG002 (no draw to make)
        return features

    def state_dict(self) -> dict[str, Tensor]:
        return {}


class Identity:
    """No protection."""

    summary: ClassVar[str] = "no protection: the control that every attack must break"
    config_type: ClassVar[type[IdentityConfig]] = IdentityConfig

    def fit(
        self,
        data: Records,  # noqa: ARG002 (nothing is learnt)
        setting: ReleaseContext,  # noqa: ARG002
        config: IdentityConfig,  # noqa: ARG002
        training: TrainConfig,  # noqa: ARG002
        rng: np.random.Generator,  # noqa: ARG002
        run: TrainingContext,  # noqa: ARG002
    ) -> FittedIdentity:
        return FittedIdentity()

    def from_state_dict(
        self,
        state: Mapping[str, Tensor],  # noqa: ARG002
        setting: ReleaseContext,  # noqa: ARG002
        config: IdentityConfig,  # noqa: ARG002
    ) -> FittedIdentity:
        return FittedIdentity()


METHOD = Identity()
