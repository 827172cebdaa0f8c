"""The sections `compute`, `tracking`, `protect`, `schedule`, `notify` and `lineage` of params.yaml."""

import datetime
import re
import zoneinfo
from dataclasses import dataclass
from typing import Literal

from pass_core.checks import Checked, ranged
from pass_core.devices import Device
from pass_core.errors import ConfigError

UNITS = {"m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True, slots=True)
class ComputeConfig(Checked):
    """The numerics of a run: the same number of threads on the same kind of CPU gives the same bytes."""

    threads: int = ranged(2, at_least=1, at_most=256)  # another number adds in another order and changes the last bits
    device: Device = "cpu"  # auto: CUDA, else MPS, else the CPU
    # that train together on parts of every batch, each with this many threads; on CUDA one GPU each
    processes: int = ranged(1, at_least=1, at_most=64)


@dataclass(frozen=True, slots=True)
class TrackingConfig:
    """Where MLflow records runs; the environment variable MLFLOW_TRACKING_URI takes precedence."""

    enabled: bool = True  # false: no MLflow run is recorded
    store: str = "data/mlflow"  # folder for SQLite and artifacts, relative to params.yaml
    experiment: str = "pass-pipeline"  # name of the MLflow experiment


@dataclass(frozen=True, slots=True)
class ProtectConfig(Checked):
    """How a lake is protected in production."""

    # of one record, across models, pools, keys and targets; an attacker can average several. Raising it needs --redraw 'reason'
    draws_at_most: int = ranged(1, at_least=1)
    ledger: str = "data/ledger"  # private folder that counts draws, with a folder per data set; relative to params.yaml
    audit_records: int = ranged(10_000, at_least=1)  # audited before anything is published; all of them if there are fewer
    keep_versions: int = ranged(2, at_least=1)  # kept after publishing, the current one included; older ones are deleted
    # after which a version that is not live, and audited evidence, is deleted by the next run; null: at any age
    keep_days: int | None = ranged(None, at_least=1)
    # rows of a published partition, or of a run: fewer changes wait, since comparing versions would show them; 1: off
    min_change: int = ranged(1, at_least=0)
    # refuse: quarantine partitions with other columns; ignore_unused: but ignore new ones that nothing uses; pause: stop the run
    on_schema_change: Literal["refuse", "ignore_unused", "pause"] = "refuse"
    accept_undecided: str = ""  # who accepts, and why, to publish what the audit cannot decide; empty: nothing is published then


@dataclass(frozen=True, slots=True)
class ScheduleConfig:
    """What `pass-pipeline lake serve` runs, and when; the command's options take precedence."""

    source: str | None = None  # lake to protect: a path or URL
    target: str | None = None  # where it is published
    dataset: str | None = None  # section that names the lake's columns
    protect: str = "0 2 * * *"  # cron expression: minute, hour, day of the month, month, day of the week
    audit: str = "0 4 * * 0"  # cron expression of the audits
    timezone: str = "UTC"  # of both cron expressions, such as Europe/Berlin
    # the age of a published version from which `lake status` complains: minutes, hours or days, such as 90m, 26h or 8d
    stale_after: str = "26h"

    @property
    def longest_age(self) -> datetime.timedelta:
        """How old a published version may be."""
        number, unit = self.stale_after[:-1], UNITS[self.stale_after[-1]]
        return datetime.timedelta(**{unit: int(number)})

    def __post_init__(self) -> None:
        for name in ("protect", "audit"):
            fields = getattr(self, name).split()
            if len(fields) != 5:
                raise ConfigError(f"{name}: expected a cron expression of five fields, such as '0 2 * * *', found {len(fields)}")
        if not re.fullmatch(r"[1-9]\d{0,4}[mhd]", self.stale_after):
            raise ConfigError(f"stale_after: expected minutes, hours or days, such as 26h or 8d, found {self.stale_after!r}")
        if self.timezone not in zoneinfo.available_timezones():
            raise ConfigError(f"timezone: expected a name such as Europe/Berlin, found {self.timezone!r}; correct it")


@dataclass(frozen=True, slots=True)
class NotifyConfig(Checked):
    """How troubles are reported; the address is a secret, so it is in the environment variable PASS_WEBHOOK_URL."""

    format: Literal["json", "slack", "teams"] = "json"  # of the body that is posted
    seconds: float = ranged(3.0, above=0, at_most=30)  # after which a receiver is given up


@dataclass(frozen=True, slots=True)
class LineageConfig(Checked):
    """Where OpenLineage events go, besides what the environment variables OPENLINEAGE_URL, OPENLINEAGE_CONFIG, ... say."""

    file: str = ""  # file that gets one event per line; relative to params.yaml; takes precedence over the environment
    namespace: str = "pass-pipeline"  # of the jobs; the environment variable OPENLINEAGE_NAMESPACE takes precedence
    seconds: float = ranged(3.0, above=0, at_most=30)  # for each event, after which a receiver is given up
