"""A control: any donor of the useful classes that a classifier sees in the record. It keeps these classes and nothing else."""

import math

from pass_core.checks import NoSettings
from pass_core.methods._class_donors import ClassDonorMethod

METHOD = ClassDonorMethod(
    summary="control: any donor of the useful class that a classifier sees", config_type=NoSettings, epsilon=lambda _: math.inf
)
