"""A lake of one's own: Parquet, Delta Lake and CSV; vectors, bytes and paths; local and any fsspec file system."""

from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from pass_core.errors import ConfigError, DataError, SchemaMismatch
from pass_core.randomness import stream
from tasks.datasets.lake import LakeConfig
from tests.media import picture, sound
from tests.readers import read_everything

N = 40
COLUMNS: dict[str, Any] = {
    "record_id": "call",
    "payload": ("vector",),
    "person": "customer",
    "private": ("gender",),
    "useful": ("topic",),
}


def _table(n: int = N) -> pa.Table:
    rng = stream(3, "lake")
    return pa.table(
        {
            "call": pa.array(range(1000, 1000 + n)),
            "customer": pa.array([f"c{k % 13}" for k in range(n)]),
            "day": pa.array([f"2026-11-{1 + k % 3:02d}" for k in range(n)]),
            "gender": pa.array(["f" if k % 2 else "m" for k in range(n)]),
            "topic": pa.array([k % 3 for k in range(n)]),
            "vector": pa.array(rng.normal(size=(n, 6)).tolist(), pa.list_(pa.float64())),
            "secret": pa.array(["CANARY"] * n),
        }
    )


def _write_hive(table: pa.Table, folder: Path) -> None:
    ds.write_dataset(table, folder, format="parquet", partitioning=["day"], partitioning_flavor="hive")


@pytest.mark.parametrize("kind", ["parquet", "delta", "csv", "file://", "memory://"])
def test_formats_and_file_systems_give_the_same_records(tmp_path: Path, kind: str) -> None:
    table = _table()
    settings: dict[str, Any] = COLUMNS | {"pass_through": ("day",)}
    if kind == "delta":
        write_deltalake(tmp_path / "lake", table, partition_by=["day"])
        settings |= {"source": "lake", "format": "delta"}
    elif kind == "csv":
        flat = table.drop_columns(["vector"])
        for k, values in enumerate(np.array(table.column("vector").to_pylist()).T):
            flat = flat.append_column(f"x{k}", pa.array(values))
        ds.write_dataset(flat, tmp_path / "lake", format="csv", partitioning=["day"], partitioning_flavor="hive")
        settings |= {"source": "lake", "format": "csv", "payload": tuple(f"x{k}" for k in range(6))}
    elif kind == "memory://":
        with fsspec.open("memory://lake/day=all/one.parquet", "wb") as file:
            pq.write_table(table.drop_columns(["day"]), file)
        settings |= {"source": "memory://lake"}
    else:
        _write_hive(table, tmp_path / "lake")
        settings |= {"source": f"file://{tmp_path}/lake" if kind == "file://" else "lake"}
    records, reading, _ = read_everything("lake", tmp_path, **settings)
    assert len(records) == N
    assert reading.classes == {"gender": ("f", "m"), "topic": ("0", "1", "2")}
    assert reading.payload.shape == (6,)
    expected = dict(zip(table.column("call").to_pylist(), table.column("vector").to_pylist(), strict=True))
    for record_id, payload in zip(records.record_ids, records.payloads, strict=True):
        assert payload == pytest.approx(np.array(expected[int(record_id)], dtype=np.float32), abs=1e-5)
    split_of = dict(zip(records.persons, records.splits, strict=True))
    assert all(split_of[p] == s for p, s in zip(records.persons, records.splits, strict=True))  # nobody is in both
    assert set(split_of.values()) == {"train", "test"}
    assert set(map(str, records.passed["day"])) <= {"2026-11-01", "2026-11-02", "2026-11-03", "all"}
    assert "secret" not in records.passed
    assert (reading.flags.get("delta version") == 0) == (kind == "delta")


def test_shape_split_block_and_classes_can_be_told(tmp_path: Path) -> None:
    table = _table().append_column("part", pa.array(["test" if k % 13 < 3 else "train" for k in range(N)]))
    _write_hive(table, tmp_path)
    records, reading, _ = read_everything(
        "lake", tmp_path, **COLUMNS, split="part", block="day", payload_shape=(2, 3), classes={"topic": ("2", "0", "1")}
    )
    assert records.payloads.shape == (N, 2, 3)
    assert reading.classes["topic"] == ("2", "0", "1")
    assert set(records.blocks) == {"2026-11-01", "2026-11-02", "2026-11-03"}
    assert records.splits.count("test") == 10  # three of thirteen customers


@pytest.mark.parametrize("consent", [["yes", "no"], [True, False], [1, 0]])
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_column_without_a_role_can_be_kept(tmp_path: Path, kind: str, consent: list[Any]) -> None:
    table = _table(6).drop_columns(["vector", "day"]).append_column("x", pa.array(np.arange(6.0)))
    table = table.append_column("consent", pa.array([consent[k % 2] for k in range(6)]))
    ds.write_dataset(table, tmp_path, format=kind)
    settings = COLUMNS | {"payload": ("x",), "format": kind, "kept": ("consent",)}
    records, reading, _ = read_everything("lake", tmp_path, **settings)
    texts = [str(value).lower() for value in consent]
    assert records.labels["consent"] == tuple(texts * 3)
    assert set(reading.classes["consent"]) == set(texts)
    assert "secret" not in records.labels


@pytest.mark.parametrize("as_path", [False, True])
@pytest.mark.parametrize("kind", ["image", "audio"])
def test_encoded_payloads_and_paths(tmp_path: Path, kind: str, as_path: bool) -> None:
    files = [picture(k, 40, 40) if kind == "image" else sound(0.1 + k / 100) for k in range(6)]
    table = _table(6).drop_columns(["vector"])
    if as_path:
        (tmp_path / "media").mkdir()
        for k, data in enumerate(files):
            (tmp_path / "media" / f"{k}.bin").write_bytes(data)
        table = table.append_column("file", pa.array([f"media/{k}.bin" for k in range(6)]))
    else:
        table = table.append_column("file", pa.array(files, pa.binary()))
    pq.write_table(table, tmp_path / "calls.parquet")
    settings = COLUMNS | {"payload": ("file",), "payload_kind": kind, "payload_is_path": as_path}
    records, reading, _ = read_everything("lake", tmp_path, **settings)
    assert records.payloads == files
    assert reading.payload.kind == kind


def test_damaged_payloads_are_named_by_place_not_by_id(tmp_path: Path) -> None:
    files = [picture(k, 40, 40) for k in range(6)]
    files[2], files[4] = b"", files[4][:300]
    table = _table(6).drop_columns(["vector"]).append_column("file", pa.array(files, pa.binary()))
    pq.write_table(table, tmp_path / "calls.parquet")
    settings = COLUMNS | {"payload": ("file",), "payload_kind": "image"}
    records, _, quarantine = read_everything("lake", tmp_path, budget=2, **settings)
    assert records.record_ids == ("1000", "1001", "1003", "1005")
    assert [entry["file"] for entry in quarantine.entries] == ["file 1 of 1, row 2", "file 1 of 1, row 4"]
    with pytest.raises(DataError, match=r"file 1 of 1, row 2: payload is damaged") as error:
        read_everything("lake", tmp_path, **settings)
    assert "1002" not in str(error.value)


def test_path_that_leaves_the_source_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside.bin").write_bytes(picture(0, 40, 40))
    lake = tmp_path / "lake"
    lake.mkdir()
    for path in ("../outside.bin", str(tmp_path / "outside.bin"), "missing.bin"):
        table = _table(6).drop_columns(["vector"]).append_column("file", pa.array([path] * 6))
        pq.write_table(table, lake / "calls.parquet")
        settings = COLUMNS | {"payload": ("file",), "payload_kind": "image", "payload_is_path": True}
        with pytest.raises(DataError, match=r"payload has a path (outside the source|to no readable file)"):
            read_everything("lake", lake, **settings)


def test_vector_of_another_length_is_quarantined(tmp_path: Path) -> None:
    vectors = [[1.0] * 6] * 5 + [[1.0] * 5]
    table = _table(6).drop_columns(["vector"]).append_column("vector", pa.array(vectors))
    pq.write_table(table, tmp_path / "calls.parquet")
    with pytest.raises(DataError, match="row 5: expected a payload of 6 numbers"):
        read_everything("lake", tmp_path, **COLUMNS)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"useful": ("mood",)}, "missing columns: mood; found call, customer"),
        ({"payload": ("gender",)}, "expected numbers or a list of floats"),
        ({"payload_kind": "image"}, "column 'vector': expected binary"),
        ({"classes": {"topic": ("0", "1")}}, r"column 'topic': \d+ record\(s\) have a class that params.yaml does not list"),
        ({"split": "customer"}, "expected train or test in every record"),
        ({"source": "nowhere"}, r"expected files named \*\.parquet are missing"),
        ({"format": "delta"}, "cannot be opened as delta"),
        ({"payload_shape": (7,)}, "expected a payload of 7 numbers"),
    ],
)
def test_wrong_columns_and_places_say_what_was_expected(tmp_path: Path, settings: dict[str, Any], reason: str) -> None:
    _write_hive(_table(), tmp_path)
    with pytest.raises(DataError, match=reason) as error:
        read_everything("lake", tmp_path, **(COLUMNS | settings))
    assert "CANARY" not in str(error.value)


def test_missing_values_and_floats_are_no_classes(tmp_path: Path) -> None:
    table = _table()
    holes = pa.array([None if k == 3 else "f" for k in range(N)])
    pq.write_table(table.set_column(table.column_names.index("gender"), "gender", holes), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"column 'gender': 1 record\(s\) have no value"):
        read_everything("lake", tmp_path, **COLUMNS)
    floats = pa.array(np.linspace(0, 1, N))
    pq.write_table(table.set_column(table.column_names.index("topic"), "topic", floats), tmp_path / "a.parquet")
    with pytest.raises(SchemaMismatch, match="column 'topic' holds floats"):
        read_everything("lake", tmp_path, **COLUMNS)


def test_csv_names_and_classes_are_text(tmp_path: Path) -> None:
    """Read as numbers, 007 and 7 would be one record, and an error would quote a word of the second file."""
    rows = "\n".join(f"{call},c{k},{gender},{topic},1.5" for k, (call, gender, topic) in enumerate(
        [("007", "f", "01"), ("7", "m", "1"), ("8", "f", "1"), ("9", "m", "01")] * 1))  # fmt: skip
    (tmp_path / "a.csv").write_text(f"call,customer,gender,topic,x\n{rows}\n")
    settings = COLUMNS | {"format": "csv", "payload": ("x",)}
    records, reading, _ = read_everything("lake", tmp_path, **settings)
    assert records.record_ids == ("007", "7", "8", "9")
    assert reading.classes["topic"] == ("01", "1")
    (tmp_path / "b.csv").write_text("call,customer,gender,topic,x\n10,c9,f,1,CANARY\n")
    with pytest.raises(DataError, match="not readable as csv") as error:
        read_everything("lake", tmp_path, **settings)
    assert "CANARY" not in str(error.value)


def test_what_other_programs_left_is_not_read(tmp_path: Path) -> None:
    pq.write_table(_table(), tmp_path / "a.parquet")
    for folder in ("_temporary/0", ".staging"):
        (tmp_path / folder).mkdir(parents=True)
        pq.write_table(_table(), tmp_path / folder / "b.parquet")
    assert len(read_everything("lake", tmp_path, **COLUMNS)[0]) == N


def test_person_in_both_splits_is_refused(tmp_path: Path) -> None:
    table = _table().append_column("part", pa.array(["test" if k % 2 else "train" for k in range(N)]))
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataError, match="a person is in train and in test"):
        read_everything("lake", tmp_path, **COLUMNS, split="part")


def test_damaged_table_file_ends_the_run(tmp_path: Path) -> None:
    pq.write_table(_table(), tmp_path / "a.parquet")
    pq.write_table(_table(), tmp_path / "b.parquet", compression="none")
    data = bytearray((tmp_path / "b.parquet").read_bytes())
    data[4:400] = b"\xff" * 396
    (tmp_path / "b.parquet").write_bytes(data)
    for settings in (COLUMNS, COLUMNS | {"classes": {"gender": ("f", "m"), "topic": ("0", "1", "2")}}):
        with pytest.raises(DataError, match=r"not readable as parquet"):
            read_everything("lake", tmp_path, budget=5, **settings)
    (tmp_path / "b.parquet").write_bytes(bytes(data[:300]))
    with pytest.raises(DataError, match=r"not readable as parquet"):
        read_everything("lake", tmp_path, budget=5, **COLUMNS)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"record_id": ""}, "expected the columns `record_id` and `payload`"),
        ({"payload": ("a", "b"), "payload_kind": "image"}, "expected one column"),
        ({"payload_is_path": True}, "expected payload_kind image or audio"),
        ({"pass_through": ("gender",)}, "may not be released unchanged: gender"),
        ({"pass_through": ("customer", "day")}, "may not be released unchanged: customer"),
        ({"pass_through": ("session",), "block": "session"}, "may not be released unchanged: session"),
        ({"useful": ("split",)}, "an attribute may not be called"),
        ({"kept": ("person",)}, "an attribute may not be called"),
        ({"kept": ("gender",)}, "an attribute has one role: gender"),
        ({"kept": ("consent",), "pass_through": ("consent",)}, "may not be released unchanged: consent"),
    ],
)
def test_settings_that_cannot_be_meant(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        LakeConfig(**(COLUMNS | settings))


def test_unknown_file_system_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no file system for nosuch://"):
        read_everything("lake", tmp_path, **COLUMNS, source="nosuch://bucket/lake")
