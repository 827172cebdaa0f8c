"""From cells to a table, in per cent: NAG per seed, clipped at zero, then mean and sample deviation; the paper's beside it."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pass_core.data import Role
from pass_core.errors import AuditError
from pass_core.statistics.nag import mean_nag, nag
from tasks.paper_tables.cells import CellResult
from tasks.paper_tables.definition import MNAG, Column, Printed, Source, Table
from tasks.paper_tables.measure import AttributeScores
from tasks.paper_tables.plan import Plan, PlannedRow
from tasks.paper_tables.settings import Roles
from tasks.paper_tables.store import Store


@dataclass(frozen=True, slots=True)
class Figure:
    """Mean over seeds, in per cent; the deviation is None for one seed."""

    value: float
    deviation: float | None
    accuracy: float | None


@dataclass(frozen=True, slots=True)
class Entry:
    """One place of a table: ours, the paper's, both when there are both."""

    column: Column
    role: Role | None  # None for mNAG
    ours: Figure | None
    paper: Printed | None

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        return None if self.ours is None or self.paper is None else round(self.ours.value, 1) - self.paper.value


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row stands: mean NAG of private attributes, and of the others."""

    private: float
    others: float


@dataclass(frozen=True, slots=True)
class Beneath:
    """What accuracy cannot see of a private attribute: the exact attacker's NAG, information in nats, balanced accuracy."""

    attribute: str
    exact: Figure | None
    information: float | None
    balanced: Figure


@dataclass(frozen=True, slots=True)
class FilledRow:
    """A row with its figures, or why it has none."""

    label: str
    method: str
    entries: tuple[Entry, ...]
    ours: Place | None
    paper: Place | None
    beneath: tuple[Beneath, ...]
    problem: str | None


@dataclass(frozen=True, slots=True)
class ReferenceRow:
    """Accuracies that NAG is normalised by: ours and the paper's, per column, None where a column has none."""

    label: str
    ours: tuple[float | None, ...]
    paper: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class FilledTable:
    """A whole table."""

    plan: Plan
    rows: tuple[FilledRow, ...]
    references: tuple[ReferenceRow, ...]


def fill(plan: Plan, store: Store) -> FilledTable:
    """The table of a plan whose cells are all there."""
    results = {cell.digest: store.get(cell) for cell in plan.cells()}
    rows = [_row(plan.table, row, [results[cell.digest] for cell in row.cells]) for row in plan.rows]
    return FilledTable(plan, tuple(rows), _references(plan, list(results.values())))


def seed_nags(told: Sequence[AttributeScores], accuracy: Callable[[AttributeScores], float | None]) -> list[float] | None:
    """NAG per seed, as a fraction, of the accuracy that is asked for; None where there is none, or nothing to normalise by."""
    try:
        found = [None if (a := accuracy(one)) is None else nag(a, one.guess, one.unprotected) for one in told]
    except AuditError:  # originals do not tell the attribute either
        return None
    return [value for value in found if value is not None] if None not in found else None


def summarise(values: Sequence[float], accuracies: Sequence[float] = ()) -> Figure:
    """Mean and sample standard deviation (n − 1) in per cent."""
    deviation = 100 * statistics.stdev(values) if len(values) > 1 else None
    return Figure(100 * statistics.mean(values), deviation, 100 * statistics.mean(accuracies) if accuracies else None)


def _row(table: Table, planned: PlannedRow, results: list[CellResult]) -> FilledRow:
    row, roles, columns = planned.row, table.roles_of(planned.row), table.parsed_columns()
    problem = planned.problem or next((result.problem for result in results if result.problem), None)
    told = {} if problem else {name: [result.attributes[name] for result in results] for name in roles.names()}
    printed: list[Printed | None] = [Printed.parse(text) for text in row.paper]
    entries = []
    for column, paper in zip(columns, printed or [None] * len(columns), strict=True):
        if column.name == MNAG:
            values = None if problem else seed_mnags(told, columns, roles)
            entries.append(Entry(column, None, summarise(values) if values else None, paper))
        else:
            ours = _figure(told[column.attribute], column) if told else None
            entries.append(Entry(column, roles.of(column.attribute), ours, paper))
    return FilledRow(
        row.label,
        row.method,
        tuple(entries),
        _place([(e.role, e.ours.value if e.ours else None) for e in _attacked(entries)]),
        _place([(e.role, e.paper.value if e.paper else None) for e in _attacked(entries)]),
        tuple(_beneath(name, told[name]) for name in roles.private if told),
        problem,
    )


def seed_mnags(told: dict[str, list[AttributeScores]], columns: Sequence[Column], roles: Roles) -> list[float] | None:
    """mNAG per seed over the attributes that the table shows."""
    shown = [column.attribute for column in columns if column.name != MNAG and column.source == "attacker"]
    nags = {name: seed_nags(told[name], lambda one: one.attacker) for name in shown}
    known = {name: values for name, values in nags.items() if values is not None}
    if len(known) < len(shown):
        return None
    private = [values for name, values in known.items() if roles.of(name) == "private"]
    others = [values for name, values in known.items() if roles.of(name) != "private"]
    return [mean_nag(*sides) for sides in zip(zip(*private, strict=True), zip(*others, strict=True), strict=True)]


def _figure(told: list[AttributeScores], column: Column) -> Figure | None:
    sources: dict[Source, Callable[[AttributeScores], float | None]] = {
        "attacker": lambda one: one.attacker,
        "protector": lambda one: one.protector,
        "un-finetuned": lambda one: one.unfinetuned,
    }
    accuracy = sources[column.source]
    values = seed_nags(told, accuracy)
    return None if values is None else summarise(values, [a for one in told if (a := accuracy(one)) is not None])


def _attacked(entries: Sequence[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.role is not None and entry.column.source == "attacker"]


def _place(values: Sequence[tuple[Role | None, float | None]]) -> Place | None:
    private = [value for role, value in values if role == "private" and value is not None]
    others = [value for role, value in values if role != "private" and value is not None]
    if not private or not others or len(private) + len(others) < len(values):
        return None
    return Place(statistics.mean(private), statistics.mean(others))


def _beneath(name: str, told: list[AttributeScores]) -> Beneath:
    exact = seed_nags(told, lambda one: one.exact)
    nats = [one.information for one in told if one.information is not None]
    return Beneath(
        name,
        None if exact is None else summarise(exact),
        statistics.mean(nats) if nats else None,
        summarise([one.balanced for one in told]),
    )


def _references(plan: Plan, results: list[CellResult]) -> tuple[ReferenceRow, ...]:
    """Of the attackers' columns only: the others are normalised by the same."""
    paper = plan.table.the_setup().paper
    columns = [None if c.name == MNAG or c.source != "attacker" else c.attribute for c in plan.table.parsed_columns()]

    def ours(name: str | None, key: Callable[[AttributeScores], float]) -> float | None:
        found = [key(result.attributes[name]) for result in results if name and name in result.attributes]
        return 100 * statistics.mean(found) if found else None

    def printed(name: str | None, values: dict[str, float]) -> float | None:
        return values.get(name) if name else None

    kinds: list[tuple[str, Callable[[AttributeScores], float], dict[str, float]]] = [
        ("No suppression", lambda told: told.unprotected, dict(paper.unprotected) if paper else {}),
        ("Guessing", lambda told: told.guess, dict(paper.guess) if paper else {}),
    ]
    return tuple(
        ReferenceRow(label, tuple(ours(c, key) for c in columns), tuple(printed(c, values) for c in columns))
        for label, key, values in kinds
    )
