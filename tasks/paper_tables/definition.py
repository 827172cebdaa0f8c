"""Tables as data: the YAML files in this package and users' own tables, parsed into frozen types.

A table declares what is compared (rows), on which attributes (columns), and the paper's figures. Its setup declares the data set
and the effort: `full` is the paper's, `quick` is what two cores do within the hour.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import ConfigDict, ValidationError, create_model

from pass_core.attacks.network import NetworkConfig
from pass_core.errors import ConfigError
from tasks.paper_tables.measure import ProbeConfig
from tasks.sections.dataset import Roles

FOLDER = Path(__file__).parent / "definitions"
SETUPS = FOLDER / "setups.yaml"
MNAG = "mNAG"
FIGURE = re.compile(r"(-?\d+\.\d)±(\d+\.\d)(?: \((\d+\.\d)\))?")

EffortName = Literal["full", "quick"]
Source = Literal["attacker", "protector", "un-finetuned"]
Parsed = TypeVar("Parsed")


@dataclass(frozen=True, slots=True)
class Column:
    """An attribute, and the classifier whose NAG is shown; `mNAG` has no attribute."""

    name: str
    attribute: str
    source: Source

    @classmethod
    def parse(cls, text: str) -> "Column":
        attribute, _, by = text.partition(", ")
        sources: dict[str, Source] = {"": "attacker", "protector": "protector", "un-finetuned": "un-finetuned"}
        if by not in sources:
            expected = "ATTRIBUTE, or ATTRIBUTE followed by ', protector' or ', un-finetuned'"
            raise ConfigError(f"columns: expected {expected}, found {text!r}")
        return cls(text, attribute, sources[by])


@dataclass(frozen=True, slots=True)
class Figure:
    """NAG in per cent: mean and standard deviation over seeds (None for one seed), and the accuracy that it comes from."""

    value: float
    deviation: float | None
    accuracy: float | None

    @classmethod
    def parse(cls, text: str) -> "Figure":
        """A figure as the paper prints it."""
        found = FIGURE.fullmatch(text)
        if found is None:
            raise ConfigError(f"paper: expected a figure such as 62.9±7.5 (82.8), found {text!r}")
        return cls(float(found[1]), float(found[2]), float(found[3]) if found[3] else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One method with its settings; rows without `paper` are ours."""

    label: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)
    pool: Mapping[str, Any] = field(default_factory=dict)
    roles: Roles | None = None
    paper: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Spending:
    """What an effort changes for one method or row."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much time is spent on each cell."""

    seeds: int
    train: Mapping[str, Any]  # fields of TrainConfig
    control: NetworkConfig  # classifiers of the original records: unprotected accuracy, and where attackers start
    attack: ProbeConfig
    pool: Mapping[str, Any] = field(default_factory=dict)
    methods: Mapping[str, Spending] = field(default_factory=dict)  # by method or by a row's label, which takes precedence

    def spending(self, row: Row) -> Spending:
        """What this effort changes for a row."""
        nothing = Spending()
        general, own = self.methods.get(row.method, nothing), self.methods.get(row.label, nothing)
        return Spending({**general.settings, **own.settings, **row.settings}, {**general.train, **own.train, **row.train})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The paper's data, and its accuracies in per cent without protection and by guessing."""

    features: str
    train_records: int
    test_records: int
    unprotected: Mapping[str, float]
    guess: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Setup:
    """A data set with its pool, for several tables."""

    dataset: str
    pool: Mapping[str, Any]
    efforts: Mapping[EffortName, Effort]
    paper: Reference | None = None

    def __post_init__(self) -> None:
        if set(self.efforts) != {"full", "quick"}:
            raise ConfigError(f"efforts: expected full and quick, found {', '.join(self.efforts) or 'none'}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table; `setup` is the name of a shared one, or one of its own."""

    title: str
    setup: str | Setup
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""
    roles: Roles | None = None
    pools: Mapping[EffortName, Mapping[str, Any]] = field(default_factory=dict)  # what this table changes in the setup's pool
    share: float = 1.0  # of the training records that protectors and pool come from; attackers have them all

    def __post_init__(self) -> None:
        shown = [column.attribute for column in self.parsed_columns() if column.name != MNAG]
        for row in self.rows:
            unknown = [name for name in shown if name not in self.roles_of(row).roles()]
            if unknown:
                raise ConfigError(f"row {row.label!r}: columns {', '.join(unknown)} have no role; add them to `roles`")
            if row.paper and len(row.paper) != len(self.columns):
                raise ConfigError(f"row {row.label!r}: expected {len(self.columns)} figures of the paper, found {len(row.paper)}")
            for text in row.paper:
                Figure.parse(text)
        if len({row.label for row in self.rows}) < len(self.rows):
            raise ConfigError("rows: expected each label once, found one twice; rename a row")

    def parsed_columns(self) -> tuple[Column, ...]:
        return tuple(Column.parse(text) for text in self.columns)

    def roles_of(self, row: Row) -> Roles:
        """The row's own roles, or the table's."""
        roles = row.roles or self.roles
        if roles is None:
            raise ConfigError(f"row {row.label!r}: expected `roles` in the row or in the table, found none; add them")
        return roles

    def pool_at(self, effort: EffortName) -> dict[str, Any]:
        """The usual pool of the rows."""
        setup = self.the_setup()
        return {**setup.pool, **setup.efforts[effort].pool, **self.pools.get(effort, {})}

    def the_setup(self) -> Setup:
        """The table's own setup, or the shared one that it names."""
        if isinstance(self.setup, Setup):
            return self.setup
        setups = shared_setups()
        if self.setup not in setups:
            raise ConfigError(f"setup {self.setup!r}: expected one of {', '.join(setups)}, or one of its own")
        return setups[self.setup]


def table_names() -> tuple[str, ...]:
    """The included tables, the paper's in its order first."""
    names = [path.stem for path in FOLDER.glob("*.yaml") if path != SETUPS]
    return tuple(sorted(names, key=lambda name: (not name.startswith("T"), len(name), name)))


def load_table(name: str) -> Table:
    """An included table, or one in a YAML file; a missing or wrong one is a ConfigError."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else FOLDER / f"{name}.yaml"
    known = path.parent != FOLDER or name in table_names()
    if not known or not path.is_file():
        raise ConfigError(f"table {name!r}: expected one of {', '.join(table_names())}, or a YAML file with a table of your own")
    return _parse(Table, path)


def shared_setups() -> Mapping[str, Setup]:
    """The setups that tables refer to."""
    return _parse(dict[str, Setup], SETUPS)


def _parse(kind: type[Parsed], path: Path) -> Parsed:
    model = create_model("definition", __config__=ConfigDict(extra="forbid", frozen=True), content=(kind, ...))
    try:
        raw = yaml.safe_load(path.read_text())
        content: Parsed = getattr(model.model_validate_json(json.dumps({"content": raw})), "content")  # noqa: B009 (made above)
    except (yaml.YAMLError, TypeError, UnicodeDecodeError):
        raise ConfigError(f"{path}: expected YAML, found something else; correct it") from None
    except ValidationError as error:
        places = (".".join(map(str, one["loc"][1:])) + ": " + one["msg"].removeprefix("Value error, ") for one in error.errors())
        raise ConfigError(f"{path}: {'; '.join(places)}; correct it") from None
    return content
