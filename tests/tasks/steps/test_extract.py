"""Extraction as a step: sharded, resumable, cached, and the whole pipeline on encoded payloads and on a lake."""

import dataclasses
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile

import tasks.storage.parquet
from pass_core.errors import ConfigError, DataError
from pass_core.randomness import stream
from tasks.config import Config, load_config
from tasks.extractors.logmel import LogMel
from tasks.payloads.payload import payload_bytes
from tasks.payloads.sounds import decode_sound
from tasks.registry import STEPS
from tasks.running.layout import Layout
from tasks.running.step import StepReport, run_step
from tasks.storage.files import read_json
from tasks.storage.parquet import TableInfo, array_of, read_folder, read_partition, shards
from tests.conftest import write_params
from tests.media import sound

SPEAKERS = {f"{k:02d}": {"accent": "German", "age": 20 + k % 2, "gender": "male" if k % 2 else "female"} for k in range(1, 5)}
AUDIO = {"audiomnist": {"private": ["gender"], "useful": ["digit"], "extractor": "logmel"}}
CALLS = {
    "calls": {
        "reader": "lake",
        "private": ["gender"],
        "useful": ["topic"],
        "record_id": "call",
        "person": "customer",
        "payload": ["vector"],
        "pass_through": ["day"],
    }
}


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four speakers, three digits, ten takes, in AudioMNIST's layout, with a tag in every file; a lake beside it."""
    root = tmp_path_factory.mktemp("raw")
    for code in SPEAKERS:
        (root / "audiomnist" / "data" / code).mkdir(parents=True)
        for digit in range(10):
            for take in range(10):
                pitch = 200 + 150 * digit + 30 * (int(code) % 2) + take
                samples = decode_sound(sound(0.12 + 0.01 * (take % 3), pitch=pitch))[0]
                buffer = io.BytesIO()
                with soundfile.SoundFile(buffer, "w", 16_000, 1, format="FLAC", subtype="PCM_16") as file:
                    file.title = "CANARY"
                    file.write(samples)
                (root / "audiomnist" / "data" / code / f"{digit}_{code}_{take}.flac").write_bytes(buffer.getvalue())
    (root / "audiomnist" / "data" / "audioMNIST_meta.txt").write_text(json.dumps(SPEAKERS))
    n, rng = 400, stream(5, "calls")
    gender, topic = np.arange(n) % 2, (np.arange(n) // 2) % 3
    vectors = rng.normal(0, 0.3, (n, 8))
    vectors[:, 0] += 3 * gender
    vectors[:, 1] += 3 * topic
    (root / "calls").mkdir()
    table = {
        "call": pa.array([f"call-{k}" for k in range(n)]),
        "customer": pa.array([f"customer-{k % 40}" for k in range(n)]),
        "day": pa.array([k % 7 for k in range(n)], pa.int8()),
        "gender": pa.array(gender),
        "topic": pa.array(topic),
        "vector": pa.array(vectors.tolist()),
        "secret": pa.array(["CANARY"] * n),
    }
    pq.write_table(pa.table(table), root / "calls" / "one.parquet")
    return root


@pytest.fixture
def config(tmp_path: Path) -> Config:
    params = write_params(tmp_path, dataset=AUDIO | CALLS, datasets=["audiomnist"], release={"audiomnist": ["digit"]})
    return load_config(params)


def _run(name: str, dataset: str, config: Config, layout: Layout, method: str = "pass_substitution") -> StepReport:
    return run_step(STEPS[name], STEPS[name].key(dataset, method), config, layout, "test")


@pytest.fixture
def ready(raw: Path, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """Ingested and validated, in shards of 64 records."""
    monkeypatch.setattr(tasks.storage.parquet, "SHARD_ROWS", 64)
    layout = Layout(tmp_path / "root", raw)
    for name in ("ingest", "validate"):
        _run(name, "audiomnist", config, layout)
    return layout


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each call of the extractor was given."""
    calls: list[int] = []
    original: Callable[..., Any] = LogMel.features

    def counting(self: LogMel, payloads: Any, *rest: Any) -> Any:
        calls.append(len(payloads))
        return original(self, payloads, *rest)

    monkeypatch.setattr(LogMel, "features", counting)
    return calls


def _features(layout: Layout) -> Path:
    return layout.root / "features" / "audiomnist"


def test_stopped_extraction_goes_on_where_it_was(
    ready: Layout, config: Config, computed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(shards(ready.root / "records" / "audiomnist")) == 7
    whole = LogMel.features

    def stopping(self: LogMel, *arguments: Any) -> Any:
        if len(computed) == 3:
            raise KeyboardInterrupt
        return whole(self, *arguments)

    monkeypatch.setattr(LogMel, "features", stopping)
    with pytest.raises(KeyboardInterrupt):
        _run("extract", "audiomnist", config, ready)
    assert not _features(ready).exists()  # nothing half-written has the name
    monkeypatch.setattr(LogMel, "features", whole)
    resumed = _run("extract", "audiomnist", config, ready)
    assert computed == [64] * 6 + [16]  # three before the stop, four after it
    shutil.rmtree(ready.cache)
    assert _run("extract", "audiomnist", config, ready) == resumed  # the same bytes as without a stop
    assert resumed.counts == {"records": 400, "features": 577}


def test_cache_knows_input_settings_and_damage(ready: Layout, config: Config, computed: list[int]) -> None:
    first = _run("extract", "audiomnist", config, ready)
    assert len(computed) == 7
    _run("extract", "audiomnist", config, ready)
    assert len(computed) == 7  # all from the cache
    entries = sorted(ready.cache.rglob("*.parquet"))
    assert len(entries) == 7
    data = bytearray(entries[0].read_bytes())
    data[len(data) // 2] ^= 0xFF
    entries[0].write_bytes(data)
    entries[1].write_bytes(b"")
    assert _run("extract", "audiomnist", config, ready) == first
    assert len(computed) == 9  # the damaged two again
    other = dataclasses.replace(config, extractor={"logmel": load_logmel(bands=32)})
    changed = _run("extract", "audiomnist", other, ready)
    assert len(computed) == 16
    assert changed.digests != first.digests


def load_logmel(**settings: Any) -> Any:
    from tasks.extractors.logmel import LogMelConfig

    return LogMelConfig(**settings)


def test_extractor_of_another_kind_of_payload_is_refused(ready: Layout, config: Config) -> None:
    wrong = dataclasses.replace(config.dataset["audiomnist"], extractor="facenet")
    with pytest.raises(ConfigError, match="facenet reads image payloads, the data set has audio payloads"):
        _run("extract", "audiomnist", dataclasses.replace(config, dataset={"audiomnist": wrong}), ready)


def test_duplicate_id_fails_validation(raw: Path, config: Config, tmp_path: Path) -> None:
    from pass_core.errors import ValidationFailed

    copied = tmp_path / "copied"
    shutil.copytree(raw / "calls", copied / "calls")
    shutil.copy(copied / "calls" / "one.parquet", copied / "calls" / "two.parquet")
    layout = Layout(tmp_path / "root", copied)
    _run("ingest", "calls", config, layout)
    with pytest.raises(ValidationFailed, match="unique on column 'record_id'"):
        _run("validate", "calls", config, layout)


def test_encoded_payloads_go_through_the_whole_pipeline(ready: Layout, config: Config) -> None:
    """What leaves are donors' files, whole and playable, without their tags."""
    for name in ("extract", "sample_pool", "train", "substitute", "audit", "report"):
        _run(name, "audiomnist", config, ready)
    pool = read_folder(ready.root / "pools" / "audiomnist")
    donors = set(payload_bytes(pool.column("payload")))
    original = read_folder(ready.root / "records" / "audiomnist", ["payload"])
    assert b"CANARY" in original.column("payload")[0].as_py()  # the control
    released = read_partition(ready.root / "protected" / "audiomnist" / "pass_substitution", "test")
    assert released.column_names == ["payload", "digit"]
    assert len(released) == 80
    for data in payload_bytes(released.column("payload")):
        assert data in donors
        assert b"CANARY" not in data
        assert len(decode_sound(data)[0]) > 1500
    audit = read_json(ready.root / "audits" / "audiomnist" / "pass_substitution" / "audit.json")
    assert {row["name"] for row in audit["attributes"]} == {"gender", "digit"}
    for name in ("train", "substitute", "audit"):  # a method without a pool releases features
        _run(name, "audiomnist", config, ready, "identity")
    control = read_partition(ready.root / "protected" / "audiomnist" / "identity", "test")
    assert array_of(control, "payload", (577,)).shape == (80, 577)


def test_lake_goes_through_and_only_declared_columns_leave(raw: Path, config: Config, tmp_path: Path) -> None:
    layout = Layout(tmp_path / "root", raw)
    for name in ("ingest", "validate", "extract", "sample_pool", "train", "substitute", "audit", "report"):
        _run(name, "calls", config, layout)
    protected = layout.root / "protected" / "calls" / "pass_substitution"
    links = pq.read_table(layout.root / "linkage" / "calls" / "pass_substitution.parquet").to_pylist()
    days = dict(zip([f"call-{k}" for k in range(400)], [k % 7 for k in range(400)], strict=True))
    for split in ("train", "test"):
        released = read_partition(protected, split)
        assert released.column_names == ["payload", "day"]
        assert released.schema.field("day").type == pa.int8()  # as it came
        for link in links:
            if link["split"] == split:
                assert released.column("day")[link["row"]].as_py() == days[link["record_id"]]
    everything = b"".join(p.read_bytes() for p in layout.root.rglob("*") if p.is_file())
    assert b"CANARY" not in everything
    assert b"customer-7" in everything  # the control: persons are kept inside, for the split
    assert b"customer-7" not in b"".join(p.read_bytes() for p in protected.rglob("*") if p.is_file())
    assert TableInfo.load(layout.root / "records" / "calls").pass_through == ("day",)
    audit = read_json(layout.root / "audits" / "calls" / "pass_substitution" / "audit.json")
    assert audit["pass_through"] == ["day"]
    page = next((layout.root / "audits" / "calls" / "pass_substitution" / "report").glob("*.html")).read_text()
    assert "<dt>Unchanged columns</dt><dd>day</dd>" in page


def test_remote_lake_needs_no_raw_folder(raw: Path, config: Config, tmp_path: Path) -> None:
    remote = dataclasses.replace(config.dataset["calls"], source=f"file://{raw}/calls")
    changed = dataclasses.replace(config, dataset={"calls": remote})
    report = _run("ingest", "calls", changed, Layout(tmp_path / "root"))
    assert report.counts["records"] == 400
    with pytest.raises(DataError, match="expected input 'raw' of step ingest is missing"):
        _run("ingest", "calls", config, Layout(tmp_path / "root"))


def test_ingest_is_the_same_whatever_the_shards(
    raw: Path, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = []
    for rows in (64, 1024):
        monkeypatch.setattr(tasks.storage.parquet, "SHARD_ROWS", rows)
        layout = Layout(tmp_path / str(rows), raw)
        _run("ingest", "audiomnist", config, layout)
        tables.append(read_folder(layout.root / "records" / "audiomnist").combine_chunks())
    assert tables[0].equals(tables[1])
