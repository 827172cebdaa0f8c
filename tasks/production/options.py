"""What the runs over a lake are given: the command line fills it, deployments carry it, the runs read it."""

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from pass_core.errors import ConfigError
from pass_core.storage.files import json_digest
from tasks.config import Config, load_config, parse_overrides
from tasks.running.step_io import RunKey

if TYPE_CHECKING:
    from tasks.sections.lake import LakeConfig


class LakeOptions(BaseModel):
    """What every run over a lake is given, as plain JSON values."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str = Field(description="The lake to protect: a path or URL.")
    target: str = Field(description="Where the protected lake is published: a path or URL.")
    dataset: str = Field(description="The section of params.yaml (reader: lake) that names the lake's columns.")
    method: str = Field(default="pass_substitution", description="The method whose trained model protects.")
    models: str = Field(default="data", description="Root folder of the trained model, its pool and its audit.")
    params: str = Field(default="params.yaml", description="The parameter file.")
    settings: tuple[str, ...] = Field(default=(), description="Overrides of parameters, path=value each.")
    state: str | None = Field(default=None, description="Private folder of staging and receipts; default: beside the target.")
    key_file: str | None = Field(default=None, description="File of the draw key; default: PASS_DRAW_KEY or PASS_DRAW_KEY_FILE.")
    key_block: str | None = Field(default=None, description="The Prefect Secret block with the draw key.")
    first: str | None = Field(default=None, description="First partition value of a range; default: no lower end.")
    last: str | None = Field(default=None, description="Last partition value of a range; default: no upper end.")

    @property
    def key(self) -> RunKey:
        return RunKey(self.dataset, self.method)

    @property
    def lake_name(self) -> str:
        """Names the lake among those of one machine or server: by data set and target."""
        return f"{self.dataset}-{json_digest([self.dataset, absolute(self.target)])[:8]}"

    @property
    def is_range(self) -> bool:
        return bool(self.first or self.last)

    def covers(self, partition: str) -> bool:
        """Whether the first value in a partition's name lies in the range, ends included: dates, or numbers of one width."""
        value = partition.split("/", maxsplit=1)[0].rpartition("=")[2]
        return (not self.first or value >= self.first) and (not self.last or value <= self.last)

    def load_config(self) -> Config:
        """The parameters, with the overrides; rejects a seed."""
        overrides = parse_overrides(list(self.settings))
        if "seed" in overrides:
            raise ConfigError("seed: expected none in production, where the secret key decides the draws; remove --set seed")
        return load_config(Path(self.params).resolve(), overrides).with_names((self.dataset,), (self.method,))

    def section(self, config: Config) -> "LakeConfig":
        """The data set's section, which must be a lake's."""
        from tasks.sections.lake import LakeConfig  # with pyarrow and polars, which not every command needs

        section = config.dataset[self.dataset]
        if not isinstance(section, LakeConfig):
            found = section.reader or self.dataset
            raise ConfigError(f"dataset.{self.dataset}.reader: expected lake, found {found}; name the section of the lake")
        return section

    def absolute(self) -> Self:
        """The same with absolute paths, for runs that start in another folder; a link to the champion stays a link."""
        places = {name: getattr(self, name) for name in ("source", "target", "params", "state", "key_file")}
        whole = {name: absolute(place) for name, place in places.items() if place}
        return self.model_copy(update=whole | {"models": str(Path(self.models).absolute())})


class ProtectOptions(LakeOptions):
    """The options of a protect run."""

    workers: int | None = Field(default=None, description="Worker processes; default: one per core; 0: this process.")
    partition_minutes: float = Field(default=1440, gt=0, description="Longest time of a partition; then its worker is ended.")
    executor: Literal["local", "ray"] = Field(default="local", description="Run workers on this machine or on a Ray cluster.")
    address: str | None = Field(default=None, description="The Ray cluster's head, host:port; default: a cluster for this run.")
    backfill: bool = Field(default=False, description="Write the plan first, with the status of each partition.")
    new_columns: bool = Field(default=False, description="Accept new source columns (never published).")
    drop_missing: bool = Field(default=False, description="Remove partitions that were deleted from the source.")
    rehash: bool = Field(default=False, description="Read all source files again, also those whose size, times and inode agree.")
    redraw: str | None = Field(default=None, description="Reason to exceed or raise protect.draws_at_most.")
    publish_few: str | None = Field(default=None, description="Reason to publish fewer changed rows than protect.min_change.")
    break_lock: str | None = Field(default=None, description="Reason for ending another machine's lease before its time.")
    target_format: Literal["parquet", "delta"] | None = Field(default=None, description="Default: what is there, or Parquet.")
    metrics: str | None = Field(default=None, description="Folder of the metrics (OpenMetrics); default: the state folder.")

    def ledger_folder(self, config: Config) -> Path:
        """The data set's draw ledger, which all its targets share."""
        return ledger_folder(Path(self.params), config, self.dataset)

    def absolute(self) -> Self:
        """The same with absolute paths."""
        whole = super().absolute()
        return whole.model_copy(update={"metrics": absolute(self.metrics)}) if self.metrics else whole


class RetrainOptions(LakeOptions):
    """The options of a check for drift, and of the training that may follow; `models` is a folder of model versions."""

    labelled: str | None = Field(default=None, description="Fresh labelled sample: a path or URL; default: the section's source.")
    latest: int = Field(default=7, ge=1, description="Partitions that are checked where none is new; the last ones by name.")
    force: str | None = Field(default=None, description="Reason to train a candidate without drift.")
    dry_run: bool = Field(default=False, description="Only check for drift.")

    def with_sample(self, config: Config) -> Config:
        """The parameters with the fresh labelled sample as the source of the data set."""
        section = self.section(config)
        if self.labelled:
            section = dataclasses.replace(section, source=absolute(self.labelled))
        elif section.needs_raw and "PASS_RAW_DATA" not in os.environ:
            where = f"dataset.{self.dataset}.source"
            raise ConfigError(f"{where}: expected the path or URL of a labelled sample, found none; give --labelled")
        return dataclasses.replace(config, dataset={**config.dataset, self.dataset: section})

    def absolute(self) -> Self:
        """The same with absolute paths."""
        whole = super().absolute()
        return whole.model_copy(update={"labelled": absolute(self.labelled)}) if self.labelled else whole


def absolute(place: str) -> str:
    """A path made absolute; a URL as it is."""
    return place if "://" in place else str(Path(place).resolve())


def ledger_folder(params: Path, config: Config, dataset: str) -> Path:
    """The folder of a data set's draw ledger: below `protect.ledger`, beside params.yaml unless it is an absolute path."""
    return params.resolve().parent / Path(config.protect.ledger).expanduser() / dataset


def state_of(target: str, state: str | Path | None = None) -> Path:
    """The private folder of a target; beside a local one by default, so that files can be moved between them."""
    if state:
        return Path(state).resolve()
    if "://" in target:
        raise ConfigError(f"{target}: expected a local folder for staging and receipts, found none; give --state")
    path = Path(target).resolve()
    return path.parent / f".{path.name}.state"
