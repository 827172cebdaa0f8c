"""Range checks of settings, with one wording for all."""

from dataclasses import dataclass
from typing import Any

from pass_core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class NoSettings:
    """The config type of an entry without settings."""


def check_range(
    config: Any,
    *names: str,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
) -> None:
    """Raises ConfigError when one of these fields of a config lies outside the limits; null is always allowed."""
    if at_least is not None and at_most is not None:
        expected = f"between {at_least} and {at_most}"
    else:
        limits = {"above": above, "at least": at_least, "below": below, "at most": at_most}
        expected = " and ".join(f"{word} {limit}" for word, limit in limits.items() if limit is not None)
    for name in names:
        value = getattr(config, name)
        if value is not None and not (
            (above is None or value > above)
            and (at_least is None or value >= at_least)
            and (below is None or value < below)
            and (at_most is None or value <= at_most)
        ):
            raise ConfigError(f"{name}: expected {expected}, found {value}")


def check_choice(config: Any, name: str, allowed: tuple[str, ...]) -> None:
    """Raises ConfigError when a field of a config is none of the allowed words."""
    if getattr(config, name) not in allowed:
        raise ConfigError(f"{name}: expected one of {', '.join(allowed)}, found {getattr(config, name)!r}")
