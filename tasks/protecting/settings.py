"""The section `protect` of params.yaml."""

from dataclasses import dataclass

from pass_core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ProtectConfig:
    """How a lake is protected in production."""

    draws_at_most: int = 1  # per record, across models, pools and keys; more needs a decision (--redraw)
    audit_records: int = 10_000  # that the gate sees before anything is published, or all where there are fewer
    keep_versions: int = 2  # the current one and so many before it; older ones are deleted after publishing

    def __post_init__(self) -> None:
        for name in ("draws_at_most", "audit_records", "keep_versions"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: expected at least 1, found {getattr(self, name)}")
