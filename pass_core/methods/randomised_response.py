"""A control with a guarantee: randomised response on the useful classes, shown by any donor that has them."""

from dataclasses import dataclass
from typing import ClassVar

from pass_core.checks import Checked, ranged
from pass_core.methods._class_donors import ClassDonorMethod


@dataclass(frozen=True, slots=True)
class RandomisedResponseConfig(Checked):
    """ε of local differential privacy, of the whole record."""

    epsilon: float = ranged(3.0, above=0)


class RandomisedResponse(ClassDonorMethod[RandomisedResponseConfig]):
    """The seen class with probability e^ε/(e^ε + k − 1), any other with 1/(e^ε + k − 1); then any donor of it."""

    summary: ClassVar[str] = "control: randomised response on the useful class, shown by any donor of it"
    config_type: ClassVar[type[RandomisedResponseConfig]] = RandomisedResponseConfig

    def epsilon(self, config: RandomisedResponseConfig) -> float:
        return config.epsilon


METHOD = RandomisedResponse()
