"""From cells to a table, in per cent: NAG per seed, clipped at zero, then mean and sample deviation, beside the paper's."""

import operator
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pass_core.data import Role
from pass_core.errors import AuditError
from pass_core.statistics.nag import mean_nag, nag
from tasks.paper_tables.cells import CellResult, Store
from tasks.paper_tables.definition import MNAG, Column, Figure, Table
from tasks.paper_tables.measure import AttributeScores
from tasks.paper_tables.plan import Plan, PlannedRow
from tasks.sections.dataset import Roles

Place = tuple[float, float]  # of a row in the plot: mean NAG, as fractions, of private attributes and of the others


@dataclass(frozen=True, slots=True)
class Entry:
    """One cell of a printed table: our figure and the paper's, where there are both."""

    column: Column
    role: Role | None  # None for mNAG
    ours: Figure | None
    paper: Figure | None

    @property
    def difference(self) -> float | None:
        """Our figure minus the paper's."""
        return None if self.ours is None or self.paper is None else round(self.ours.value, 1) - self.paper.value


@dataclass(frozen=True, slots=True)
class Beneath:
    """What accuracy cannot see of a private attribute: the exact attacker's NAG, information in nats, balanced accuracy."""

    attribute: str
    exact: Figure | None
    information: float | None
    balanced: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledRow:
    """A row with its figures, or the reason why it has none."""

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
    """The table of a plan whose cells have all been computed."""
    results = {cell.digest: store.get(cell) for cell in plan.cells()}
    rows = [_row(plan.table, row, [results[cell.digest] for cell in row.cells]) for row in plan.rows]
    return FilledTable(plan, tuple(rows), _references(plan, list(results.values())))


def seed_nags(scores: Sequence[AttributeScores], accuracy: Callable[[AttributeScores], float | None]) -> list[float] | None:
    """NAG per seed, as a fraction, of an accuracy; None where there is none, or nothing to normalise by."""
    try:
        found = [None if (a := accuracy(one)) is None else nag(a, one.guess, one.unprotected) for one in scores]
    except AuditError:  # the attribute cannot be inferred from originals either
        return None
    return [value for value in found if value is not None] if None not in found else None


def summarise(values: Sequence[float], accuracies: Sequence[float] = ()) -> Figure:
    """Mean and sample standard deviation (n − 1) in per cent."""
    deviation = 100 * statistics.stdev(values) if len(values) > 1 else None
    return Figure(100 * statistics.mean(values), deviation, 100 * statistics.mean(accuracies) if accuracies else None)


def _row(table: Table, planned: PlannedRow, results: list[CellResult]) -> FilledRow:
    row, roles, columns = planned.row, table.roles_of(planned.row), table.parsed_columns()
    problem = planned.problem or next((result.problem for result in results if result.problem), None)
    scores = {} if problem else {name: [result.attributes[name] for result in results] for name in roles.roles()}
    printed: list[Figure | None] = [Figure.parse(text) for text in row.paper]
    entries = []
    for column, paper in zip(columns, printed or [None] * len(columns), strict=True):
        if column.name == MNAG:
            values = None if problem else seed_mnags(scores, columns, roles)
            entries.append(Entry(column, None, summarise(values) if values else None, paper))
        else:
            ours = _figure(scores[column.attribute], column) if scores else None
            entries.append(Entry(column, roles.roles()[column.attribute], ours, paper))
    attacked = [entry for entry in entries if entry.role is not None and entry.column.source == "attacker"]
    return FilledRow(
        label=row.label,
        method=row.method,
        entries=tuple(entries),
        ours=_place([(e.role, e.ours) for e in attacked]),
        paper=_place([(e.role, e.paper) for e in attacked]),
        beneath=tuple(_beneath(name, scores[name]) for name in roles.private if scores),
        problem=problem,
    )


def seed_mnags(scores: dict[str, list[AttributeScores]], columns: Sequence[Column], roles: Roles) -> list[float] | None:
    """mNAG per seed over the table's attributes."""
    shown = [column.attribute for column in columns if column.name != MNAG and column.source == "attacker"]
    nags = {name: seed_nags(scores[name], lambda one: one.attacker) for name in shown}
    known = {name: values for name, values in nags.items() if values is not None}
    if len(known) < len(shown):
        return None
    private = [values for name, values in known.items() if name in roles.private]
    others = [values for name, values in known.items() if name not in roles.private]
    return [mean_nag(*sides) for sides in zip(zip(*private, strict=True), zip(*others, strict=True), strict=True)]


def _figure(scores: list[AttributeScores], column: Column) -> Figure | None:
    accuracy: Callable[[AttributeScores], float | None] = operator.attrgetter(column.source.replace("-", ""))
    values = seed_nags(scores, accuracy)
    return None if values is None else summarise(values, [a for one in scores if (a := accuracy(one)) is not None])


def _place(figures: Sequence[tuple[Role | None, Figure | None]]) -> Place | None:
    private = [figure.value for role, figure in figures if role == "private" and figure is not None]
    others = [figure.value for role, figure in figures if role != "private" and figure is not None]
    if not private or not others or len(private) + len(others) < len(figures):
        return None
    return statistics.mean(private) / 100, statistics.mean(others) / 100


def _beneath(name: str, scores: list[AttributeScores]) -> Beneath:
    exact, balanced = seed_nags(scores, lambda one: one.exact), summarise([one.balanced for one in scores])
    nats = [one.information for one in scores if one.information is not None]
    return Beneath(name, None if exact is None else summarise(exact), statistics.mean(nats) if nats else None, balanced)


def _references(plan: Plan, results: list[CellResult]) -> tuple[ReferenceRow, ...]:
    # For the attackers' columns only: the other columns are normalised by the same accuracies.
    paper = plan.table.the_setup().paper
    shown = ["" if c.name == MNAG or c.source != "attacker" else c.attribute for c in plan.table.parsed_columns()]
    rows = []
    for label, key in (("No suppression", "unprotected"), ("Guessing", "guess")):
        found = [[getattr(r.attributes[name], key) for r in results if name in r.attributes] for name in shown]
        printed = getattr(paper, key) if paper else {}
        ours = tuple(100 * statistics.mean(values) if values else None for values in found)
        rows.append(ReferenceRow(label, ours, tuple(printed.get(name) for name in shown)))
    return tuple(rows)
