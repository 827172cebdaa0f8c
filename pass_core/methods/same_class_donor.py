"""A control: any donor of the useful classes that a classifier sees in the record. It keeps what is useful and nothing else."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from pass_core.data import Records
from pass_core.methods._class_donors import FittedDonors, fit_kind_channel, fitted_kinds, restored_kinds
from pass_core.methods.base import ReleaseContext
from pass_core.training.context import TrainingContext
from pass_core.training.loop import TrainConfig


@dataclass(frozen=True, slots=True)
class SameClassDonorConfig:
    """Nothing to choose; the classifier learns as `train` says."""


class SameClassDonor:
    """Any donor of the same useful class."""

    summary: ClassVar[str] = "control: any donor of the useful class that a classifier sees"
    config_type: ClassVar[type[SameClassDonorConfig]] = SameClassDonorConfig

    def fit(
        self,
        data: Records,
        setting: ReleaseContext,
        config: SameClassDonorConfig,
        training: TrainConfig,
        rng: np.random.Generator,
        run: TrainingContext,
    ) -> FittedDonors:
        """See `fit_kind_channel`."""
        del config
        return fitted_kinds(fit_kind_channel(data, setting, math.inf, training, rng, run), setting)

    def from_state_dict(self, state: Mapping[str, Tensor], setting: ReleaseContext, config: SameClassDonorConfig) -> FittedDonors:
        del config
        return restored_kinds(state, setting, math.inf)


METHOD = SameClassDonor()
