"""A cell's settings: roles of attributes, and how its attacker learns."""

from dataclasses import dataclass

from pass_core.attacks.network import NetworkConfig
from pass_core.checks import check_range
from pass_core.data import Role
from pass_core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Roles:
    """Which attributes are private, useful, general."""

    private: tuple[str, ...]
    useful: tuple[str, ...]
    general: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.private or not self.useful:
            raise ConfigError("roles: expected at least one private and one useful attribute")
        if len(set(self.names())) < len(self.names()):
            raise ConfigError("roles: expected each attribute once")

    def names(self) -> tuple[str, ...]:
        return self.private + self.useful + self.general

    def of(self, name: str) -> Role:
        """The role of an attribute."""
        return "private" if name in self.private else "useful" if name in self.useful else "general"


@dataclass(frozen=True, slots=True)
class ProbeConfig(NetworkConfig):
    """The attacker's training; each epoch uses the next of `draws` releases of the training records."""

    draws: int = 8

    def __post_init__(self) -> None:
        NetworkConfig.__post_init__(self)  # `super()` does not know a class with slots
        check_range(self, "draws", at_least=1)
