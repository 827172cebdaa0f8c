"""A control: every record is replaced by any donor, all equally likely. It hides everything and keeps nothing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from pass_core.channel.substitution import BLOCK_ROWS
from pass_core.data import FloatArray, Records
from pass_core.methods._class_donors import FittedDonors
from pass_core.methods.base import ReleaseContext
from pass_core.training.context import TrainingContext
from pass_core.training.loop import TrainConfig


@dataclass(frozen=True, slots=True)
class RandomDonorConfig:
    """Nothing to choose."""


@dataclass(frozen=True, slots=True)
class UniformChannel:
    """P(x'|x) = 1/pool."""

    pool_size: int

    def blocks(self, features: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
        for start in range(0, len(features), BLOCK_ROWS):
            rows = slice(start, min(start + BLOCK_ROWS, len(features)))
            yield rows, np.full((rows.stop - rows.start, self.pool_size), 1 / self.pool_size, dtype=np.float32)


class RandomDonor:
    """Any donor."""

    summary: ClassVar[str] = "control: any donor, all equally likely; hides everything"
    config_type: ClassVar[type[RandomDonorConfig]] = RandomDonorConfig

    def fit(
        self,
        data: Records,
        setting: ReleaseContext,
        config: RandomDonorConfig,
        training: TrainConfig,
        rng: np.random.Generator,
        run: TrainingContext,
    ) -> FittedDonors:
        del data, training, rng, run
        return self.from_state_dict({}, setting, config)

    def from_state_dict(self, state: Mapping[str, Tensor], setting: ReleaseContext, config: RandomDonorConfig) -> FittedDonors:
        del state, config
        return FittedDonors(UniformChannel(len(setting.pool)), setting.pool.features, {})


METHOD = RandomDonor()
