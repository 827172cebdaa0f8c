"""The pool of a tiny lake through the real steps: who has not consented is never a donor."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pass_core.errors import ConfigError, DataError
from tasks.config import Config, load_config
from tasks.registry import STEPS
from tasks.running.layout import Layout
from tasks.running.step import StepReport, run_step
from tasks.storage.parquet import read_folder, read_partition
from tests.conftest import write_params

N = 400
CALLS = {
    "reader": "lake",
    "private": ["gender"],
    "useful": ["topic"],
    "kept": ["consent"],
    "record_id": "call",
    "person": "customer",
    "payload": ["vector"],
}


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty customers with ten calls each; one in three has consented, and calls of the others carry a mark."""
    folder = tmp_path_factory.mktemp("raw") / "calls"
    folder.mkdir()
    k = np.arange(N)
    consented = k % 40 % 3 == 0
    vectors = np.stack([k / N, np.where(consented, 1.0, -1.0)], axis=1)
    table = {
        "call": [f"call-{number}" for number in k],
        "customer": [f"customer-{number % 40}" for number in k],
        "gender": np.where(k % 2, "f", "m"),
        "topic": k // 40 % 3,
        "consent": np.where(consented, "yes", "no"),
        "vector": vectors.tolist(),
    }
    pq.write_table(pa.table(table), folder / "one.parquet")
    return folder.parent


def _config(folder: Path, **pool: Any) -> Config:
    sections: dict[str, Any] = {"datasets": ["calls"], "dataset": {"calls": CALLS}, "release": {}}
    return load_config(write_params(folder, pool={"donors": 60, "forbid": "none"} | pool, **sections))


def _run(name: str, config: Config, layout: Layout) -> StepReport:
    return run_step(STEPS[name], STEPS[name].key("calls", "pass_substitution"), config, layout, "test")


@pytest.fixture(scope="module")
def extracted(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root in which the lake was ingested, validated and extracted."""
    root = tmp_path_factory.mktemp("root")
    config = _config(raw)
    for name in ("ingest", "validate", "extract"):
        _run(name, config, Layout(root, raw))
    return root


@pytest.fixture
def layout(extracted: Path, tmp_path: Path) -> Layout:
    shutil.copytree(extracted, tmp_path / "root")
    return Layout(tmp_path / "root")


def _pool(config: Config, layout: Layout) -> pa.Table:
    _run("sample_pool", config, layout)
    return read_folder(layout.root / "pools" / "calls")


def test_only_those_who_consented_are_donors(layout: Layout, tmp_path: Path) -> None:
    everybody = _pool(_config(tmp_path), layout)
    assert set(everybody.column("consent").to_pylist()) == {"yes", "no"}  # the control: it is the rule that keeps them out
    config = _config(tmp_path, only={"consent": "yes"})
    for seed in range(5):
        pool = _pool(dataclasses.replace(config, seed=seed), layout)
        assert len(pool) == 60
        assert set(pool.column("split").to_pylist()) == {"train"}
        assert all(int(person.removeprefix("customer-")) % 3 == 0 for person in pool.column("person").to_pylist())
        assert all(payload[1] == 1.0 for payload in pool.column("payload").to_pylist())
    for name in ("train", "substitute"):
        _run(name, config, layout)
    protected = layout.root / "protected" / "calls" / "pass_substitution"
    for split in ("train", "test"):
        released = read_partition(protected, split)
        assert released.column_names == ["payload"]  # the column that donors were chosen by stays inside
        assert all(payload[1] == 1.0 for payload in released.column("payload").to_pylist())


def test_shares_are_those_of_the_target_or_of_the_data(layout: Layout, tmp_path: Path) -> None:
    target = _pool(_config(tmp_path, target={"gender": {"f": 0.9, "m": 0.1}}, only={"consent": "yes"}, donors=40), layout)
    assert target.column("gender").to_pylist().count("f") == 36
    records = read_folder(layout.root / "records" / "calls", ["split", "consent", "topic"]).to_pandas().query("split == 'train'")
    pool = _pool(_config(tmp_path, stratify=["consent", "topic"]), layout).to_pandas()
    quotas = records.groupby(["consent", "topic"]).size() * 60 / len(records)
    assert (pool.groupby(["consent", "topic"]).size() - quotas).abs().max() < 1


@pytest.mark.parametrize(
    ("pool", "error", "message"),
    [
        ({"only": {"agreed": "yes"}}, ConfigError, "unknown attribute 'agreed': expected some of gender, topic, consent; .*kept"),
        ({"only": {"consent": "maybe"}}, ConfigError, "unknown class 'maybe' of 'consent': expected one of no, yes"),
        (
            {"only": {"consent": "yes"}, "donors": 200},
            DataError,
            r"at most the \d+ training records, of \d+, that pool.only",
        ),
        ({"target": {"gender": {"f": 0.9}}, "donors": 300}, DataError, "expected 270 training .* with gender 'f' .*, found 1"),
    ],
)
def test_what_cannot_be_had_leaves_no_pool(
    layout: Layout, tmp_path: Path, pool: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        _pool(_config(tmp_path, **pool), layout)
    assert not (layout.root / "pools").exists()
