"""A control with a guarantee: randomised response on the useful classes, shown by any donor that has them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from pass_core.data import Records
from pass_core.methods._class_donors import FittedDonors, fit_kind_channel, fitted_kinds, restored_kinds
from pass_core.methods._noise import check_epsilon
from pass_core.methods.base import ReleaseContext
from pass_core.training.context import TrainingContext
from pass_core.training.loop import TrainConfig


@dataclass(frozen=True, slots=True)
class RandomisedResponseConfig:
    """ε of local differential privacy, of the whole record."""

    epsilon: float = 3.0

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)


class RandomisedResponse:
    """The seen class with probability e^ε/(e^ε + k − 1), any other with 1/(e^ε + k − 1); then any donor of it."""

    summary: ClassVar[str] = "control: randomised response on the useful class, shown by any donor of it"
    config_type: ClassVar[type[RandomisedResponseConfig]] = RandomisedResponseConfig

    def fit(
        self,
        data: Records,
        setting: ReleaseContext,
        config: RandomisedResponseConfig,
        training: TrainConfig,
        rng: np.random.Generator,
        run: TrainingContext,
    ) -> FittedDonors:
        """See `fit_kind_channel`."""
        return fitted_kinds(fit_kind_channel(data, setting, config.epsilon, training, rng, run), setting)

    def from_state_dict(
        self, state: Mapping[str, Tensor], setting: ReleaseContext, config: RandomisedResponseConfig
    ) -> FittedDonors:
        return restored_kinds(state, setting, config.epsilon)


METHOD = RandomisedResponse()
