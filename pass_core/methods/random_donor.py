"""A control: each record is replaced by any donor, all equally likely. It hides everything and keeps nothing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from pass_core.channel.substitution import BLOCK_ROWS
from pass_core.checks import NoSettings
from pass_core.data import FloatArray, Records
from pass_core.methods.base import FittedChannel, ReleaseContext


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
    config_type: ClassVar[type[NoSettings]] = NoSettings

    def fit(self, data: Records, *, context: ReleaseContext, **_: object) -> FittedChannel:
        return FittedChannel(UniformChannel(len(context.pool)), context.pool.features, {})

    def from_state_dict(self, state: Mapping[str, Tensor], context: ReleaseContext, config: NoSettings) -> FittedChannel:
        return FittedChannel(UniformChannel(len(context.pool)), context.pool.features, {})


METHOD = RandomDonor()
