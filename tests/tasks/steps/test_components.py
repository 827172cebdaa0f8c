"""Components through the steps: learnt on training records only, kept with the donors, and the same in a lake pass."""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tasks.extractors.loading
import tasks.steps.extract
import tasks.storage.parquet
from pass_core.errors import ChecksumMismatch, ConfigError, DataError, SchemaMismatch
from pass_core.randomness import stream
from tasks.config import Config, load_config
from tasks.extractors.facenet import FaceNet
from tasks.lakes.new_records import read_new_records
from tasks.production.run import Hooks
from tasks.production.withdrawal import withdraw
from tasks.registry import STEPS
from tasks.running.layout import Layout
from tasks.running.step import run_step
from tasks.running.step_io import RunKey
from tasks.storage.files import file_digest, read_json, write_json
from tasks.storage.parquet import COMPONENTS, QUANTISED, TableInfo, array_of, read_features, read_folder
from tests.media import picture, random_facenet
from tests.tasks.production.lakes import PassGate, protect, write_params

KEY = RunKey("calls", "pass_substitution")
N, TEST = 48, 12
COLUMNS = {"record_id": "photo", "person": "customer", "payload": ["image"], "payload_kind": "image", "split": "split"}
SECTION = {"reader": "lake", "private": ["gender"], "useful": ["topic"], "extractor": "facenet", **COLUMNS}


def _photos(changed: str = "") -> pa.Table:
    """Photographs of twelve people; the last three are test people. Those of one split may be `changed`."""
    numbers = np.arange(N)
    split = np.where(numbers < N - TEST, "train", "test")
    images = [picture(1000 + k if split[k] == changed else k, 64, 64) for k in numbers.tolist()]
    return pa.table(
        {
            "photo": [f"photo-{k:03d}" for k in numbers],
            "customer": [f"customer-{k // 4:02d}" for k in numbers],
            "split": split,
            "gender": ["fm"[k] for k in numbers % 2],
            "topic": ["ab"[k] for k in numbers // 2 % 2],
            "image": pa.array(images, pa.binary()),
        }
    )


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_facenet(tmp_path_factory.mktemp("weights"))


@pytest.fixture
def changes(weights: Path) -> dict[str, Any]:
    """The sections of params.yaml that differ from those of the calls."""
    settings = {"weights": str(weights), "digest": file_digest(weights), "crop": None, "layer": "repeat_1", "components": 5}
    return {"dataset": {"calls": SECTION}, "extractor": {"facenet": settings}, "pool": {"donors": 16}, "release": {}}


@pytest.fixture
def config(tmp_path: Path, changes: dict[str, Any]) -> Config:
    return load_config(write_params(tmp_path, **changes))


def _with(config: Config, **settings: Any) -> Config:
    return dataclasses.replace(config, extractor={"facenet": dataclasses.replace(config.extractor["facenet"], **settings)})


def _run(config: Config, folder: Path, *, upto: str, changed: str = "", since: str = "ingest") -> Layout:
    """Runs steps below `folder` on photographs."""
    raw, names = folder / "raw" / "calls", list(STEPS)
    raw.mkdir(parents=True, exist_ok=True)
    pq.write_table(_photos(changed), raw / "photos.parquet")
    layout = Layout(folder / "root", folder / "raw")
    for name in names[names.index(since) : names.index(upto) + 1]:
        run_step(STEPS[name], STEPS[name].key(KEY.dataset, str(KEY.method)), config, layout, "test")
    return layout


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images each call of the network was given."""
    calls: list[int] = []
    original: Callable[..., Any] = FaceNet.features

    def counting(self: FaceNet, payloads: Any, *rest: Any) -> Any:
        calls.append(len(payloads))
        return original(self, payloads, *rest)

    monkeypatch.setattr(FaceNet, "features", counting)
    return calls


def test_components_are_learnt_on_training_records_only(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, computed: list[int]
) -> None:
    monkeypatch.setattr(tasks.storage.parquet, "SHARD_ROWS", 20)
    folders = {
        changed: _run(config, tmp_path / f"c{changed}", upto="extract", changed=changed) for changed in ("", "test", "train")
    }
    assert computed == [20, 20, 8] * 3  # two passes, and nothing is computed twice
    features = {changed: layout.artefact("features", KEY) for changed, layout in folders.items()}
    digests = {changed: file_digest(folder / COMPONENTS) for changed, folder in features.items()}
    assert digests[""] == digests["test"] != digests["train"]
    found, other = (read_features(features[changed], ()) for changed in ("", "test"))
    train, test = found.rows("train"), found.rows("test")
    assert (found.records.features[train] == other.records.features[train]).all()
    assert (found.records.features[test] != other.records.features[test]).any()
    assert found.records.features.shape == (N, 5) == (N, *TableInfo.load(features[""]).feature_shape)
    assert np.abs(found.records.features[train].mean(axis=0)).max() < 1e-4


def test_extraction_is_the_same_again_and_reuses_outputs(config: Config, tmp_path: Path, computed: list[int]) -> None:
    layout = _run(config, tmp_path, upto="extract")
    folder = layout.artefact("features", KEY)
    first = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    assert len(first) == 3  # table, components, one shard
    assert len(read_json(folder / "table.json")["extraction"]) == 64
    shutil.rmtree(layout.cache)
    _run(config, tmp_path, upto="extract", since="extract")
    assert {path.name: path.read_bytes() for path in sorted(folder.iterdir())} == first
    assert computed == [N, N]
    _run(_with(config, components=4), tmp_path, upto="extract", since="extract")
    assert computed == [N, N]  # the network's outputs are in the cache, whatever the number of components
    assert {path.name: path.read_bytes() for path in sorted(folder.iterdir())}.keys() == first.keys()
    with pytest.raises(ConfigError, match=r"expected fewer than the 36 training records, found 36; set it to at most 35"):
        _run(_with(config, components=36), tmp_path, upto="extract", since="extract")


def test_memory_holds_a_sample_and_a_shard(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, computed: list[int]
) -> None:
    """Components come from at most `SAMPLE` records, and the network's outputs are reduced before there are many of them."""
    learnt: list[tuple[int, ...]] = []
    original = tasks.extractors.loading.learn_components

    def noting(outputs: np.ndarray, *rest: Any) -> Any:
        learnt.append(outputs.shape)
        return original(outputs, *rest)

    monkeypatch.setattr(tasks.extractors.loading, "learn_components", noting)
    monkeypatch.setattr(tasks.steps.extract, "SAMPLE", 12)
    layout = _run(config, tmp_path, upto="sample_pool")
    assert learnt == [(12, 256 * 9)]
    expected = read_features(layout.artefact("features", KEY), ()).records.features
    monkeypatch.setattr(tasks.extractors.loading, "AT_ONCE", 10)
    assert np.abs(_read(tmp_path / "raw" / "calls", config, layout.artefact("pool", KEY)) - expected).max() < 1e-5
    assert computed == [N, 10, 10, 10, 10, 8]


def test_features_of_another_extraction_are_refused(config: Config, tmp_path: Path) -> None:
    layout = _run(config, tmp_path, upto="substitute")
    pool = layout.artefact("pool", KEY)
    assert (pool / COMPONENTS).read_bytes() == (layout.artefact("features", KEY) / COMPONENTS).read_bytes()
    # The same shape, from another grid: only the digest can tell.
    _run(_with(config, pooling=2), tmp_path, upto="extract", since="extract")
    for step in ("train", "substitute", "audit"):
        with pytest.raises(SchemaMismatch, match=r"expected features like the donors' .*extraction .*run sample_pool"):
            _run(config, tmp_path, upto=step, since=step)
    copied = tmp_path / "copied"
    shutil.copytree(layout.artefact("features", KEY), copied)
    with pytest.raises(SchemaMismatch, match="extract them with the same settings"):
        _read(copied, config, pool)
    _run(config, tmp_path, upto="train", since="sample_pool")  # the way out


def _read(path: Path, config: Config, pool: Path) -> np.ndarray:
    """The features of records that came after training, by id."""
    rng = stream(1, "new")
    new = read_new_records(path, config.dataset["calls"], config.extractor, pool, device="cpu", threads=1, at_most=100, rng=rng)
    return new.table.records.features


def test_new_records_are_extracted_as_the_donors_were(config: Config, tmp_path: Path) -> None:
    layout = _run(config, tmp_path, upto="sample_pool")
    pool, expected = layout.artefact("pool", KEY), read_features(layout.artefact("features", KEY), ()).records.features
    lake = tmp_path / "raw" / "calls"
    assert np.abs(_read(lake, config, pool) - expected).max() < 1e-5
    for other in ({"layer": "mixed_6a"}, {"pooling": 2}, {"components": 0}, {"crop": 50}):
        with pytest.raises(SchemaMismatch, match=r"expected the extraction that its features come from .*layer, pooling"):
            _read(lake, _with(config, **other), pool)
    tensors = tmp_path / "other"
    shutil.copytree(pool, tensors)
    _run(config, tmp_path / "second", upto="extract", changed="train")
    shutil.copy(tmp_path / "second" / "root" / "features" / "calls" / COMPONENTS, tensors)
    with pytest.raises(SchemaMismatch, match="found another one"):  # components of other training records
        _read(lake, config, tensors)


def test_lake_pass_gives_the_pipelines_features(config: Config, changes: dict[str, Any], tmp_path: Path) -> None:
    layout = _run(config, tmp_path, upto="train")
    gate, lake = PassGate(), tmp_path / "raw" / "calls"
    _, manifest = protect(layout.root, lake, tmp_path / "target", hooks=Hooks(gate=gate), params=changes)
    assert manifest is not None
    assert "openvino" not in manifest.numerics
    expected = read_features(layout.artefact("features", KEY), ()).records.features
    seen = gate.seen[0].features
    assert seen.shape == expected.shape
    distances = np.abs(seen[:, None] - expected[None]).max(axis=2)
    assert distances.min(axis=1).max() < 1e-5  # the sample is in the released order
    assert sorted(distances.argmin(axis=1)) == list(range(N))
    other = changes | {"extractor": {"facenet": changes["extractor"]["facenet"] | {"pooling": 2}}}
    with pytest.raises(SchemaMismatch, match="expected the extraction that its features come from"):
        protect(layout.root, lake, tmp_path / "other", params=other)


def test_withdrawn_donors_leave_the_components(config: Config, tmp_path: Path) -> None:
    layout, after = _run(config, tmp_path, upto="train"), Layout(tmp_path / "after")
    donor = read_folder(layout.artefact("pool", KEY)).column("record_id")[0].as_py()
    withdraw(layout, after, "calls", config.dataset["calls"], [donor], by="record")
    pool = after.artefact("pool", KEY)
    assert TableInfo.load(pool) == TableInfo.load(layout.artefact("pool", KEY))
    expected = array_of(read_folder(layout.artefact("pool", KEY)), "features", (5,))
    assert np.abs(_read(tmp_path / "raw" / "calls", config, pool)).shape == (N, 5)
    assert len(read_folder(pool)) == len(expected) - 1


def test_pool_with_other_components_is_not_the_models(config: Config, tmp_path: Path) -> None:
    layout = _run(config, tmp_path, upto="train")
    pool = layout.artefact("pool", KEY)
    write_json(pool / "table.json", read_json(pool / "table.json") | {"extraction": "0" * 64})
    features = layout.artefact("features", KEY)
    write_json(features / "table.json", read_json(features / "table.json") | {"extraction": "0" * 64})
    with pytest.raises(ChecksumMismatch, match="expected the pool that it was trained for, found another"):
        _run(config, tmp_path, upto="substitute", since="substitute")


@pytest.mark.parametrize("other", [{"engine": "openvino"}, {"precision": "bfloat16"}, {"precision": "int8"}], ids=str)
def test_one_precision_serves_pool_training_and_lake(
    config: Config, changes: dict[str, Any], tmp_path: Path, other: dict[str, str]
) -> None:
    layout, lake, mixed = _run(config, tmp_path, upto="train"), tmp_path / "raw" / "calls", _with(config, **other)
    wanted = (
        r"expected engine: torch, precision: float32, which its features were computed with, found .*: set extractor\.facenet"
    )
    with pytest.raises(SchemaMismatch, match=wanted):
        _read(lake, mixed, layout.artefact("pool", KEY))
    changed = changes | {"extractor": {"facenet": changes["extractor"]["facenet"] | other}}
    with pytest.raises(SchemaMismatch, match=wanted):
        protect(layout.root, lake, tmp_path / "target", params=changed)
    assert len(_read(lake, _with(config, engine="torch"), layout.artefact("pool", KEY))) == N  # the same by another name
    if other != {"precision": "int8"}:  # which is calibrated first
        _run(mixed, tmp_path, upto="extract", since="extract")
        with pytest.raises(SchemaMismatch, match="expected features like the donors'"):
            _run(mixed, tmp_path, upto="train", since="train")


def test_int8_is_calibrated_on_training_records_and_kept_with_the_donors(
    config: Config, changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks.steps.extract, "CALIBRATION", 6)
    shown: list[bytes] = []
    original: Callable[..., Any] = FaceNet.calibrate
    monkeypatch.setattr(FaceNet, "calibrate", lambda self, payloads: shown.extend(payloads) or original(self, payloads))
    small = _with(config, precision="int8")
    layout, lake = _run(small, tmp_path, upto="train"), tmp_path / "raw" / "calls"
    assert len(shown) == 6
    assert set(shown) <= set(_photos().column("image").to_pylist()[: N - TEST])
    pool = layout.artefact("pool", KEY)
    expected = read_features(layout.artefact("features", KEY), ()).records.features
    assert (_read(lake, small, pool) == expected).all()
    with pytest.raises(SchemaMismatch, match=r"expected engine: openvino, precision: int8, which .* found torch float32"):
        _read(lake, config, pool)
    gate, changed = PassGate(), changes | {"extractor": {"facenet": changes["extractor"]["facenet"] | {"precision": "int8"}}}
    _, manifest = protect(layout.root, lake, tmp_path / "target", hooks=Hooks(gate=gate), params=changed)
    assert sorted(map(tuple, gate.seen[0].features)) == sorted(map(tuple, expected))  # bit for bit
    assert manifest is not None
    assert "openvino" in manifest.numerics  # another version could give other last bits
    whole = (pool / QUANTISED).read_bytes()
    (pool / QUANTISED).write_bytes(whole + b"\0")
    with pytest.raises(SchemaMismatch, match="found another one"):
        _read(lake, small, pool)
    (pool / QUANTISED).unlink()
    with pytest.raises(DataError, match=r"network\.int8: expected the int8 network that training records calibrated, found none"):
        _read(lake, small, pool)
