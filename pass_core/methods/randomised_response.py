"""A control with a guarantee: randomised response on the useful classes, shown by any donor that has them.

The seen class with probability e^ε/(e^ε + k − 1), any other with 1/(e^ε + k − 1); then any donor of it.
"""

import operator
from dataclasses import dataclass

from pass_core.checks import Checked, ranged
from pass_core.methods._class_donors import ClassDonorMethod


@dataclass(frozen=True, slots=True)
class RandomisedResponseConfig(Checked):
    """ε of local differential privacy, of the whole record."""

    epsilon: float = ranged(3.0, above=0)


METHOD = ClassDonorMethod(
    summary="control: randomised response on the useful class, shown by any donor of it",
    config_type=RandomisedResponseConfig,
    epsilon=operator.attrgetter("epsilon"),
)
