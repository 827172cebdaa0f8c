"""The section of a lake in params.yaml: where it is, which column holds what, and which attributes have which role."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pass_core.errors import ConfigError
from tasks.payloads.payload import PayloadKind
from tasks.sections.dataset import DatasetConfig
from tasks.storage.parquet import RESERVED_COLUMNS

TableFormat = Literal["parquet", "delta", "csv"]


@dataclass(frozen=True, kw_only=True)  # without slots: a class can inherit them from one base only
class LakeColumns:
    """Which column of a table holds what, without the roles of attributes."""

    format: TableFormat = "parquet"
    record_id: str = ""  # column of the record's unique id
    payload: tuple[str, ...] = ()  # one column, or several columns of numbers that make up one vector
    payload_kind: PayloadKind = "vector"
    payload_is_path: bool = False  # the column holds paths below the source; the bytes of the files become the payload
    payload_shape: tuple[int, ...] = ()  # of vectors, such as [2, 128]; default: the length of the first one
    payload_low: float | None = None  # smallest valid value; validation fails below it
    payload_high: float | None = None  # largest valid value; validation fails above it
    person: str | None = None  # column of the person a record is about; people are never split between train and test
    block: str | None = None  # column of records that depend on each other; default: the person
    split: str | None = None  # column that holds train or test; default: a seeded split by person
    pass_through: tuple[str, ...] = ()  # columns that are released unchanged: every attacker sees them

    def __post_init__(self) -> None:
        if not self.record_id or not self.payload:
            raise ConfigError("expected the columns `record_id` and `payload` of the lake, found none; name them")
        if len(self.payload) > 1 and (self.payload_kind != "vector" or self.payload_is_path):
            raise ConfigError(f"payload: expected one column for {self.payload_kind}, found {len(self.payload)}; name one")
        if self.payload_is_path and self.payload_kind == "vector":
            raise ConfigError("payload_is_path: expected payload_kind image or audio, found vector; correct one of them")

    def context(self) -> tuple[str, ...]:
        """The columns of id, person, block and split that the table has."""
        return tuple(name for name in (self.record_id, self.person, self.block, self.split) if name)


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeConfig(LakeColumns, DatasetConfig):
    """A lake: its columns, the roles of its attributes, and where it is."""

    source: str = ""  # a path or URL; relative to the data set's raw folder, which is the default
    split_seed: int = 0
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # attribute -> classes; default: those found

    def __post_init__(self) -> None:
        DatasetConfig.__post_init__(self)
        LakeColumns.__post_init__(self)
        named = {*self.context(), *self.payload, *self.attribute_names(), *RESERVED_COLUMNS}
        clash = sorted(set(self.pass_through) & named)
        if clash:
            raise ConfigError(f"pass_through: these columns may not be released unchanged: {', '.join(clash)}; remove them")
        if set(self.attribute_names()) & set(RESERVED_COLUMNS):
            raise ConfigError(f"an attribute may not be called any of {', '.join(RESERVED_COLUMNS)}; rename the column")

    @property
    def needs_raw(self) -> bool:
        return "://" not in self.source and not self.source.startswith("/")
