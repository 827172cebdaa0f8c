"""The mathematics of PASS: channels over a donor pool, their training, attacks on what they release, and a Python API.

Pure: arrays in, arrays out. No environment, no logging, no global random state; progress goes to callbacks. One folder reads
and writes files (`pass_core.storage`). `Protector`, `audit` and `AuditResult` are imported when they are first used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pass_core.api.audit import AuditResult, audit
    from pass_core.api.protector import Protector

__all__ = ["AuditResult", "Protector", "audit"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'pass_core' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"pass_core.api.{'protector' if name == 'Protector' else 'audit'}"), name)
