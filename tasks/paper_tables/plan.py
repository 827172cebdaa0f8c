"""From a table to its cells: one per row and seed, with all settings explicit."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pass_core.channel.pool import PoolConfig
from pass_core.errors import ConfigError
from pass_core.methods.base import find_method
from pass_core.storage.models import config_of
from pass_core.training.loop import TrainConfig
from tasks.paper_tables.cells import Cell, Control, FeatureSet
from tasks.paper_tables.definition import Effort, EffortName, Row, Table


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """A row with its cells, one per seed; without cells when its method does not exist."""

    row: Row
    cells: tuple[Cell, ...]
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A table at an effort, on given data."""

    name: str
    table: Table
    effort: EffortName
    seeds: tuple[int, ...]
    features: FeatureSet
    rows: tuple[PlannedRow, ...]

    def cells(self) -> tuple[Cell, ...]:
        """Every cell once: rows may share some."""
        return tuple({cell.digest: cell for row in self.rows for cell in row.cells}.values())

    def controls(self) -> tuple[Control, ...]:
        """The classifiers of originals that the cells need, each once."""
        return tuple({c.digest: c for cell in self.cells() for c in cell.controls().values()}.values())


def make_plan(
    name: str, table: Table, effort: EffortName, features: FeatureSet, *, first_seed: int, seeds: int | None = None
) -> Plan:
    """The cells of a table; `seeds` overrides the effort's number of seeds."""
    spent = table.the_setup().efforts[effort]
    numbers = tuple(range(first_seed, first_seed + (seeds or spent.seeds)))
    pool = table.pool_at(effort)
    rows = tuple(_planned(table, row, spent, pool, features=features, seeds=numbers) for row in table.rows)
    return Plan(name=name, table=table, effort=effort, seeds=numbers, features=features, rows=rows)


def _planned(
    table: Table, row: Row, effort: Effort, usual_pool: Mapping[str, Any], *, features: FeatureSet, seeds: tuple[int, ...]
) -> PlannedRow:
    where = f"row {row.label!r}"
    try:
        method = find_method(row.method)
    except ConfigError as error:
        return PlannedRow(row, (), str(error))
    spending = effort.spending(row)
    config = config_of(method.config_type, spending.settings, f"{where}, settings")
    usual = {"validation_share": 0.0, "share": table.share, **effort.train}  # nothing held out, as in the paper
    training = config_of(TrainConfig, usual | dict(spending.train), f"{where}, train")
    pool = {**usual_pool, **row.pool}
    if pool.get("donors") == "all":
        pool["donors"] = features.train_records
    donors = config_of(PoolConfig, pool, f"{where}, pool")
    if donors.forbid != "none":
        raise ConfigError(f"{where}, pool: expected forbid: none, as in the paper's tables, found {donors.forbid}")
    cells = tuple(
        Cell(
            dataset=features.dataset,
            features=features.digest,
            roles=table.roles_of(row),
            method=row.method,
            config=config,
            training=training,
            pool=donors,
            control=effort.control,
            attack=effort.attack,
            seed=seed,
        )
        for seed in seeds
    )
    return PlannedRow(row, cells)
