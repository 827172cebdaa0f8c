"""The probing attack with a larger network: whether the paper's size was what held the attacker back."""

from typing import ClassVar

from pass_core.attacks.network import NetworkAttack
from pass_core.training.networks import Widths


class LargeNetworkAttack(NetworkAttack):
    """At least four times the parameters of `network`, for records of any shape."""

    summary: ClassVar[str] = "the probing attack with at least four times the parameters"
    # Most parameters go where they cost least, into the layer after the convolutions, which run over the whole signal.
    widths: ClassVar[Widths] = Widths(convolutions=(24, 64, 96, 128), after_convolutions=1024, hidden=(2048, 1024))


ATTACK = LargeNetworkAttack()
