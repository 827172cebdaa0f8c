"""What the data allow before training: hiding a private attribute removes what useful attributes share with it.

A release without information about a private attribute S keeps at most what the useful attributes have apart from S
(PASS, eq. 11 with I(X';S) = 0):  Σ_j I(X';U_j) ≤ H(U|S) + TC(U), where U are all useful attributes together and TC is their total
correlation, ΣH(U_j) − H(U). The right side is ΣH(U_j) − I(U;S). It keeps at most H(X|S) of the record X itself:
I(X';X) ≤ H(X|S).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pass_core.channel.joint_law import entropy
from pass_core.data import Attribute, IntArray, with_role


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """How much of the useful attributes, and of the record itself, can remain once all private ones are hidden."""

    useful_entropy: float  # Σ_j H(U_j), nats
    total_correlation: float  # TC(U), nats
    shared: Mapping[str, float]  # private attribute -> I(U;S), nats: what hiding it removes
    record_entropy: float  # H(X) = ln n of n records, nats
    record_left: Mapping[str, float]  # private attribute -> H(X|S), nats

    @property
    def ceiling(self) -> float:
        """The most that Σ_j I(X';U_j) can be, nats."""
        return max(0.0, self.useful_entropy - max(self.shared.values(), default=0.0))

    @property
    def share(self) -> float:
        """The ceiling as a share of the useful attributes' entropy."""
        return self.ceiling / self.useful_entropy if self.useful_entropy > 0 else 1.0

    @property
    def record_ceiling(self) -> float:
        """The most that I(X';X) can be, nats."""
        return min(self.record_left.values(), default=self.record_entropy)

    @property
    def most_entangled(self) -> str:
        """The private attribute that shares most with the useful ones."""
        return max(self.shared, key=lambda name: self.shared[name])


def what_the_data_allow(labels: Mapping[str, IntArray], attributes: tuple[Attribute, ...]) -> Allowance:
    """The allowance of these records."""
    useful = [labels[a.name] for a in with_role(attributes, "useful")]
    alone = sum(joint_entropy([column]) for column in useful)
    together = joint_entropy(useful)
    hidden = {a.name: labels[a.name] for a in with_role(attributes, "private")}
    # H(X|S) of equally likely records: the average of ln n_s, where n_s records share the record's class.
    counts = {name: np.unique(column, return_counts=True)[1] for name, column in hidden.items()}
    return Allowance(
        useful_entropy=alone,
        total_correlation=alone - together,
        shared={s: max(0.0, together + joint_entropy([c]) - joint_entropy([*useful, c])) for s, c in hidden.items()},
        record_entropy=float(np.log(len(useful[0]))),
        record_left={name: float(n @ np.log(n) / n.sum()) for name, n in counts.items()},
    )


def joint_entropy(columns: list[IntArray]) -> float:
    """H of several attributes together over the records, nats."""
    _, counts = np.unique(np.stack(columns), axis=1, return_counts=True)
    return entropy(counts / counts.sum())
