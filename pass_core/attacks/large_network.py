"""The probing attack with a larger network: whether the paper's size was what held the attacker back."""

from typing import ClassVar

from pass_core.attacks.network import NetworkAttack
from pass_core.networks import Widths


class LargeNetworkAttack(NetworkAttack):
    """At least four times the parameters of `network`, for records of any shape."""

    summary: ClassVar[str] = "the probing attack with at least four times the parameters"
    # Every matrix has at least four times the entries: what reads the record is four times as wide where it is read first,
    # and the layer that the classes are told from is four times as wide.
    widths: ClassVar[Widths] = Widths(convolutions=(64, 64, 128, 128), after_convolutions=1024, hidden=(2048, 1024))


ATTACK = LargeNetworkAttack()
