"""A filled table in words: formatted figures, and how the computation differed from the paper's."""

from collections.abc import Iterator

from tasks.paper_tables.aggregate import Entry, FilledTable
from tasks.paper_tables.definition import Figure
from tasks.paper_tables.plan import Plan

MINUS = "\N{MINUS SIGN}"
NOTHING = "–"
DIRECTIONS = {"private": "↓", "useful": "↑", "general": "↑", None: "↑"}
LEGEND = (
    "NAG in per cent, ± the sample standard deviation over seeds, accuracy in brackets; below it the paper's figure, and ours "
    "minus the paper's. NAG is clipped at 0 for each seed before averaging. mNAG is the mean over useful and general attributes "
    "minus the mean over private ones."
)


def written(figure: Figure | None) -> str:
    """A figure, such as `62.9 ± 7.5 (82.8)`."""
    if figure is None:
        return NOTHING
    spread = "" if figure.deviation is None else f" ± {figure.deviation:.1f}"
    accuracy = "" if figure.accuracy is None else f" ({figure.accuracy:.1f})"
    return f"{number(figure.value)}{spread}{accuracy}"


def difference(entry: Entry) -> str:
    """Our figure minus the paper's, with its sign."""
    return NOTHING if entry.difference is None else number(entry.difference, sign="+")


def number(value: float, sign: str = "") -> str:
    """One digit, a real minus sign, and no minus before zero."""
    return f"{round(value, 1) + 0.0:{sign}.1f}".replace("-", MINUS)


def heads(filled: FilledTable) -> list[str]:
    """Names of the columns, with the desired direction where all rows agree on it."""
    names = []
    for k, column in enumerate(filled.plan.table.parsed_columns()):
        directions = {DIRECTIONS[row.entries[k].role] for row in filled.rows}
        names.append(f"{column.name} {directions.pop()}" if len(directions) == 1 else column.name)
    return names


def role_mark(filled: FilledTable, entry: Entry) -> str:
    """`(S)` or `(U)` before a figure where rows differ in roles."""
    if filled.plan.table.roles is not None or entry.role is None:
        return ""
    return {"private": "(S) ", "useful": "(U) ", "general": "(F) "}[entry.role]


def caption(plan: Plan) -> list[str]:
    """How the table was computed, and where that differs from the paper."""
    return [text for text in (_data(plan), _effort(plan), *_exceptions(plan), _pool(plan), plan.table.note) if text]


def _data(plan: Plan) -> str:
    features, paper = plan.features, plan.table.the_setup().paper
    own = f"{features.extractor} features, {features.train_records:,} training and {features.test_records:,} test records"
    theirs = f"; the paper: {paper.features} features, {paper.train_records:,} and {paper.test_records:,}" if paper else ""
    return f"Data: {features.dataset}, {own}{theirs}."


def _effort(plan: Plan) -> str:
    setup = plan.table.the_setup()
    done, full = setup.efforts[plan.effort], setup.efforts["full"]
    whose = "paper" if setup.paper else "full"

    def against(here: int, there: int) -> str:
        return f"{here}" if here == there else f"{here} ({whose} {there})"

    start = "start from classifiers of originals" if done.attack.start == "originals" else "start from scratch"
    learning = against(done.train["epochs"], full.train["epochs"])
    return (
        f"Effort: {plan.effort}. Protectors learn for {learning} epochs, attackers for "
        f"{against(done.attack.epochs, full.attack.epochs)}, classifiers of originals for {done.control.epochs}; "
        f"seeds: {against(len(plan.seeds), full.seeds)}. Attackers {start} and see {done.attack.draws} releases in turn."
    )


def _exceptions(plan: Plan) -> Iterator[str]:
    """Rows whose protectors learn differently from the rest, grouped by how they learn."""
    effort = plan.table.the_setup().efforts[plan.effort]
    usual = (effort.train["epochs"], effort.train["batch_size"], effort.train["learning_rate"])
    alike: dict[str, list[str]] = {}
    for row in (row for row in plan.rows if row.cells):
        training = row.cells[0].training
        found = (training.epochs, training.batch_size, training.learning_rate)
        parts = [] if found == usual else [f"{found[0]} epochs, batch {found[1]}, learning rate {found[2]:g}"]
        chosen = {name: value for name, value in effort.spending(row.row).settings.items() if name not in row.row.settings}
        parts += [f"{name.replace('_', ' ')} {value}" for name, value in chosen.items()]
        if parts:
            alike.setdefault(", ".join(parts), []).append(row.row.label)
    for manner, labels in alike.items():
        yield f"{'All rows' if len(labels) == len(plan.rows) else ', '.join(labels)}: {manner}."


def _pool(plan: Plan) -> str:
    here, there = (plan.table.pool_at(effort).get("donors") for effort in (plan.effort, "full"))
    usual = [row for row in plan.rows if "donors" not in row.row.pool]
    return f"Pool of {here} donors{'' if here == there else f' (paper {there})'}." if usual else ""


def problems(filled: FilledTable) -> list[str]:
    """Rows without figures, each with its reason."""
    return [f"{row.label}: {row.problem}" for row in filled.rows if row.problem]
