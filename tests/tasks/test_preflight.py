"""What is checked before a run, without the libraries that a run needs."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.config import load_config, parse_overrides
from tasks.datasets.lake import DATASET
from tasks.payloads.quarantine import Quarantine
from tasks.preflight import check_protect, check_run
from tasks.production.draw_key import new_key
from tasks.production.options import ProtectOptions
from tasks.storage.files import file_digest
from tests.conftest import PROJECT, write_params

N = 60


@pytest.fixture
def params(tmp_path: Path) -> Path:
    """A project with a lake of vectors."""
    table = pa.table(
        {
            "id": range(N),
            "who": [f"p{k % 17}" for k in range(N)],
            "a": ["x", "y"] * (N // 2),
            "b": [1, 2, 3] * (N // 3),
            "v": pa.array([[float(k), 1.0] for k in range(N)], pa.list_(pa.float32())),
            "part": ["train" if k % 17 < 10 else "test" for k in range(N)],
        }
    )
    (tmp_path / "lake").mkdir()
    pq.write_table(table, tmp_path / "lake" / "0.parquet")
    columns = "record_id: id, person: who, payload: [v], private: [a], useful: [b]"
    path = tmp_path / "params.yaml"
    path.write_text(f"dataset:\n  mine: {{reader: lake, source: {tmp_path}/lake, {columns}}}\n")
    return path


def test_run_that_can_start_has_no_problem(params: Path, tmp_path: Path) -> None:
    assert check_run(params) == []
    assert check_run(PROJECT / "params.yaml", engine="dvc") == []
    assert check_run(write_params(tmp_path), root=tmp_path) == []  # generated: needs no raw files


def test_preflight_imports_neither_torch_nor_prefect(params: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tasks.preflight import check_run, check_protect\n"
        "from tasks.production.options import ProtectOptions\n"
        f"params = Path({str(params)!r})\n"
        "wrong = ['pool.donors=900', 'dataset.mine.extractor=facenet', 'extractor.facenet={weights: none.safetensors}']\n"
        "print(len(check_run(params, wrong)))\n"
        "names = dict(source='lake', target='out', dataset='mine', method='adv')\n"
        "print(len(check_protect(ProtectOptions(params=str(params), **names))))\n"
        "print(sorted({'torch', 'prefect', 'sklearn', 'mlflow', 'great_expectations'} & sys.modules.keys()))"
    )
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    environment = {name: value for name, value in environment.items() if not name.startswith("PASS_")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=params.parent, env=environment
    )
    assert done.stdout.splitlines() == ["3", "3", "[]"], done.stderr


@pytest.mark.parametrize("split", [None, "part"])
def test_pool_is_compared_with_the_records_that_ingest_will_train_on(params: Path, tmp_path: Path, split: str | None) -> None:
    settings = [f"dataset.mine.split={split or 'null'}"]
    config = load_config(params, parse_overrides(settings))
    reading = DATASET.read(tmp_path, config.dataset["mine"], Quarantine(0, "none"))
    training = sum(batch.splits.count("train") for batch in reading.batches)
    assert 0 < training < N
    assert check_run(params, [*settings, f"pool.donors={training}"]) == []
    (problem,) = check_run(params, [*settings, f"pool.donors={training + 1}"])
    assert problem.startswith(f"pool.donors: expected at most the {training} training records of dataset.mine, found")


def test_weights_must_be_the_pinned_ones(params: Path, tmp_path: Path) -> None:
    weights = tmp_path / "w.safetensors"
    weights.write_bytes(b"not the weights")
    image = ["dataset.mine.payload_kind=image", "dataset.mine.extractor=facenet"]
    settings = f"extractor.facenet={{weights: {weights}, digest: {'a' * 64}}}"
    (problem,) = check_run(params, [*image, settings])
    assert f"expected SHA-256 {'a' * 64}, found {file_digest(weights)}; get the right file" in problem
    assert check_run(params, [*image, f"extractor.facenet={{weights: {weights}, digest: {file_digest(weights)}}}"]) == []
    assert check_run(params, [*image, settings], steps=["train"]) == []  # a step that reads no weights
    folder = tmp_path / "hubert"
    audio = ["dataset.mine.payload_kind=audio", "dataset.mine.extractor=hubert", f"extractor.hubert.model={folder}"]
    assert "expected folder with config.json and model.safetensors is missing" in check_run(params, audio)[0]


def test_published_files_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASS_RAW_DATA", str(tmp_path))
    (problem,) = check_run(PROJECT / "params.yaml", datasets=["celeba"])
    assert problem.startswith(f"dataset.celeba: expected the published files in {tmp_path}/celeba, found no folder; set PASS_RAW")
    (tmp_path / "celeba").mkdir()
    assert check_run(PROJECT / "params.yaml", datasets=["celeba"]) == []


def test_protect_needs_a_key_a_model_and_a_target_elsewhere(
    params: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PASS_DRAW_KEY", raising=False)
    monkeypatch.delenv("PASS_DRAW_KEY_FILE", raising=False)
    inside = str(tmp_path / "lake" / "released")
    names = {"source": str(tmp_path / "lake"), "dataset": "mine", "method": "identity", "models": str(tmp_path)}
    options = ProtectOptions(params=str(params), target=str(tmp_path / "out"), **names)
    found = check_protect(options.model_copy(update={"settings": ("seed=4",), "target": inside}))
    for part in ("seed: expected none", "draw key: expected PASS_DRAW_KEY", "outside the source", "models/mine", "pools/mine"):
        assert sum(part in problem for problem in found) == 1, found
    assert len(found) == 5
    for folder in ("models/mine/identity", "pools/mine"):
        (tmp_path / folder).mkdir(parents=True)
    new_key(tmp_path / "key")
    assert check_protect(options.model_copy(update={"key_file": str(tmp_path / "key")})) == []
    assert check_protect(options.model_copy(update={"key_block": "draw-key"})) == []  # the flow reads it from Prefect's server
    monkeypatch.setenv("PASS_DRAW_KEY", "abcdef")
    (problem,) = check_protect(options)
    assert "expected a key of 256 bits, found 24" in problem
