"""The section `audit` of params.yaml."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pass_core.auditing.thresholds import Depth, Thresholds
from pass_core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """Attacks by name with their settings, how much is tried, and what the verdict demands."""

    attacks: Mapping[str, Any]
    depth: Depth = field(default_factory=Depth)
    thresholds: Thresholds = field(default_factory=Thresholds)
    valid_days: int = 365  # after which an audit is too old to rely on

    def __post_init__(self) -> None:
        if self.valid_days < 1:
            raise ConfigError(f"audit.valid_days: expected at least 1, found {self.valid_days}")
