"""A control: any donor of the useful classes that a classifier sees in the record. It keeps these classes and nothing else."""

import math
from dataclasses import dataclass
from typing import ClassVar

from pass_core.methods._class_donors import ClassDonorMethod


@dataclass(frozen=True, slots=True)
class SameClassDonorConfig:
    """No settings; section `train` controls how the classifier learns."""


class SameClassDonor(ClassDonorMethod[SameClassDonorConfig]):
    """Any donor of the same useful class."""

    summary: ClassVar[str] = "control: any donor of the useful class that a classifier sees"
    config_type: ClassVar[type[SameClassDonorConfig]] = SameClassDonorConfig

    def epsilon(self, config: SameClassDonorConfig) -> float:
        del config
        return math.inf


METHOD = SameClassDonor()
