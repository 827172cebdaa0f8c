"""params.yaml parsed once into typed, frozen sections. The only reader of that file.

Every section and setting is optional except the columns and roles of a data set; defaults live in the typed sections alone.
"""

import copy
import dataclasses
import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, create_model

import pass_core.attacks
import pass_core.methods
import tasks.datasets
import tasks.extractors
from pass_core import discovery
from pass_core.auditing.recipient import Recipient
from pass_core.auditing.thresholds import Thresholds
from pass_core.channel.pool import PoolConfig
from pass_core.errors import ConfigError
from tasks.config_types import entry_value, value_of
from tasks.sections.audit import AuditConfig
from tasks.sections.dataset import DatasetConfig
from tasks.sections.running import ComputeConfig, LineageConfig, NotifyConfig, ProtectConfig, ScheduleConfig, TrackingConfig

if TYPE_CHECKING:
    from pass_core.training.loop import TrainConfig

# Values that YAML reads as another type than their writer meant.
HINTS = {
    "float_type": " (YAML reads 1e-3 as text: write 0.001)",
    "string_type": " (put it in quotes: YAML reads yes and no as true and false, and 7 as a number)",
}
STRICT = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
WHERE = "run from the project's folder, give --params, or write one with `pass-pipeline init SOURCE`"
OVERLOOKED = ("size", "nfiles")  # keys that DVC leaves out of its run cache's key: a change would bring back old results


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All parameters of a project; a step gets its own sections, never the whole."""

    seed: int = 0  # of every random stream of an experiment; production draws by a secret key instead
    compute: ComputeConfig = field(default_factory=ComputeConfig)
    datasets: tuple[str, ...] = ()  # data sets that `run` processes; default: every section of `dataset`
    methods: tuple[str, ...] = ("pass_substitution",)  # methods that `run` trains and audits
    dataset: Mapping[str, DatasetConfig]  # data set -> where it is, its columns and roles
    extractor: Mapping[str, Any] = field(default_factory=dict)  # extractor -> settings that differ from its defaults
    pool: PoolConfig = field(default_factory=PoolConfig)
    train: "TrainConfig"  # how long and how fast protectors learn, and from which records
    method: Mapping[str, Any] = field(default_factory=dict)  # method -> settings that differ from its defaults
    release: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # data set -> useful attributes to release, too
    attacker: Recipient = field(default_factory=Recipient)
    audit: AuditConfig
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    protect: ProtectConfig = field(default_factory=ProtectConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    notify: NotifyConfig = field(default_factory=NotifyConfig)
    lineage: LineageConfig = field(default_factory=LineageConfig)

    def with_names(self, datasets: tuple[str, ...], methods: tuple[str, ...]) -> "Config":
        """This config for other data sets, which need a section, and methods, which have defaults without one."""
        for name in datasets:
            if name not in self.dataset:
                raise ConfigError(
                    f"dataset {name!r} has no section in params.yaml{nearest(name, self.dataset)}: "
                    f"expected one of {', '.join(self.dataset)}; add a section or correct the name"
                )
        new = [name for name in methods if name not in self.method]
        defaults = {name: entry_value(pass_core.methods, name, "config_type", imported=True)() for name in new}
        return dataclasses.replace(self, datasets=datasets, methods=methods, method={**self.method, **defaults})


def load_config(path: Path, overrides: Mapping[str, str] | None = None) -> Config:
    """The parameters in `path`, some replaced by `overrides` ("train.epochs" -> "5").

    Raises:
        ConfigError: a key is unknown or missing, a type wrong, a value not allowed; the message names its path.
    """
    config, problems = parse(read_params(path, overrides), imported=True)
    if config is None or problems:
        raise ConfigError("; ".join(problems))
    return config


def read_params(path: Path, overrides: Mapping[str, str] | None = None, *, advice: str = WHERE) -> dict[str, Any]:
    """The file's content with `overrides`, not yet checked; `advice` is what to do about a missing file."""
    try:
        raw = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"{path}: expected file is missing; {advice}") from None
    except (OSError, UnicodeDecodeError):
        raise ConfigError(f"{path}: cannot be read as a text file; give another path") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}{line}: is not YAML; correct it") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: expected a table of sections, found {type(raw).__name__}; write `name: value` lines")
    for dotted, text in (overrides or {}).items():
        override(raw, dotted, text)
    return raw


def parse_overrides(settings: Iterable[str]) -> dict[str, str]:
    """["train.epochs=5"] -> {"train.epochs": "5"}."""
    pairs = {}
    for setting in settings:
        dotted, separator, text = setting.partition("=")
        if not separator or not dotted:
            raise ConfigError(f"--set {setting}: expected path=value, such as train.epochs=5; correct it")
        pairs[dotted] = text
    return pairs


def override(raw: dict[str, Any], dotted: str, text: str) -> None:
    """Sets one value by its dotted path, in place."""
    section = raw
    *parents, last = dotted.split(".")
    for name in parents:
        section[name] = section.get(name) or {}  # `identity:` alone is a section
        section = section[name]
        if not isinstance(section, dict):
            raise ConfigError(f"{dotted}: {name!r} is a value, not a section; see `pass-pipeline config show`")
    try:
        section[last] = yaml.safe_load(text)
    except yaml.YAMLError:
        raise ConfigError(f"{dotted}: the value is not YAML; put it in quotes") from None


def parse(
    raw: dict[str, Any], *, datasets: Iterable[str] = (), methods: Iterable[str] = (), imported: bool = False
) -> tuple[Config | None, list[str]]:
    """The typed config, and one line for every problem; `datasets` and `methods` replace the file's.

    Without `imported`, the types of sections are read from source (`tasks.config_types`): for checks and explanations only.
    """
    raw = copy.deepcopy(raw)
    raw |= {key: list(names) for key, names in (("datasets", datasets), ("methods", methods)) if names}
    problems = _overlooked(raw)
    model = _params_model(raw, problems, imported)
    try:
        # Through JSON, where a strict parser still takes a list for a tuple and 1 for 1.0, but never "1".
        parsed: Any = model.model_validate_json(json.dumps(raw))
    except TypeError:
        return None, [*problems, "params.yaml: keys must be text and values plain YAML; put dates in quotes"]
    except ValidationError as error:
        return None, [*problems, *(_explain(e, model) for e in error.errors())]
    values = {name: getattr(parsed, name) for name in model.model_fields}
    for name in ("dataset", "extractor", "method"):
        values[name] = dict(values[name])
    try:
        values["audit"] = AuditConfig(**dict(parsed.audit) | {"attacks": dict(parsed.audit.attacks)})
        config = Config(**values)
        config = config.with_names(config.datasets or tuple(config.dataset), config.methods)
    except ConfigError as error:  # perhaps of a name that is among the problems already
        return None, problems + [str(error)] * all(str(error) not in problem for problem in problems)
    return config, [*problems, *_check_datasets(config), *_check_release(config)]


def _params_model(raw: dict[str, Any], problems: list[str], imported: bool) -> type[BaseModel]:
    """The type of the whole file, given the names of its sections; `raw` is completed in place."""
    train = value_of("pass_core.training.loop", "TrainConfig", imported=imported)
    if not raw.get("dataset"):
        problems.append("dataset: expected at least one data set's section, found none; run `pass-pipeline init SOURCE`")
    methods = raw.get("methods", Config.__dataclass_fields__["methods"].default)
    if isinstance(methods, (list, tuple)) and isinstance(raw.get("method") or {}, dict):
        raw["method"] = {**dict.fromkeys(map(str, methods)), **(raw.get("method") or {})}
    raw["audit"] = {} if raw.get("audit") is None else raw["audit"]
    audit: Any = dict[str, Any]
    if isinstance(raw["audit"], dict):
        known = discovery.available(pass_core.attacks)
        if raw["audit"].setdefault("attacks", dict.fromkeys(known)) in ({}, None):
            problems.append(f"audit.attacks: expected a table with at least one of {', '.join(known)}, found none")
        attacks = _named_sections(raw["audit"], "attacks", pass_core.attacks, problems, imported=imported, parent="audit.")
        _complete_limits(raw["audit"].get("thresholds"))
        audit = _model("audit", AuditConfig, {"attacks": (attacks, ...)})
    types: dict[str, Any] = {"train": (train, train()), "audit": (audit, ...)}
    for key, package in {"dataset": tasks.datasets, "extractor": tasks.extractors, "method": pass_core.methods}.items():
        types[key] = (_named_sections(raw, key, package, problems, imported=imported), ...)
    return _model("params", Config, types)


def _model(name: str, config_type: type[Any], types: Mapping[str, Any]) -> type[BaseModel]:
    """A strict model with the fields of a dataclass, some with another type and default."""
    fields: dict[str, Any] = {}
    for part in dataclasses.fields(config_type):
        default = part.default if part.default_factory is dataclasses.MISSING else part.default_factory()
        fields[part.name] = types.get(part.name, (part.type, default))
    return create_model(name, __config__=STRICT, **fields)


def _named_sections(
    raw: dict[str, Any], key: str, package: ModuleType, problems: list[str], *, imported: bool, parent: str = ""
) -> Any:
    """A model with one field per named section, typed by the entry of that name, or of the one its `reader` names."""
    raw[key] = raw.get(key) or {}
    if not isinstance(raw[key], dict):
        return dict[str, Any]  # reported as the wrong type
    fields: dict[str, Any] = {}
    for name in list(raw[key]):
        section = raw[key][name] = {} if raw[key][name] is None else raw[key][name]  # `identity:` alone: all defaults
        entry = str(section.get("reader") or name) if isinstance(section, dict) else str(name)
        try:
            fields[str(name)] = (entry_value(package, entry, "config_type", imported=imported), ...)
        except ConfigError as error:
            problems.append(f"{parent}{key}.{name}: {error}{nearest(entry, discovery.available(package))}")
            del raw[key][name]
    return create_model(f"{parent}{key}", __config__=STRICT, **fields)


def _complete_limits(thresholds: Any) -> None:
    """A limit may be given by its value alone."""
    for name, limit in thresholds.items() if isinstance(thresholds, dict) else ():
        default = getattr(Thresholds(), str(name), None)
        value = limit.get("value") if isinstance(limit, dict) else limit
        if default is None or isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        same = value == default.value
        reason = default.reason if same else f"Set to {value:g} in place of the default {default.value:g}: {default.reason}"
        thresholds[name] = {"reason": reason, **(limit if isinstance(limit, dict) else {"value": value})}


def _overlooked(section: Any, path: str = "") -> list[str]:
    found = []
    for name, value in section.items() if isinstance(section, dict) else ():
        if name in OVERLOOKED:
            found.append(f"{path}{name}: may not be a key, since DVC overlooks a change in it; rename the column or class")
        found += _overlooked(value, f"{path}{name}.")
    return found


def _check_datasets(config: Config) -> list[str]:
    """Readers, attributes and extractors must exist."""
    problems = []
    extractors = discovery.available(tasks.extractors)
    for name, section in config.dataset.items():
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            problems.append(f"dataset.{name}: expected a name of lower-case letters, digits and underscores; rename it")
        if section.reader not in (None, name) and name in discovery.available(tasks.datasets):
            problems.append(f"dataset.{name}.reader: this section has a reader of its own name; rename the section")
        known = entry_value(tasks.datasets, section.reader or name, "attribute_names")
        for role in ("private", "useful", "general", "kept"):
            problems += [
                f"dataset.{name}.{role}: unknown attribute {a!r}{nearest(a, known)}: expected some of {', '.join(known)}"
                for a in getattr(section, role)
                if known is not None and a not in known
            ]
        if section.extractor not in extractors:
            problems.append(
                f"dataset.{name}.extractor: unknown name {section.extractor!r}{nearest(section.extractor, extractors)}: "
                f"expected one of {', '.join(extractors)}"
            )
    return problems


def _check_release(config: Config) -> list[str]:
    """Released columns must be useful attributes."""
    problems = []
    for name, columns in config.release.items():
        if name not in config.dataset:
            problems.append(f"release.{name}: unknown data set: expected one of {', '.join(config.dataset)}; correct the name")
            continue
        allowed = config.dataset[name].useful
        problems += [
            f"release.{name}: column {column!r} may not be released: only useful attributes may ({', '.join(allowed)})"
            for column in columns
            if column not in allowed
        ]
    return problems


def _explain(error: Any, model: type[BaseModel]) -> str:
    path = ".".join(str(part) for part in error["loc"])
    kind, message = error["type"], str(error["msg"])
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        known = _keys(model, error["loc"][:-1])
        return f"{path}: unknown key{nearest(error['loc'][-1], known)}: expected one of {', '.join(known)}"
    if kind in ("missing", "missing_argument"):
        return f"{path}: is missing; see `pass-pipeline config explain {path}`"
    if kind == "value_error":
        message = message.removeprefix("Value error, ")
        named = re.match(r"(\w+): (.*)", message, flags=re.DOTALL)
        return f"{path}.{named[1]}: {named[2]}" if named else f"{path}: {message}"
    found = f"found {type(error['input']).__name__}{HINTS.get(kind, '')}"
    return f"{path}: {message[0].lower()}{message[1:]}, {found}; see `pass-pipeline config explain {path}`"


def _keys(model: Any, path: tuple[Any, ...]) -> list[str]:
    """The keys allowed at a path of nested models and dataclasses."""
    if hasattr(model, "model_fields"):
        types = {name: field.annotation for name, field in model.model_fields.items()}
    else:
        types = {field.name: field.type for field in dataclasses.fields(model)}
    return _keys(types[path[0]], path[1:]) if path else list(types)


def nearest(name: object, known: Iterable[str]) -> str:
    """The known name that was probably meant, as a part of a message; empty where none is close."""
    close = difflib.get_close_matches(str(name), list(known or ()), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
