"""Unique values planted in ids, persons, private attributes, other columns and tags of files: none is left outside the source.

The whole chain runs as a user runs it, with Prefect, MLflow and Great Expectations, once with success and once with a failure.
"""

import gzip
import os
import re
import shutil
import sqlite3
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from flows.cli.main import app
from pass_core.channel.draws import key_id
from pass_core.errors import PassError
from pass_core.randomness import stream
from tasks.config import load_config
from tasks.production.draw_key import find_key, new_key
from tasks.production.run import plan_of
from tasks.registry import STEPS
from tasks.running.layout import Layout
from tasks.running.step import run_step
from tests.conftest import PROJECT
from tests.media import sound
from tests.tasks.production.lakes import KEY, PARAMS, make_options, protect, released, write_lake, write_params

CANARIES = (b"CANARY-PATIENT", b"CANARY-FILE", b"CANARY-ID", b"CANARY-PERSON", b"CANARY-GENDER", b"CANARY-SECRET", b"CANARY-TAG")
SECTION: dict[str, Any] = {
    "reader": "lake",
    "record_id": "call",
    "person": "customer",
    "payload": ["recording"],
    "payload_kind": "audio",
    "extractor": "logmel",
    "private": ["gender"],
    "useful": ["topic"],
    "pass_through": ["day"],
}
MAX_BYTES = 64 * 2**20


def _tagged(wav: bytes, text: str) -> bytes:
    """A WAV file with a name in it."""
    tag = text.encode() + b"\0" * (len(text) % 2)
    chunk = b"LIST" + struct.pack("<I", 12 + len(tag)) + b"INFOINAM" + struct.pack("<I", len(tag)) + tag
    body = wav[8:] + chunk
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _calls(start: int, days: int, per_day: int, patients: int = 0) -> pa.Table:
    n = days * per_day
    rng = stream(2, "canaries", str(start))
    gender, topic = rng.integers(0, 2, n), rng.integers(0, 2, n)
    clips = [sound(0.12, pitch=200.0 + 150 * g + 400 * t + k % 50) for k, (g, t) in enumerate(zip(gender, topic, strict=True))]
    private = {"patient": [f"CANARY-PATIENT-{k % patients}" for k in range(n)]} if patients else {}
    return pa.table(
        {
            **private,
            "call": [f"CANARY-ID-{start + k}" for k in range(n)],
            "customer": [f"CANARY-PERSON-{(start + k) % 23}" for k in range(n)],
            "day": [f"2026-11-{1 + (start + k) // per_day:02d}" for k in range(n)],
            "gender": [f"CANARY-GENDER-{'fm'[g]}" for g in gender],
            "topic": [f"t{t}" for t in topic],
            "recording": [_tagged(clip, f"CANARY-TAG-{start + k}") for k, clip in enumerate(clips)],
            "secret": [f"CANARY-SECRET-{k}" for k in range(n)],
        }
    )


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trained model in `root`, a lake in `source`, a key, and nothing else."""
    folder = tmp_path_factory.mktemp("house")
    write_lake(_calls(0, 2, 60), folder / "training")
    section = SECTION | {"source": str(folder / "training")}
    config = load_config(write_params(folder, dataset={"calls": section}, pool={"donors": 24}))
    for step in STEPS.values():
        if step.name in {"ingest", "validate", "extract", "sample_pool", "train"}:
            run_step(step, step.key(KEY.dataset, KEY.method), config, Layout(folder / "root"), "test")
    write_lake(_calls(1200, 2, 60), folder / "source")
    new_key(folder / "secrets" / "draw.key")
    return folder


def _protect(house: Path, target: str, *more: str, source: str = "source") -> subprocess.CompletedProcess[str]:
    return _lake(house, "protect", source, target, *more)


def _lake(house: Path, *words: str) -> subprocess.CompletedProcess[str]:
    tracking = {"enabled": True, "store": "mlflow"}
    sections: dict[str, object] = {"tracking": tracking, "protect": PARAMS["protect"], "lineage": {"file": "lineage.jsonl"}}
    write_params(house, dataset={"calls": SECTION}, pool={"donors": 24}, **sections)
    for name in ("home", "temporary"):
        (house / name).mkdir(exist_ok=True)
    environment = os.environ | {
        "HOME": str(house / "home"),
        "TMPDIR": str(house / "temporary"),
        "PREFECT_HOME": str(house / "home" / "prefect"),
        "PASS_DRAW_KEY_FILE": str(house / "secrets" / "draw.key"),
        "PYTHONPATH": str(PROJECT),
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
    }
    command = [sys.executable, "-m", "flows.cli", "lake", *words, "--dataset", "calls", "--models", "root", "--workers", "0"]
    return subprocess.run(command, cwd=house, env=environment, capture_output=True, text=True, check=False)


def _contents(path: Path) -> bytes:
    """A file's bytes, and what they say once they are unpacked."""
    data = path.read_bytes()[:MAX_BYTES]
    if path.suffix == ".parquet":
        data += repr(pq.read_table(path, partitioning=None).to_pylist()).encode()
    elif path.suffix == ".gz":
        data += gzip.decompress(data)
    elif path.suffix == ".npz":
        with np.load(path) as arrays:
            data += b"".join(arrays[name].tobytes() for name in arrays.files)
    return data


def _search(folder: Path, wanted: tuple[bytes, ...], spared: tuple[str, ...] = ()) -> dict[bytes, list[str]]:
    """Which files hold which values."""
    found: dict[bytes, list[str]] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not name.startswith(spared):
            data = _contents(path)
            for value in wanted:
                if value in data or value in name.encode():
                    found.setdefault(value, []).append(name)
    return found


SPARED = (
    "source/",
    "wards/",
    "by_path/",
    "training/",
    "root/",
)  # the originals, and pool and model with what training made of them


def test_nothing_planted_is_left_behind(house: Path) -> None:
    done = _protect(house, "out")
    assert done.returncode == 0, done.stderr
    log = done.stdout + done.stderr
    secret = find_key(house / "secrets" / "draw.key", {})
    keys = (secret, secret.hex().encode())
    (house / "output.log").write_text(log)
    left = _search(house, CANARIES + keys, (*SPARED, "secrets/"))
    assert not left
    # What must be there is, and was searched: databases, pages, manifests, published files.
    names = [path.relative_to(house).as_posix() for path in house.rglob("*") if path.is_file()]
    for part in (
        "mlflow/mlflow.db",
        "home/prefect/prefect.db",
        ".out.state/docs/index.html",
        "out/versions/000001/_manifest.json",
        "out/versions/000001/_croissant.json",
        "lineage.jsonl",
    ):
        assert part in names, part
    assert _search(house, (key_id(secret).encode(),), SPARED)  # the key's id is public, and is found
    assert len(released(house / "out")) == 2
    assert not [name for name in names if name.startswith(".out.state/staging/")]
    for table in released(house / "out").values():
        assert table.column_names == ["recording", "topic"]
        assert all(data.as_py().startswith(b"RIFF") for data in table.column("recording"))


def test_nothing_planted_is_left_in_a_delta_table(house: Path) -> None:
    done = _protect(house, "table", "--target-format", "delta")
    assert done.returncode == 0, done.stderr
    (house / "delta.log").write_text(done.stdout + done.stderr)
    secret = find_key(house / "secrets" / "draw.key", {})
    left = _search(house, (*CANARIES, secret, secret.hex().encode()), (*SPARED, "secrets/"))
    assert not left
    assert list((house / "table" / "_delta_log").glob("*.json"))
    assert list((house / "table").glob("_croissant-*.json"))
    rows = DeltaTable(house / "table").to_pyarrow_table()
    assert sorted(rows.column_names) == ["day", "recording", "topic"]
    assert len(rows) == 120


@pytest.mark.slow
def test_an_erasure_reveals_nothing(house: Path) -> None:
    """Neither whom it erased, in its receipt, the logs and Prefect's database, nor the ids that it was given in a file."""
    done = _protect(house, "erased")
    assert done.returncode == 0, done.stderr
    ids = house / "secrets" / "ids.txt"
    ids.write_text("CANARY-ID-1203\nCANARY-ID-1290\n")
    given = ["--record", f"@{ids}", "--person", "CANARY-PERSON-5", "--reason", "request 17"]
    done = _lake(house, "erase", "erased", *given)
    assert done.returncode == 0, done.stderr
    assert "2 record id(s) and 1 person id(s) erased from erased: version 2 is live" in done.stdout
    (house / "erased.log").write_text(done.stdout + done.stderr)
    assert not _search(house, CANARIES, (*SPARED, "secrets/"))
    rows = sum(len(table) for table in released(house / "erased").values())
    people = [f"CANARY-PERSON-{(1200 + k) % 23}" for k in range(120)]
    assert rows == 120 - 2 - people.count("CANARY-PERSON-5")


def test_a_failing_run_reveals_nothing_either(house: Path) -> None:
    table = _calls(2400, 1, 30)
    clips = table.column("recording").to_pylist()
    clips[7] = clips[7][:100] + b"CANARY-TAG" + clips[7][110:300]
    damaged = table.set_column(table.column_names.index("recording"), "recording", pa.array(clips, pa.binary()))
    write_lake(damaged, house / "source")
    try:
        done = _protect(house, "out")
    finally:
        next((house / "source" / "day=2026-11-81").glob("*")).unlink()
    assert done.returncode == 2  # the other partitions have not changed: nothing was published
    assert (
        done.stderr.strip().splitlines()[-1].startswith("error: 1 partition(s) failed and are quarantined, nothing was published")
    )
    (house / "failed.log").write_text(done.stdout + done.stderr)
    left = _search(house, CANARIES, (*SPARED, "secrets/"))
    assert not left


def _wards(folder: Path) -> dict[str, Path]:
    """A lake with a folder per day and patient, and a name in each file's name; day -> one of its files."""
    table = _calls(4800, 4, 120, patients=3)  # what is left of a day can be audited
    ds.write_dataset(
        table,
        folder,
        format="parquet",
        partitioning=["day", "patient"],
        partitioning_flavor="hive",
        basename_template="CANARY-FILE-{i}.parquet",
    )
    days = sorted(path for path in folder.iterdir() if path.is_dir())
    return {day.name: next(day.rglob("*.parquet")) for day in days}


def test_private_folders_and_damaged_files_reveal_nothing(house: Path) -> None:
    """Table files that are cut off, changed, or have other columns, and a damaged recording, each below a private folder."""
    files = list(_wards(house / "wards").values())
    files[0].write_bytes(files[0].read_bytes()[:-60])
    table = pq.read_table(files[1], partitioning=None)
    column, clips = table.column_names.index("recording"), table.column("recording").to_pylist()
    pq.write_table(table.set_column(column, "recording", pa.array([b"CANARY-TAG", *clips[1:]], pa.binary())), files[1])
    table = pq.read_table(files[2], partitioning=None)
    pq.write_table(table.set_column(0, "call", pa.array([*table.column("call").to_pylist()[:-1], None])), files[2])
    done = _protect(house, "wards-out", source="wards")
    assert done.returncode == 4, done.stderr
    assert "file " in done.stderr
    assert "Traceback" not in done.stderr
    with sqlite3.connect(house / "home" / "prefect" / "prefect.db") as database:
        stored = [message for (message,) in database.execute("select message from log")]
    assert any("are quarantined" in message for message in stored)
    assert not [message for message in stored if "Traceback" in message]
    (house / "wards.log").write_text(done.stdout + done.stderr)
    left = _search(house, CANARIES, (*SPARED, "secrets/"))
    assert not left
    # Who has the key finds the file that the message calls by number.
    number = re.findall(r"file ([0-9a-f]{16})", done.stderr)[0]
    options = ["--dataset", "calls", "--params", str(house / "params.yaml"), "--key-file", str(house / "secrets" / "draw.key")]
    found = CliRunner().invoke(app, ["lake", "locate", str(house / "wards"), number, *options])
    assert house / "wards" / found.output.strip() in files[:3]


def _with(table: pa.Table, name: str, values: Any) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)


DAMAGES: dict[str, tuple[str, Callable[[pa.Table], pa.Table]]] = {
    "no id": ("have no value", lambda t: _with(t, "call", pa.array([*t["call"].to_pylist()[:-1], None]))),
    "ids twice": ("every record id once", lambda t: pa.concat_tables([t, t.slice(0, 1)])),
    "no person": ("have no value", lambda t: _with(t, "customer", pa.array([None, *t["customer"].to_pylist()[1:]]))),
    "a list as id": ("of another type: call", lambda t: _with(t, "call", pa.array([[v] for v in t["call"].to_pylist()]))),
    "another class": ("class", lambda t: _with(t, "gender", pa.array(["CANARY-GENDER-x"] * len(t)))),
    "another column": ("new: notes", lambda t: t.append_column("notes", t["secret"])),
    "no recording": ("payload is missing", lambda t: _with(t, "recording", pa.nulls(len(t), pa.binary()))),
    "no column": ("missing: call", lambda t: t.drop_columns(["call"])),
    "no audio": ("payload", lambda t: _with(t, "recording", pa.array([b"CANARY-TAG"] * len(t), pa.binary()))),
}


def test_refusals_reveal_nothing(house: Path, tmp_path: Path) -> None:
    """Every damage of a file in a private folder; also the whole chain of exceptions, which a log may print."""
    params: dict[str, object] = {"dataset": {"calls": SECTION}, "pool": {"donors": 24}}
    for number, (expected, damage) in enumerate(DAMAGES.values()):
        file = list(_wards(tmp_path / f"lake{number}").values())[2]
        pq.write_table(damage(pq.read_table(file, partitioning=None)), file)
        with pytest.raises(PassError, match=expected) as error:
            protect(house / "root", tmp_path / f"lake{number}", tmp_path / f"out{number}", params=params)
        said = "".join(traceback.format_exception(error.value))
        assert not [value for value in CANARIES if value.decode() in said]
        assert not _search(tmp_path, CANARIES, (f"lake{number}/",))
        shutil.rmtree(tmp_path / f"lake{number}")


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    """The control: in the sources every kind is found, and in files of every kind that a run leaves."""
    _wards(tmp_path / "wards")
    assert set(_search(tmp_path / "wards", CANARIES)) == set(CANARIES)
    shutil.rmtree(tmp_path / "wards")
    pq.write_table(pa.table({"a": ["CANARY-ID-1"] * 9}), tmp_path / "a.parquet", compression="zstd")
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"CANARY-ID-1"))
    np.savez(tmp_path / "c.npz", x=np.frombuffer(b"CANARY-ID-1", dtype=np.uint8))
    with sqlite3.connect(tmp_path / "d.db") as database:
        database.execute("create table t (x text)")
        database.execute("insert into t values ('CANARY-ID-1')")
    assert _search(tmp_path, CANARIES) == {b"CANARY-ID": ["a.parquet", "b.gz", "c.npz", "d.db"]}


def test_paths_are_released_as_files_of_their_own(house: Path) -> None:
    """Where the payload column holds paths, so does the release: to donors' files under names that reveal nothing."""
    table = _calls(3600, 1, 20)
    paths = []
    for name, data in zip(table.column("call").to_pylist(), table.column("recording").to_pylist(), strict=True):
        paths.append(f"media/{name}.wav")
        (house / "by_path" / "media").mkdir(parents=True, exist_ok=True)
        (house / "by_path" / paths[-1]).write_bytes(data)
    column = table.column_names.index("recording")
    write_lake(table.set_column(column, "recording", pa.array(paths)), house / "by_path")
    section = SECTION | {"payload_is_path": True}
    params: dict[str, object] = {"dataset": {"calls": section}, "pool": {"donors": 24}}
    protect(house / "root", house / "by_path", house / "paths-out", params=params)
    assert not _search(house / "paths-out", CANARIES)
    pool = pq.read_table(house / "root" / "pools" / "calls" / "part-00000.parquet")
    donors = set(pool.column("payload").to_pylist())
    (table,) = released(house / "paths-out").values()
    for path in table.column("recording").to_pylist():
        assert path.startswith("_payloads/")
        assert (house / "paths-out" / "current" / path).read_bytes() in donors
    _exchange_recordings(house, params)


def _exchange_recordings(house: Path, params: dict[str, object]) -> None:
    """A recording that was replaced under its name is noticed, although no file of the table has changed."""
    options = make_options(house / "root", house / "by_path", house / "paths-out", params=params)
    assert not plan_of(options).work
    one, other = sorted((house / "by_path" / "media").iterdir())[:2]
    whole, before = one.read_bytes(), one.stat()
    replaced = other.read_bytes()
    one.write_bytes(replaced[: len(whole)].ljust(len(whole), b"\0"))
    os.utime(one, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert plan_of(options).reasons() == {"input changed": 1}
    one.write_bytes(whole)  # other times, the same bytes
    assert not plan_of(options).work
    one.unlink()
    assert plan_of(options).reasons() == {"input changed": 1}
    one.write_bytes(whole)
