"""A filled table in words: figures as people read them, and what differs from the paper, told from what was really done."""

from collections.abc import Iterator

from tasks.paper_tables.aggregate import Entry, Figure, FilledTable
from tasks.paper_tables.definition import Printed
from tasks.paper_tables.plan import Plan

MINUS = "\N{MINUS SIGN}"
NOTHING = "–"
DIRECTIONS = {"private": "↓", "useful": "↑", "general": "↑", None: "↑"}
LEGEND = (
    "NAG in per cent, ± the sample standard deviation over seeds, accuracy in brackets; below it the paper's, and ours less the "
    "paper's. NAG is clipped at 0 for every seed before averaging. mNAG is the mean over useful and general attributes less the "
    "mean over private ones."
)


def ours(figure: Figure | None) -> str:
    """Ours, such as `62.9 ± 7.5 (82.8)`."""
    if figure is None:
        return NOTHING
    spread = "" if figure.deviation is None else f" ± {figure.deviation:.1f}"
    accuracy = "" if figure.accuracy is None else f" ({figure.accuracy:.1f})"
    return f"{number(figure.value)}{spread}{accuracy}"


def papers(printed: Printed | None) -> str:
    """The paper's, the same way."""
    return NOTHING if printed is None else ours(Figure(printed.value, printed.deviation, printed.accuracy))


def difference(entry: Entry) -> str:
    """Ours less the paper's, with its sign."""
    return NOTHING if entry.difference is None else number(entry.difference, sign="+")


def number(value: float, sign: str = "") -> str:
    """With one digit, a real minus, and no minus before zero."""
    return f"{round(value, 1) + 0.0:{sign}.1f}".replace("-", MINUS)


def heads(filled: FilledTable) -> list[str]:
    """Names of the columns, with the direction that is good where all rows agree on it."""
    told = []
    for k, column in enumerate(filled.plan.table.parsed_columns()):
        directions = {DIRECTIONS[row.entries[k].role] for row in filled.rows}
        told.append(f"{column.name} {directions.pop()}" if len(directions) == 1 else column.name)
    return told


def role_mark(filled: FilledTable, entry: Entry) -> str:
    """`(S)` or `(U)` before a figure where rows differ in roles."""
    if filled.plan.table.roles is not None or entry.role is None:
        return ""
    return {"private": "(S) ", "useful": "(U) ", "general": "(F) "}[entry.role]


def caption(plan: Plan) -> list[str]:
    """What was done, and where the paper did otherwise."""
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

    start = "go on from classifiers of originals" if done.attack.start == "originals" else "start from scratch"
    learning = against(done.train["epochs"], full.train["epochs"])
    return (
        f"Effort: {plan.effort}. Protectors learn for {learning} epochs, attackers for "
        f"{against(done.attack.epochs, full.attack.epochs)}, classifiers of originals for {done.control.epochs}; "
        f"seeds: {against(len(plan.seeds), full.seeds)}. Attackers {start} and see {done.attack.draws} releases in turn."
    )


def _exceptions(plan: Plan) -> Iterator[str]:
    """Rows whose protectors learn otherwise than the rest, those that learn alike together."""
    effort = plan.table.the_setup().efforts[plan.effort]
    usual = (effort.train["epochs"], effort.train["batch_size"], effort.train["learning_rate"])
    alike: dict[str, list[str]] = {}
    for row in (row for row in plan.rows if row.cells):
        training = row.cells[0].training
        found = (training.epochs, training.batch_size, training.learning_rate)
        told = [] if found == usual else [f"{found[0]} epochs, batch {found[1]}, learning rate {found[2]:g}"]
        chosen = {name: value for name, value in effort.spending(row.row).settings.items() if name not in row.row.settings}
        told += [f"{name.replace('_', ' ')} {value}" for name, value in chosen.items()]
        if told:
            alike.setdefault(", ".join(told), []).append(row.row.label)
    for manner, labels in alike.items():
        yield f"{'All rows' if len(labels) == len(plan.rows) else ', '.join(labels)}: {manner}."


def _pool(plan: Plan) -> str:
    here, there = (plan.table.pool_at(effort).get("donors") for effort in (plan.effort, "full"))
    usual = [row for row in plan.rows if "donors" not in row.row.pool]
    return f"Pool of {here} donors{'' if here == there else f' (paper {there})'}." if usual else ""


def problems(filled: FilledTable) -> list[str]:
    """Rows without figures, each with its reason."""
    return [f"{row.label}: {row.problem}" for row in filled.rows if row.problem]
