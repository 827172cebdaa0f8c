"""SPLINCE: LEACE that leaves the covariance with the useful attributes as it was."""

from pass_core.methods._erasure import Erasure

METHOD = Erasure("SPLINCE: LEACE that keeps the covariance with the useful attributes", keeps_useful=True)
