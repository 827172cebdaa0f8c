"""A settings file: sections as in params.yaml that take precedence over it, and over which `--set` takes precedence."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pass_core.errors import ConfigError
from tasks.config import parse_overrides, read_params


def read_settings(path: Path) -> list[str]:
    """The file as overrides `path=value`, the form of `--set`: whatever takes overrides takes a file of them.

    Raises:
        ConfigError: the file is missing, is not YAML or is no table of sections.
    """
    return list(parse_lines(read_params(path, advice="give the file that `pass-pipeline tune` wrote")))


def with_file(path: Path | None, settings: list[str] | None) -> list[str]:
    """The overrides of a settings file, then those of `--set`: the later one of two counts."""
    given = settings or []
    parse_overrides(given)  # what is wrong on the command line is reported as such
    return [*(read_settings(path) if path else ()), *given]


def parse_lines(section: Mapping[Any, Any], prefix: str = "") -> Iterator[str]:
    """One line per value; a table whose keys cannot stand in a dotted path is one value."""
    for name, value in section.items():
        dotted = f"{prefix}{name}"
        if isinstance(value, Mapping) and value and all(isinstance(key, str) and "." not in key for key in value):
            yield from parse_lines(value, f"{dotted}.")
        else:
            yield f"{dotted}={_yaml(value, dotted)}"


def _yaml(value: Any, dotted: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except TypeError:  # a date
        raise ConfigError(f"{dotted}: expected plain YAML, found {type(value).__name__}; put it in quotes") from None
