"""The sections `protect` and `schedule` of params.yaml."""

import zoneinfo
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


@dataclass(frozen=True, slots=True)
class ScheduleConfig:
    """What `pass-pipeline serve` runs, and when; options of the command go before it."""

    source: str | None = None
    target: str | None = None
    dataset: str | None = None
    protect: str = "0 2 * * *"  # cron: minute, hour, day of the month, month, day of the week
    audit: str = "0 4 * * 0"
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        for name in ("protect", "audit"):
            fields = getattr(self, name).split()
            if len(fields) != 5:
                raise ConfigError(f"{name}: expected the five fields of cron, such as '0 2 * * *', found {len(fields)}")
        if self.timezone not in zoneinfo.available_timezones():
            raise ConfigError(f"timezone: expected a name such as Europe/Berlin, found {self.timezone!r}")
