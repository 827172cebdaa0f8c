"""The section `audit` of params.yaml."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pass_core.attacks
from pass_core import discovery
from pass_core.auditing.thresholds import Depth, Effort, Thresholds, tried
from pass_core.checks import Checked, ranged

if TYPE_CHECKING:
    from pass_core.auditing.trained_attacks import NamedAttack


@dataclass(frozen=True, slots=True)
class AuditConfig(Checked):
    """Attacks by name with their settings, how thorough the audit is, and the limits of the verdict."""

    attacks: Mapping[str, Any]  # attack -> settings that differ from its defaults; default: all attacks
    # quick: the exact attacker, logistic regression and one network, for trying things out; full before anything is published
    effort: Effort = "full"
    depth: Depth = field(default_factory=Depth)
    thresholds: Thresholds = field(default_factory=Thresholds)
    valid_days: int = ranged(365, at_least=1)  # after which an audit has expired

    def named_attacks(self) -> "tuple[NamedAttack, ...]":
        """The attacks that an audit of this effort tries, with their settings."""
        from pass_core.auditing.trained_attacks import NamedAttack  # imports torch

        chosen = {name: config for name, config in self.attacks.items() if tried(name, self.effort)}
        return tuple(NamedAttack(name, discovery.load(pass_core.attacks, name).ATTACK, c) for name, c in chosen.items())
