"""Checks of settings: fields that declare the values they allow, with one wording for all."""

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar, get_args, get_origin

from pass_core.errors import ConfigError

ValueT = TypeVar("ValueT")
COMPARISONS = {"above": operator.gt, "at_least": operator.ge, "below": operator.lt, "at_most": operator.le}


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
    return field(default=default, metadata={"limits": limits, "range": _in_words(limits)})


def check_range(config: Any, *names: str, **limits: float) -> None:
    """Raises ConfigError when one of these fields of a config lies outside the limits, those of `ranged`."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not all(COMPARISONS[word](value, limit) for word, limit in limits.items()):
            raise ConfigError(f"{name}: expected {_in_words(limits)}, found {value}")


def _in_words(limits: Mapping[str, float]) -> str:
    if limits.keys() == {"at_least", "at_most"}:
        return f"between {limits['at_least']} and {limits['at_most']}"
    return " and ".join(f"{word.replace('_', ' ')} {limit}" for word, limit in limits.items())
