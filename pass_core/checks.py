"""Checks of settings: fields that declare the values they allow, with one wording for all."""

from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar, get_args, get_origin

from pass_core.errors import ConfigError

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class Checked:
    """A config whose `ranged` and `Literal` fields are checked when it is made."""

    def __post_init__(self) -> None:
        for each in fields(self):
            check_range(self, each.name, **each.metadata.get("limits", {}))
            words = get_args(each.type) if get_origin(each.type) is Literal else ()
            if words and getattr(self, each.name) not in words:
                raise ConfigError(f"{each.name}: expected one of {', '.join(words)}, found {getattr(self, each.name)!r}")


@dataclass(frozen=True, slots=True)
class NoSettings:
    """The config type of an entry without settings."""


def ranged(default: ValueT, **limits: float) -> ValueT:
    """The default of a field of a `Checked` config, and its limits: above, at_least, below, at_most; null is always allowed."""
    return field(default=default, metadata={"limits": limits, "range": range_text(**limits)})


def range_text(
    *, above: float | None = None, at_least: float | None = None, below: float | None = None, at_most: float | None = None
) -> str:
    """The limits in words."""
    if at_least is not None and at_most is not None:
        return f"between {at_least} and {at_most}"
    limits = {"above": above, "at least": at_least, "below": below, "at most": at_most}
    return " and ".join(f"{word} {limit}" for word, limit in limits.items() if limit is not None)


def check_range(
    config: Any,
    *names: str,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
) -> None:
    """Raises ConfigError when one of these fields of a config lies outside the limits; null is always allowed."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not (
            (above is None or value > above)
            and (at_least is None or value >= at_least)
            and (below is None or value < below)
            and (at_most is None or value <= at_most)
        ):
            expected = range_text(above=above, at_least=at_least, below=below, at_most=at_most)
            raise ConfigError(f"{name}: expected {expected}, found {value}")
