"""LEACE: removes every linear trace of the private attributes from features."""

from pass_core.methods._erasure import Erasure

METHOD = Erasure("LEACE: features without a linear trace of the private attributes", keeps_useful=False)
