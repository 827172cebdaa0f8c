"""Parameters: params.yaml parsed once into typed, frozen sections. The only reader of that file."""

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, create_model

import pass_core.attacks
import pass_core.methods
import tasks.datasets
import tasks.extractors
from pass_core import discovery
from pass_core.auditing.thresholds import Depth, Thresholds
from pass_core.channel.pool import PoolConfig
from pass_core.errors import ConfigError
from pass_core.training.loop import TrainConfig
from tasks.sections.audit import AuditConfig
from tasks.sections.dataset import DatasetConfig
from tasks.sections.production import ProtectConfig, ScheduleConfig
from tasks.sections.running import ComputeConfig, TrackingConfig

# What YAML takes for something else.
HINTS = {
    "float_type": " (YAML reads 1e-3 as text: write 0.001)",
    "string_type": " (put it in quotes: YAML reads yes and no as true and false, and 7 as a number)",
}


@dataclass(frozen=True, slots=True)
class Config:
    """All parameters of a project; a step is handed its own sections, never the whole."""

    seed: int
    compute: ComputeConfig
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    dataset: Mapping[str, DatasetConfig]
    extractor: Mapping[str, Any]  # extractors that have a section; the others work with their defaults
    pool: PoolConfig
    train: TrainConfig
    method: Mapping[str, Any]
    release: Mapping[str, tuple[str, ...]]  # data set -> columns that leave with the payload; default: none
    audit: AuditConfig
    tracking: TrackingConfig
    protect: ProtectConfig
    schedule: ScheduleConfig

    def with_names(self, datasets: tuple[str, ...], methods: tuple[str, ...]) -> "Config":
        """This config for other data sets and methods; both must have a section."""
        for kind, names, sections in (("dataset", datasets, self.dataset), ("method", methods, self.method)):
            for name in names:
                if name not in sections:
                    raise ConfigError(f"{kind} {name!r} has no section in params.yaml: expected one of {', '.join(sections)}")
        return dataclasses.replace(self, datasets=datasets, methods=methods)


def load_config(path: Path, overrides: Mapping[str, str] | None = None) -> Config:
    """The parameters in `path`, some replaced by `overrides` ("train.epochs" -> "5").

    Raises:
        ConfigError: a key is unknown or missing, a type wrong, a value not allowed; the message names its path.
    """
    try:
        raw = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"{path}: expected file is missing; run from the project's folder or give --params") from None
    except (OSError, UnicodeDecodeError):
        raise ConfigError(f"{path}: cannot be read as a text file; give --params") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}{line}: is not YAML; correct it") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: expected a table of sections, found {type(raw).__name__}")
    for dotted, text in (overrides or {}).items():
        _override(raw, dotted, text)
    return _parse(raw, path.name)


def parse_overrides(settings: list[str]) -> dict[str, str]:
    """["train.epochs=5"] -> {"train.epochs": "5"}."""
    pairs = {}
    for setting in settings:
        dotted, separator, text = setting.partition("=")
        if not separator or not dotted:
            raise ConfigError(f"setting {setting!r}: expected path=value, such as train.epochs=5")
        pairs[dotted] = text
    return pairs


def _override(raw: dict[str, Any], dotted: str, text: str) -> None:
    section = raw
    *parents, last = dotted.split(".")
    for name in parents:
        section = section.setdefault(name, {})
        if not isinstance(section, dict):
            raise ConfigError(f"{dotted}: {name!r} is a value, not a section")
    try:
        section[last] = yaml.safe_load(text)
    except yaml.YAMLError:
        raise ConfigError(f"{dotted}: the value is not YAML") from None


def _parse(raw: dict[str, Any], source: str) -> Config:
    strict = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
    _check_keys(raw)
    datasets = _named_sections(raw.get("dataset"), "dataset", tasks.datasets, "DATASET", strict)
    raw["extractor"] = raw.get("extractor") or {}
    extractors = _named_sections(raw["extractor"], "extractor", tasks.extractors, "EXTRACTOR", strict, at_least=0)
    methods = _named_sections(raw.get("method"), "method", pass_core.methods, "METHOD", strict)
    attacks = _named_sections(
        raw["audit"].get("attacks") if isinstance(raw.get("audit"), dict) else None,
        "audit.attacks",
        pass_core.attacks,
        "ATTACK",
        strict,
    )
    audit = create_model(
        "audit",
        __config__=strict,
        attacks=(attacks, ...),
        depth=(Depth, Depth()),
        thresholds=(Thresholds, Thresholds()),
        valid_days=(int, 365),
    )
    fields: dict[str, Any] = {
        "seed": (int, ...),
        "compute": (ComputeConfig, ComputeConfig()),
        "datasets": (tuple[str, ...], ...),
        "methods": (tuple[str, ...], ...),
        "dataset": (datasets, ...),
        "extractor": (extractors, ...),
        "pool": (PoolConfig, ...),
        "train": (TrainConfig, ...),
        "method": (methods, ...),
        "release": (dict[str, tuple[str, ...]], {}),
        "audit": (audit, ...),
        "tracking": (TrackingConfig, TrackingConfig()),
        "protect": (ProtectConfig, ProtectConfig()),
        "schedule": (ScheduleConfig, ScheduleConfig()),
    }
    model = create_model("params", __config__=strict, **fields)
    try:
        # Through JSON, where a strict parser still takes a list for a tuple and 1 for 1.0, but never "1".
        parsed: Any = model.model_validate_json(json.dumps(raw))
    except TypeError:
        raise ConfigError(f"{source}: keys must be text and values plain YAML (no dates)") from None
    except ValidationError as error:
        raise ConfigError("; ".join(f"{source}: {_explain(e, model)}" for e in error.errors())) from None
    values = {name: getattr(parsed, name) for name in fields}
    for name in ("dataset", "extractor", "method"):
        values[name] = dict(values[name])
    values["audit"] = AuditConfig(**dict(parsed.audit) | {"attacks": dict(parsed.audit.attacks)})
    config = Config(**values)
    config = config.with_names(config.datasets, config.methods)
    _check_datasets(config)
    _check_release(config)
    return config


def _check_keys(section: Any, path: str = "") -> None:
    """DVC's run cache overlooks keys of two names: a change in them, a lake's column say, would bring back old results."""
    for name, value in section.items() if isinstance(section, dict) else ():
        if name in ("size", "nfiles"):
            raise ConfigError(f"{path}{name}: may not be a key, since DVC overlooks a change in it; rename the column or class")
        _check_keys(value, f"{path}{name}.")


def _named_sections(raw: Any, path: str, package: Any, entry: str, strict: ConfigDict, at_least: int = 1) -> type[BaseModel]:
    """A model with one field per named section, typed by the entry of that name, or of the one its `reader` names."""
    if not isinstance(raw, dict) or len(raw) < at_least:
        raise ConfigError(f"{path}: expected a table with at least one of {', '.join(discovery.available(package))}")
    fields: dict[str, Any] = {}
    for name in raw:
        try:
            fields[str(name)] = (getattr(discovery.load(package, _entry_name(raw, name)), entry).config_type, ...)
        except ConfigError as error:
            raise ConfigError(f"{path}.{name}: {error}") from None
        if raw[name] is None:
            raw[name] = {}  # `identity:` alone is a section with nothing to choose
    return create_model(path, __config__=strict, **fields)


def _entry_name(sections: dict[Any, Any], name: Any) -> str:
    """A section's own name, unless it says that another entry reads it."""
    section = sections[name]
    return str(section["reader"]) if isinstance(section, dict) and section.get("reader") else str(name)


def _check_datasets(config: Config) -> None:
    """Readers, attributes and extractors must exist; told before anything runs."""
    extractors = discovery.available(tasks.extractors)
    for name, section in config.dataset.items():
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            raise ConfigError(f"dataset.{name}: expected a name of small letters, digits and underscores")
        if section.reader not in (None, name) and name in discovery.available(tasks.datasets):
            raise ConfigError(f"dataset.{name}.reader: this section has a reader of its own name; rename the section")
        known = discovery.load(tasks.datasets, section.reader or name).DATASET.attribute_names
        for role in ("private", "useful", "general", "kept"):
            for attribute in getattr(section, role):
                if known is not None and attribute not in known:
                    raise ConfigError(
                        f"dataset.{name}.{role}: unknown attribute {attribute!r}: expected some of {', '.join(known)}"
                    )
        if section.extractor not in extractors:
            raise ConfigError(
                f"dataset.{name}.extractor: unknown name {section.extractor!r}: expected one of {', '.join(extractors)}"
            )


def _check_release(config: Config) -> None:
    """Released columns must be useful attributes."""
    for name, columns in config.release.items():
        if name not in config.dataset:
            raise ConfigError(f"release.{name}: unknown data set: expected one of {', '.join(config.dataset)}")
        allowed = config.dataset[name].useful
        for column in columns:
            if column not in allowed:
                raise ConfigError(
                    f"release.{name}: column {column!r} may not leave: only useful attributes may ({', '.join(allowed)})"
                )


def _explain(error: Any, model: type[BaseModel]) -> str:
    path = ".".join(str(part) for part in error["loc"])
    kind, message = error["type"], str(error["msg"])
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"{path}: unknown key: expected one of {', '.join(_keys(model, error['loc'][:-1]))}"
    if kind in ("missing", "missing_argument"):
        return f"{path}: is missing"
    if kind == "value_error":
        message = message.removeprefix("Value error, ")
        named = re.match(r"(\w+): (.*)", message, flags=re.DOTALL)
        return f"{path}.{named[1]}: {named[2]}" if named else f"{path}: {message}"
    hint = HINTS.get(kind, "")
    return f"{path}: {message[0].lower()}{message[1:]}, found {type(error['input']).__name__}{hint}"


def _keys(model: Any, path: tuple[Any, ...]) -> list[str]:
    """The keys allowed at a path of nested models and dataclasses."""
    for part in path:
        if isinstance(model, type) and issubclass(model, BaseModel):
            model = model.model_fields[part].annotation
        else:
            model = next(f.type for f in dataclasses.fields(model) if f.name == part)
    if isinstance(model, type) and issubclass(model, BaseModel):
        return list(model.model_fields)
    return [f.name for f in dataclasses.fields(model)]
