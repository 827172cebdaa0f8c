"""The sections `protect` and `schedule` of params.yaml."""

import zoneinfo
from dataclasses import dataclass

from pass_core.checks import check_range
from pass_core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ProtectConfig:
    """How a lake is protected in production."""

    draws_at_most: int = 1  # of one record, across models, pools and keys; an attacker can average over several (--redraw)
    audit_records: int = 10_000  # audited before anything is published; all of them if there are fewer
    keep_versions: int = 2  # kept after publishing, the current one included; older ones are deleted

    def __post_init__(self) -> None:
        check_range(self, "draws_at_most", "audit_records", "keep_versions", at_least=1)


@dataclass(frozen=True, slots=True)
class ScheduleConfig:
    """What `pass-pipeline lake serve` runs, and when; the command's options take precedence."""

    source: str | None = None  # lake to protect: a path or URL
    target: str | None = None  # where it is published
    dataset: str | None = None  # section that names the lake's columns
    protect: str = "0 2 * * *"  # cron expression: minute, hour, day of the month, month, day of the week
    audit: str = "0 4 * * 0"  # cron expression of the audits
    timezone: str = "UTC"  # of both cron expressions, such as Europe/Berlin

    def __post_init__(self) -> None:
        for name in ("protect", "audit"):
            fields = getattr(self, name).split()
            if len(fields) != 5:
                raise ConfigError(f"{name}: expected a cron expression of five fields, such as '0 2 * * *', found {len(fields)}")
        if self.timezone not in zoneinfo.available_timezones():
            raise ConfigError(f"timezone: expected a name such as Europe/Berlin, found {self.timezone!r}")
