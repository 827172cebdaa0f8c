"""From accuracies to a table, against values computed by hand."""

import dataclasses
from pathlib import Path

import pytest

from pass_core.attacks.network import NetworkConfig
from tasks.paper_tables.aggregate import FilledTable, fill, seed_nags, summarise
from tasks.paper_tables.cells import CellResult, FeatureSet, Store
from tasks.paper_tables.definition import Row, Table, load_table
from tasks.paper_tables.measure import AttributeScores
from tasks.paper_tables.plan import make_plan
from tasks.sections.dataset import Roles
from tests.tasks.paper_tables.tiny import write_table

GUESS, UNPROTECTED = 0.5, 0.9


def _scores(attacker: float, **changes: float | None) -> AttributeScores:
    scores = AttributeScores(
        guess=GUESS,
        unprotected=UNPROTECTED,
        attacker=attacker,
        balanced=0.5,
        unfinetuned=0.7,
        protector=None,
        exact=None,
        information=None,
    )
    return dataclasses.replace(scores, **changes)  # type: ignore[arg-type]


def _filled(tmp_path: Path, seeds: list[dict[str, AttributeScores]], problem: str | None = None) -> FilledTable:
    """The tiny table's PASS row with these results, one per seed."""
    rows = [row for row in load_table(str(write_table(tmp_path))).rows if row.label == "PASS"]
    table = dataclasses.replace(load_table(str(tmp_path / "tiny.yaml")), rows=tuple(rows))
    features = FeatureSet(
        dataset="synthetic_motion", folder=tmp_path, digest="digest", train_records=100, test_records=50, extractor="identity"
    )
    plan, store = make_plan("tiny", table, "full", features, first_seed=7, seeds=len(seeds)), Store(tmp_path)
    for cell, attributes in zip(plan.rows[0].cells, seeds, strict=True):
        store.put(cell, CellResult(attributes, {}, problem))
    return fill(plan, store)


def test_nag_is_clipped_per_seed_before_it_is_averaged() -> None:
    """MSDA's 5.5 ± 9.6 of the paper can only come from (0, 0, 16.6): two seeds below guessing, one above."""
    scores = [_scores(0.30), _scores(0.45), _scores(GUESS + 0.166 * (UNPROTECTED - GUESS))]
    values = seed_nags(scores, lambda one: one.attacker)
    assert values == pytest.approx([0.0, 0.0, 0.166])
    figure = summarise(values or [], [one.attacker for one in scores])
    assert figure.value == pytest.approx(5.5333, abs=1e-3)
    assert figure.deviation == pytest.approx(9.584, abs=1e-3)  # with n − 1; with n it would be 7.8
    assert figure.accuracy == pytest.approx(100 * (0.30 + 0.45 + 0.5664) / 3)


def test_one_seed_has_no_deviation() -> None:
    assert summarise([0.25]).deviation is None


def test_row_holds_mean_deviation_accuracy_and_difference(tmp_path: Path) -> None:
    """gender: NAG 0.25 and 0.75; id: 0 and 0.5; activity: 1 and 0.5."""
    seeds = [
        {"gender": _scores(0.6), "id": _scores(0.4, protector=0.52), "activity": _scores(0.9, unfinetuned=0.7)},
        {"gender": _scores(0.8), "id": _scores(0.7, protector=0.50), "activity": _scores(0.7, unfinetuned=0.6)},
    ]
    row = _filled(tmp_path, seeds).rows[0]
    gender, own, id_, activity, unfinetuned, mnag = row.entries
    assert (gender.ours.value, gender.ours.accuracy) == pytest.approx((50.0, 70.0))  # type: ignore[union-attr]
    assert gender.ours.deviation == pytest.approx(35.355, abs=1e-3)  # type: ignore[union-attr]
    assert gender.difference == pytest.approx(49.0)  # the paper's is 1.0
    assert own.ours.value == pytest.approx(2.5)  # type: ignore[union-attr]
    assert id_.ours.value == pytest.approx(25.0)  # type: ignore[union-attr]
    assert activity.ours.value == pytest.approx(75.0)  # type: ignore[union-attr]
    assert unfinetuned.ours.value == pytest.approx(37.5)  # type: ignore[union-attr]
    # Per seed: 1 − (0.25 + 0)/2 = 0.875, and 0.5 − (0.75 + 0.5)/2 = −0.125. It is not clipped.
    assert mnag.ours.value == pytest.approx(37.5)  # type: ignore[union-attr]
    assert mnag.ours.deviation == pytest.approx(70.711, abs=1e-3)  # type: ignore[union-attr]
    assert row.ours == pytest.approx((0.375, 0.75))
    assert row.paper == pytest.approx((0.005, 0.981))


def test_attribute_that_originals_do_not_tell_has_no_nag(tmp_path: Path) -> None:
    blind = _scores(0.5, unprotected=GUESS)
    row = _filled(tmp_path, [{"gender": blind, "id": _scores(0.5), "activity": _scores(0.9)}]).rows[0]
    assert row.entries[0].ours is None
    assert row.entries[-1].ours is None  # mNAG needs it
    assert row.entries[3].ours is not None


def test_method_without_adversary_has_no_protectors_figure(tmp_path: Path) -> None:
    row = _filled(tmp_path, [{"gender": _scores(0.5), "id": _scores(0.5), "activity": _scores(0.9)}]).rows[0]
    assert row.entries[1].ours is None


def test_row_that_cannot_be_computed_says_why(tmp_path: Path) -> None:
    row = _filled(tmp_path, [{}], problem="too few records").rows[0]
    assert row.problem == "too few records"
    assert all(entry.ours is None and entry.paper is not None for entry in row.entries)


def test_mnag_is_over_the_columns_shown(tmp_path: Path) -> None:
    """T12 shows two of the five attributes beside Male."""
    table = dataclasses.replace(load_table("T12"), rows=(Row(label="Nothing", method="identity"),))
    features = FeatureSet(
        dataset="celeba", folder=tmp_path, digest="digest", train_records=100, test_records=50, extractor="facenet"
    )
    plan, store = make_plan("T12", table, "quick", features, first_seed=7), Store(tmp_path)
    scores = dict.fromkeys(plan.rows[0].cells[0].roles.roles(), _scores(GUESS))
    scores |= {"Male": _scores(0.6), "Smiling": _scores(0.9), "Young": _scores(0.7)}
    store.put(plan.rows[0].cells[0], CellResult(scores, {}))
    assert fill(plan, store).rows[0].entries[-1].ours.value == pytest.approx(100 * (0.75 - 0.25))  # type: ignore[union-attr]


def test_rows_and_tables_share_cells(tmp_path: Path) -> None:
    """T7 shows the baselines of T8 from another side; PASS of T12 is that of T10."""
    features = FeatureSet(
        dataset="motionsense", folder=tmp_path, digest="digest", train_records=100, test_records=50, extractor="identity"
    )
    shown, others = (make_plan(name, load_table(name), "quick", features, first_seed=7) for name in ("T7", "T8"))
    assert {cell.digest for cell in shown.cells()} < {cell.digest for cell in others.cells()}
    halved = make_plan("T9", load_table("T9"), "quick", features, first_seed=7)
    assert not {cell.digest for cell in halved.cells()} & {cell.digest for cell in others.cells()}
    assert {cell.training.share for cell in halved.cells()} == {0.5}
    assert {control.digest for control in halved.controls()} == {control.digest for control in others.controls()}


def test_pool_of_all_records_is_as_large_as_the_data(tmp_path: Path) -> None:
    features = FeatureSet(
        dataset="audiomnist", folder=tmp_path, digest="digest", train_records=6000, test_records=1200, extractor="logmel"
    )
    plan = make_plan("T5", load_table("T5"), "quick", features, first_seed=7)
    assert [row.cells[0].pool.donors for row in plan.rows] == [1024, 2048, 4096, 8192, 16384, 6000]


def _digest(tmp_path: Path, table: Table, seed: int = 7, features: str = "digest") -> str:
    held = FeatureSet(
        dataset="synthetic_motion", folder=tmp_path, digest=features, train_records=100, test_records=50, extractor="identity"
    )
    return make_plan("tiny", table, "full", held, first_seed=seed).rows[1].cells[0].digest


def test_cell_is_named_by_everything_it_depends_on(tmp_path: Path) -> None:
    table = load_table(str(write_table(tmp_path)))
    setup = table.the_setup()
    full = setup.efforts["full"]

    def changed(**effort: object) -> Table:
        efforts = {**setup.efforts, "full": dataclasses.replace(full, **effort)}  # type: ignore[arg-type]
        return dataclasses.replace(table, setup=dataclasses.replace(setup, efforts=efforts))

    nothing, large = table.rows[0], table.rows[2]
    row = dataclasses.replace(table.rows[1], settings={"general_weight": 0.3})
    names = [
        _digest(tmp_path, table),
        _digest(tmp_path, table, seed=8),
        _digest(tmp_path, table, features="others"),
        _digest(tmp_path, changed(train={**full.train, "epochs": 3})),
        _digest(tmp_path, changed(attack=dataclasses.replace(full.attack, epochs=3))),
        _digest(tmp_path, changed(control=NetworkConfig(3, 64))),
        _digest(tmp_path, dataclasses.replace(table, rows=(nothing, row, large))),
        _digest(tmp_path, dataclasses.replace(table, roles=Roles(private=("gender",), useful=("activity",), general=("id",)))),
        _digest(tmp_path, dataclasses.replace(table, share=0.5)),
    ]
    assert len(set(names)) == len(names)
    # What only people read changes nothing.
    assert _digest(tmp_path, dataclasses.replace(table, title="Another", note="words")) == names[0]
