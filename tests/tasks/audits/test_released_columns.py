"""Columns that leave beside the payload reach the audit, whatever they hold."""

import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pass_core.auditing.subject import ColumnValues, MadeRelease, Part, few_classes, make_subject
from pass_core.data import Attribute, Records
from pass_core.errors import SchemaMismatch
from pass_core.randomness import stream
from tasks.audits.release import column_values
from tasks.config import load_config
from tasks.registry import STEPS
from tasks.running.layout import Layout
from tasks.running.step import run_step
from tasks.storage.files import read_json
from tests.conftest import TINY, write_params

N = 1200


def _lake(folder: Path) -> None:
    """Records whose form of address tells the private class, and whose day tells nothing."""
    rng = stream(1, "lake")
    gender, topic = rng.integers(0, 2, N), rng.integers(0, 2, N)
    vectors = np.stack([gender, topic], axis=1) * 2 - 1 + rng.normal(0, 0.3, (N, 2))
    days = [datetime.date(2026, 1, 1) + datetime.timedelta(days=int(day)) for day in rng.integers(0, 90, N)]
    table = pa.table(
        {
            "call": pa.array(range(N)),
            "vector": pa.array(vectors.tolist(), pa.list_(pa.float32())),
            "gender": pa.array(np.array(["f", "m"])[gender]),
            "topic": pa.array(np.array(["a", "b"])[topic]),
            "address": pa.array(np.array(["Ms", "Mr"])[gender]),
            "day": pa.array(days),
        }
    )
    folder.mkdir(parents=True)
    pq.write_table(table, folder / "calls.parquet")


def test_pass_through_columns_of_a_lake_are_the_attackers_side_information(tmp_path: Path) -> None:
    _lake(tmp_path / "root" / "raw" / "calls")
    calls = {"reader": "lake", "record_id": "call", "payload": ["vector"], "private": ["gender"], "useful": ["topic"]}
    params = write_params(
        tmp_path,
        datasets=["calls"],
        methods=["pass_substitution"],
        dataset={"calls": calls | {"pass_through": ["address", "day"]}},
        release={},
        audit=TINY["audit"] | {"attacks": {"logistic_regression": {"iterations": 30}}},
    )
    config, layout = load_config(params), Layout(tmp_path / "root")
    for step in list(STEPS.values())[1:-1]:  # from ingest to audit
        report = run_step(step, step.key("calls", "pass_substitution"), config, layout, "test")
        if step.name == "train":
            assert "training does not hide from people who read the columns beside the payload: address, day" in report.notes
    found = read_json(layout.artefact("audit", STEPS["audit"].key("calls", "pass_substitution")))
    assert found["pass_through"] == ["address", "day"]
    (gender,) = [row for row in found["attributes"] if row["name"] == "gender"]
    told = {side["known"]: side for side in gender["side_information"] if side["released"]}
    assert told["address"]["guess"] == 1.0
    assert told["day"]["guess"] < 0.6  # the control: it tells nothing
    failed = {(check["name"], check["about"]) for check in found["checks"] if check["outcome"] == "leak shown"}
    assert ("private_nag_at_most", "gender, with column address") in failed
    assert any(check["about"] == "gender, with column day" for check in found["checks"])  # it was looked at, too


def _column(values: np.ndarray, *, ordered: bool) -> ColumnValues:
    return ColumnValues(values[:600], values[600:], ordered)


def test_classes_of_a_column_are_few_and_keep_what_they_can() -> None:
    values, train = np.arange(1000) % 200, np.arange(600)
    by_order = few_classes(_column(values, ordered=True), at_most=10)
    assert sorted(np.unique(by_order)) == list(range(10))
    assert np.ptp(np.bincount(by_order[train])) <= 3  # equally many records
    assert (np.diff(by_order[np.argsort(values, kind="stable")]) >= 0).all()
    names = np.where(np.arange(1000) % 4 == 0, 7, values)
    by_name = few_classes(_column(names, ordered=False), at_most=5)
    assert by_name.max() == 4
    assert len(np.unique(by_name[names == 7])) == 1
    assert (by_name[names == 7] == 0).all()  # the commonest has a class of its own
    assert np.array_equal(few_classes(_column(values % 3, ordered=False), at_most=5), values % 3)


def test_columns_of_any_plain_type_are_read_and_others_told() -> None:
    n = 40
    attributes = (Attribute("s", ("a", "b"), "private"), Attribute("u", ("a", "b"), "useful"))
    labels = {"s": np.arange(20) % 2, "u": np.arange(20) % 2}
    part = Part(Records(np.zeros((20, 1), dtype=np.float32), labels), np.arange(20), np.arange(20))
    table = pa.table(
        {
            "u": pa.array(["a", "b"] * 20),  # also an attribute's name
            "gap": pa.array([None, 1.5, 2.5, 3.5] * 10),
            "part": pa.array(["x", "y"] * 20).dictionary_encode(),
            "when": pa.array([datetime.datetime(2026, 1, 1) + datetime.timedelta(hours=k) for k in range(n)]),
            "yes": pa.array([True, False] * 20),
        }
    )
    rows = np.arange(20), np.arange(20, 40)
    release = MadeRelease((part.records.features,), lambda _: part.records.features)
    found = make_subject(attributes=attributes, train=part, test=part, release=release, columns=column_values(table, *rows))
    columns, train, test = found.columns, found.train, found.test
    assert [column.attribute.name for column in columns] == ["released u", "gap", "part", "when", "yes"]
    assert columns[1].train_values.tolist()[:4] == [3, 0, 1, 2]  # what is missing is a value, too
    assert columns[3].attribute.n_classes == 20
    assert set(train.records.labels) == {
        "s", "u", "released u", "gap", "part", "when", "yes", "u and released u and gap and part and when and yes"
    }  # fmt: skip
    assert len(test.records.labels["when"]) == 20
    with pytest.raises(SchemaMismatch, match="column 'list': expected text, numbers or dates beside the payload"):
        column_values(pa.table({"list": pa.array([[1, 2]] * n)}), *rows)
