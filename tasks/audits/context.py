"""What an audit needs beside its subject: the configured attacks."""

import pass_core.attacks
from pass_core import discovery
from pass_core.auditing.trained_attacks import NamedAttack
from tasks.sections.audit import AuditConfig


def named_attacks(config: AuditConfig) -> tuple[NamedAttack, ...]:
    """The attacks that params.yaml names, with their settings."""
    return tuple(NamedAttack(name, discovery.load(pass_core.attacks, name).ATTACK, c) for name, c in config.attacks.items())
