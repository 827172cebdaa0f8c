"""A control: any donor of the useful classes that a classifier sees in the record. It keeps these classes and nothing else."""

import math
from typing import ClassVar

from pass_core.checks import NoSettings
from pass_core.methods._class_donors import ClassDonorMethod


class SameClassDonor(ClassDonorMethod[NoSettings]):
    """Any donor of the same useful class."""

    summary: ClassVar[str] = "control: any donor of the useful class that a classifier sees"
    config_type: ClassVar[type[NoSettings]] = NoSettings

    def epsilon(self, config: NoSettings) -> float:
        return math.inf


METHOD = SameClassDonor()
