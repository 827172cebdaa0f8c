"""What a lake's section in params.yaml says: where it is and what its columns mean."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pass_core.errors import ConfigError
from tasks.payloads.payload import PayloadKind
from tasks.sections.dataset import DatasetConfig
from tasks.storage.parquet import RESERVED_COLUMNS


@dataclass(frozen=True, slots=True)
class LakeConfig(DatasetConfig):
    """Where the lake is and what its columns mean."""

    source: str = ""  # a path or URL; relative to the data set's raw folder, which is the default
    format: Literal["parquet", "delta", "csv"] = "parquet"
    record_id: str = ""  # column that names a record; unique
    payload: tuple[str, ...] = ()  # one column, or several of numbers that make a vector together
    payload_kind: PayloadKind = "vector"
    payload_is_path: bool = False  # the column holds paths below the source; the files' bytes become the payload
    payload_shape: tuple[int, ...] = ()  # of vectors, such as [2, 128]; default: as long as the first one
    payload_low: float | None = None  # what a sane value lies in; validation fails outside
    payload_high: float | None = None
    person: str | None = None  # whom a record is about; people are never split between train and test
    block: str | None = None  # records that depend on each other; default: the person's
    split: str | None = None  # column that holds train or test; default: a seeded split by person
    split_seed: int = 0
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # attribute -> classes; default: those found
    pass_through: tuple[str, ...] = ()  # columns that leave beside the payload as they are: known to every attacker

    def __post_init__(self) -> None:
        DatasetConfig.__post_init__(self)
        if not self.record_id or not self.payload:
            raise ConfigError("expected the columns `record_id` and `payload` of the lake")
        if len(self.payload) > 1 and (self.payload_kind != "vector" or self.payload_is_path):
            raise ConfigError(f"payload: expected one column of {self.payload_kind} payloads, found {len(self.payload)}")
        if self.payload_is_path and self.payload_kind == "vector":
            raise ConfigError("payload_is_path: expected payload_kind image or audio")
        named = {self.record_id, *self.payload, self.person, self.block, self.split}
        clash = sorted(map(str, set(self.pass_through) & (named | {*RESERVED_COLUMNS, *self.columns()})))
        if clash:
            raise ConfigError(f"pass_through: may not leave as it is: {', '.join(clash)}")
        if set(self.columns()) & set(RESERVED_COLUMNS):
            raise ConfigError(f"an attribute may not be called any of {', '.join(RESERVED_COLUMNS)}; rename the column")

    @property
    def needs_raw(self) -> bool:
        return "://" not in self.source and not self.source.startswith("/")
