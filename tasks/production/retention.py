"""How long old versions and audited evidence are kept: by number (`protect.keep_versions`) and by age (`protect.keep_days`)."""

import datetime
from pathlib import Path

from tasks.production.binding import version_times
from tasks.production.evidence import Evidence
from tasks.production.versions import Target
from tasks.sections.running import ProtectConfig


def retire(target: Target, live: int, config: ProtectConfig, *, erasing: bool) -> None:
    """Deletes versions before the live one, and audited records, that are too many or too old; all of them for an erasure."""
    expired = newest_expired(target.state, live, config.keep_days)
    target.retire(1 if erasing else max(1, min(config.keep_versions, live - expired)))
    if expired:
        Evidence(target.state / "audited", "", 0).expire(expired)


def newest_expired(state: Path, live: int, days: int | None) -> int:
    """The number of the newest version that was published more than so many days ago; 0 where there is none.

    A version whose time is unknown was published by a state folder that is lost, and counts as old.
    """
    if days is None:
        return 0
    oldest = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=days)).isoformat(timespec="seconds")
    times = version_times(state)
    return max((version for version in range(1, live + 1) if times.get(version, "") < oldest), default=0)
