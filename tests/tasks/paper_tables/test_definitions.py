"""The tables that come along are complete, and their figures of the paper agree with each other."""

import statistics
from pathlib import Path

import pytest

import pass_core.methods
from pass_core import discovery
from pass_core.errors import ConfigError
from tasks.paper_tables.definition import MNAG, Figure, Row, Table, load_table, shared_setups, table_names
from tests.tasks.paper_tables.tiny import TABLE, write_table

PAPERS = [f"T{number}" for number in range(1, 14)]
PRINTED_ROWS = dict(zip(PAPERS, (7, 4, 6, 7, 6, 7, 6, 7, 7, 7, 5, 2, 5), strict=True))


def _recomputed(table: Table, row: Row) -> float:
    """mNAG from the row's own columns."""
    roles, sides = table.roles_of(row), {True: [], False: []}
    for column, text in zip(table.parsed_columns(), row.paper, strict=True):
        if column.name != MNAG and column.source == "attacker":
            sides[column.attribute in roles.private].append(Figure.parse(text).value)
    return statistics.mean(sides[False]) - statistics.mean(sides[True])


def _with_mnag() -> list[tuple[str, str]]:
    tables = {name: load_table(name) for name in PAPERS}
    return [(n, row.label) for n, table in tables.items() if MNAG in table.columns for row in table.rows if row.paper]


def test_every_table_of_the_paper_is_there() -> None:
    assert [name for name in table_names() if name != "demo"] == PAPERS
    assert {name: sum(bool(row.paper) for row in load_table(name).rows) for name in PAPERS} == PRINTED_ROWS


@pytest.mark.parametrize(("name", "label"), _with_mnag())
def test_papers_mnag_is_the_mean_of_its_own_columns(name: str, label: str) -> None:
    """A figure that was typed wrongly would show: each is rounded to 0.1, the paper's mNAG too."""
    table = load_table(name)
    row = next(row for row in table.rows if row.label == label)
    assert _recomputed(table, row) == pytest.approx(Figure.parse(row.paper[-1]).value, abs=0.15)


def test_recomputing_notices_a_figure_that_is_off() -> None:
    table = load_table("T8")
    row = table.rows[0]
    wrong = Row(label=row.label, method=row.method, paper=("63.9±7.5 (82.8)", *row.paper[1:]))
    assert abs(_recomputed(table, wrong) - Figure.parse(row.paper[-1]).value) > 0.15


def test_shared_rows_of_the_paper_are_printed_alike() -> None:
    """PASS on AudioMNIST is one run in four tables, and on CelebA in three."""
    default = {"T1": "PASS", "T3": "λ = 1", "T4": "μ = 0.20", "T5": "4096", "T6": "80 % male, 20 % female; digits alike"}
    rows = [next(row for row in load_table(name).rows if row.label == label) for name, label in default.items()]
    assert len({row.paper for row in rows}) == 1
    faces = [next(row for row in load_table(name).rows if row.label == "PASS").paper for name in ("T10", "T11", "T12")]
    assert faces[0] == faces[1]
    assert faces[0][:3] == faces[2][:3]


@pytest.mark.parametrize("name", table_names())
def test_every_method_is_there_and_takes_its_settings(name: str) -> None:
    table = load_table(name)
    for effort in table.the_setup().efforts.values():
        for row in table.rows:
            method = discovery.load(pass_core.methods, row.method).METHOD
            method.config_type(**effort.spending(row).settings)


def test_full_effort_is_the_papers() -> None:
    full = {name: setup.efforts["full"] for name, setup in shared_setups().items()}
    epochs = {"motionsense": 200, "audiomnist": 2000, "celeba": 50}
    assert {name: effort.train["epochs"] for name, effort in full.items()} == epochs
    assert {name: effort.attack.epochs for name, effort in full.items()} == epochs
    assert {effort.seeds for effort in full.values()} == {3}
    assert {setup.pool["donors"] for setup in shared_setups().values()} == {4096}


def test_control_that_equals_the_paper_is_in_the_tables_it_matters_in() -> None:
    """Where nothing is hidden, a donor of the predicted class does as well as PASS: readers must see it."""
    for name in ("T1", "T8", "T10"):
        assert "same_class_donor" in {row.method for row in load_table(name).rows}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": ["gender", "activity, guessed"]}, "protector"),
        ({"columns": ["gender", "height"]}, "height"),
        ({"colums": ["gender"]}, "colums"),
        ({"roles": None}, "roles"),
        ({"setup": "nowhere"}, "motionsense"),
        ({"rows": [{"label": "PASS", "method": "pass_substitution", "paper": ["62.9±7.5 (82.8)"]}]}, "figures of the paper"),
        ({"rows": [{"label": "PASS", "method": "pass_substitution", "paper": ["62.9"] * 6}]}, "62.9±7.5"),
        ({"rows": [{"label": "A", "method": "identity"}] * 2}, "each label once"),
        ({"setup": TABLE["setup"] | {"efforts": {}}}, "full and quick"),  # type: ignore[operator]
    ],
)
def test_table_that_is_wrong_names_the_mistake(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    path = write_table(tmp_path, **changes)
    with pytest.raises(ConfigError, match=message):
        load_table(str(path)).the_setup()


def test_unknown_table_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"T1, T2.*T13"):
        load_table("T14")
