"""What every data set's section in params.yaml says; a reader's own config type derives from it."""

from collections.abc import Mapping
from dataclasses import dataclass

from pass_core.data import Attribute, Role
from pass_core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class DatasetConfig:
    """Which attributes are private, useful, or general (kept without being named in training), and how features are made."""

    private: tuple[str, ...]
    useful: tuple[str, ...]
    general: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()  # without a role: only to choose donors by (pool.only, pool.target, pool.stratify)
    extractor: str = "identity"
    corrupt_files_allowed: int = 0  # so many files may be left out, named in the records' quarantine.json
    min_class_share: float = 0.005  # validation fails when a class of a named attribute is rarer than this in a split
    reader: str | None = None  # the file in tasks/datasets that reads it, where that is not the section's name

    def __post_init__(self) -> None:
        named = self.private + self.useful + self.general + self.kept
        if not self.private or not self.useful:
            raise ConfigError("expected at least one attribute under `private` and one under `useful`")
        twice = sorted({name for name in named if named.count(name) > 1})
        if twice:
            raise ConfigError(f"an attribute has one role: {', '.join(twice)} found in several of private, useful, general, kept")
        if self.corrupt_files_allowed < 0:
            raise ConfigError(f"corrupt_files_allowed: expected 0 or more, found {self.corrupt_files_allowed}")
        if not 0 <= self.min_class_share < 0.5:
            raise ConfigError(f"min_class_share: expected at least 0 and below 0.5, found {self.min_class_share}")

    @property
    def needs_raw(self) -> bool:
        """Whether the data lie in the data set's raw folder; a lake may lie elsewhere."""
        return True

    def roles(self) -> dict[str, Role]:
        """Attribute name -> role, private ones first."""
        roles: dict[str, Role] = dict.fromkeys(self.private, "private")
        roles |= dict.fromkeys(self.useful, "useful")
        return roles | dict.fromkeys(self.general, "general")

    def columns(self) -> tuple[str, ...]:
        """The attributes that stay with the records: those with a role, and those that donors are chosen by."""
        return (*self.roles(), *self.kept)

    def attributes(self, classes: Mapping[str, tuple[str, ...]]) -> tuple[Attribute, ...]:
        """The named attributes with their classes and roles."""
        return tuple(Attribute(name, classes[name], role) for name, role in self.roles().items())
