"""The section `audit` of params.yaml."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pass_core.auditing.thresholds import Depth, Thresholds
from pass_core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """Attacks by name with their settings, how thorough the audit is, and the limits of the verdict."""

    attacks: Mapping[str, Any]  # attack -> settings that differ from its defaults; default: all attacks
    depth: Depth = field(default_factory=Depth)
    thresholds: Thresholds = field(default_factory=Thresholds)
    valid_days: int = 365  # after which an audit has expired

    def __post_init__(self) -> None:
        if self.valid_days < 1:
            raise ConfigError(f"audit.valid_days: expected at least 1, found {self.valid_days}")
