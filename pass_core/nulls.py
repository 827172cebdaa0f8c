"""What mutual information looks like when nothing leaks: the same figure with the private classes dealt out anew.

Plug-in I(X';S) of a few records over many donors is far above zero even for a channel that tells nothing. The fair comparison
gives every *person* another's class: records of one person go to the same few donors, so dealing classes out over records would
make any person-to-donor habit look like a leak of the attribute.
"""

from dataclasses import dataclass

import numpy as np

from pass_core.data import DoubleArray, IntArray
from pass_core.exact import mutual_information


@dataclass(frozen=True, slots=True)
class NullComparison:
    """A figure beside its distribution under "nothing leaks", nats."""

    found: float
    mean: float
    deviation: float
    p_value: float  # share of the permutations, the true assignment among them, that reach what was found

    @property
    def excess(self) -> float:
        """What was found above the null's mean."""
        return self.found - self.mean


def compare_with_null(
    unit_law: DoubleArray, unit_classes: IntArray, n_classes: int, rng: np.random.Generator, permutations: int = 200
) -> NullComparison:
    """I(X';S) against `permutations` assignments of the units' classes.

    Args:
        unit_law: (units, pool) P(unit, X'=d); a unit is a person, or a record where records are independent.
        unit_classes: (units,) the private class of each.
    """

    def information(classes: IntArray) -> float:
        joint = np.zeros((n_classes, unit_law.shape[1]))
        np.add.at(joint, classes, unit_law)
        return mutual_information(joint)

    found = information(unit_classes)
    null = np.array([information(rng.permutation(unit_classes)) for _ in range(permutations)])
    reached = int((null >= found - 1e-12).sum())
    return NullComparison(found, float(null.mean()), float(null.std(ddof=1)), (1 + reached) / (1 + permutations))
