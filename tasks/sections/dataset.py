"""The section of a data set in params.yaml; a reader's own config type derives from it."""

from collections.abc import Mapping
from dataclasses import dataclass

from pass_core.checks import check_range
from pass_core.data import Attribute, Role
from pass_core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """Which attributes are private, useful or general (kept without being named in training)."""

    private: tuple[str, ...]
    useful: tuple[str, ...]
    general: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()  # without a role: only to choose donors by (pool.only, pool.target, pool.stratify)

    def __post_init__(self) -> None:
        if not self.private or not self.useful:
            found = f"found {len(self.private)} and {len(self.useful)}; name them"
            raise ConfigError(f"expected at least one attribute under `private` and one under `useful`, {found}")
        named = self.private + self.useful + self.general + self.kept
        twice = sorted({name for name in named if named.count(name) > 1})
        if twice:
            found = f"{', '.join(twice)} found in several of private, useful, general, kept"
            raise ConfigError(f"an attribute has one role: {found}; keep one")

    def roles(self) -> dict[str, Role]:
        """Attribute name -> role, private ones first."""
        by_role: dict[Role, tuple[str, ...]] = {"private": self.private, "useful": self.useful, "general": self.general}
        return {name: role for role, names in by_role.items() for name in names}

    def attribute_names(self) -> tuple[str, ...]:
        """The attributes that stay with the records: those with a role and those under `kept`."""
        return (*self.roles(), *self.kept)

    def attributes(self, classes: Mapping[str, tuple[str, ...]]) -> tuple[Attribute, ...]:
        """The attributes that have a role, with their classes."""
        return tuple(Attribute(name, classes[name], role) for name, role in self.roles().items())


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetConfig(Roles):
    """Roles of attributes, and how records are read and features are made."""

    extractor: str = "identity"
    corrupt_files_allowed: int = 0  # so many files may be left out; the records' quarantine.json lists them
    min_class_share: float = 0.005  # validation fails when a class of an attribute with a role is rarer than this in a split
    reader: str | None = None  # the file in tasks/datasets that reads the data set; default: the section's name

    def __post_init__(self) -> None:
        Roles.__post_init__(self)  # slots=True makes a new class, which zero-argument super() does not find
        check_range(self, "corrupt_files_allowed", at_least=0)
        check_range(self, "min_class_share", at_least=0, below=0.5)

    @property
    def needs_raw(self) -> bool:
        """Whether the data set is read from its raw folder; a lake may lie elsewhere."""
        return True
