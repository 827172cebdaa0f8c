"""A source file with other bytes is noticed, whatever its size and time; one with the same bytes is not protected again."""

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from tasks.config import load_config
from tasks.production.file_states import file_state
from tasks.production.interfaces import SourcePartition
from tasks.production.options import state_of
from tasks.production.run import plan_of
from tasks.production.source import LakeSource
from tasks.production.source_files import SourceFiles
from tasks.sections.lake import LakeConfig
from tests.tasks.production.lakes import (
    DRAW_KEY,
    SECTION,
    WIDTH,
    ledger_beside,
    make_options,
    make_table,
    protect,
    write_key,
    write_lake,
    write_params,
)
from tests.tasks.production.s3 import BUCKET, s3_server

DAY = "day=2026-11-12"


def _write(path: Path, add: float) -> None:
    """Rewrites a file without compression, so that other vectors give as many bytes."""
    table = pq.read_table(path, partitioning=None)
    vectors = table.column("vector").combine_chunks().flatten().to_numpy() + np.float32(add)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors, pa.float32()), WIDTH)
    changed = table.set_column(table.column_names.index("vector"), "vector", column)
    pq.write_table(changed, path, compression="none", use_dictionary=False, write_statistics=False)


@pytest.fixture
def file(lake: Path) -> Path:
    path = next((lake / DAY).glob("*.parquet"))
    _write(path, 0)
    return path


def _in_place(path: Path, write: Callable[[Path], None]) -> None:
    before = path.stat()
    write(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def _replaced(path: Path, write: Callable[[Path], None]) -> None:
    other = path.with_name("other.tmp")
    shutil.copy2(path, other)
    _in_place(other, write)
    other.rename(path)


@pytest.mark.parametrize("change", [_in_place, _replaced])
def test_other_bytes_of_the_same_size_and_time_are_noticed(
    champion: Path, lake: Path, tmp_path: Path, file: Path, change: Callable[..., None]
) -> None:
    target = tmp_path / "out"
    protect(champion, lake, target)
    assert not plan_of(make_options(champion, lake, target)).work
    change(file, lambda path: _write(path, 1))
    plan, _ = protect(champion, lake, target, redraw="corrected vectors")
    assert {one.name: one.reason for one in plan.work} == {DAY: "input changed"}
    assert not plan_of(make_options(champion, lake, target)).work


@pytest.mark.parametrize("change", [_in_place, _replaced])
def test_the_same_bytes_are_not_protected_again_and_read_once(
    champion: Path, lake: Path, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[..., None]
) -> None:
    target = tmp_path / "out"
    protect(champion, lake, target)
    change(file, lambda path: path.write_bytes(path.read_bytes()))
    assert protect(champion, lake, target)[1] is None
    monkeypatch.setattr("tasks.production.source_files.content_digests", lambda _files, paths: dict.fromkeys(paths))
    assert protect(champion, lake, target)[1] is None  # its new state was noted


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"")])
def test_lost_notes_are_made_again_by_reading(
    champion: Path, lake: Path, tmp_path: Path, file: Path, damage: Callable[[Path], None]
) -> None:
    target = tmp_path / "out"
    protect(champion, lake, target)
    notes = sorted((state_of(str(target)) / "inputs").glob("*.json"))
    assert len(notes) == 3
    for path in notes:
        damage(path)
    assert not plan_of(make_options(champion, lake, target)).work
    _write(file, 1)
    assert plan_of(make_options(champion, lake, target)).reasons() == {"input changed": 1}


def test_rehash_reads_files_whose_states_agree(champion: Path, lake: Path, tmp_path: Path, file: Path) -> None:
    target = tmp_path / "out"
    protect(champion, lake, target)
    _write(file, 1)
    # As if the file had kept its state: a disk that decays, or a file system without these times.
    source = SourceFiles(pafs.LocalFileSystem(), str(lake), versioned=False, key=DRAW_KEY)
    number, state = source.number(f"{DAY}/{file.name}"), source.state_word(file_state(source.files, str(file)))
    for path in (state_of(str(target)) / "inputs").glob("*.json"):
        noted = json.loads(path.read_text())
        if number in noted["table"]:
            noted["table"][number][0] = state
            path.write_text(json.dumps(noted))
    assert not plan_of(make_options(champion, lake, target)).work
    options = ["--dataset", "calls", "--models", str(champion), "--params", str(write_params(champion.parent))]
    options += ["--key-file", str(write_key(champion.parent, DRAW_KEY)), "--rehash"]
    options += ["--set", f"protect.ledger={ledger_beside(target).parent}"]
    shown = CliRunner().invoke(app, ["lake", "plan", str(lake), str(target), *options], catch_exceptions=False).output
    assert f"{DAY}: input changed" in shown
    assert "1 to do, 2 unchanged" in shown


def test_an_objects_etag_decides(champion: Path, lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("moto.server", reason="needs a server for S3's protocol: pip install '.[dev]'")
    with s3_server() as settings:
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        filesystem, _ = pafs.FileSystem.from_uri(f"s3://{BUCKET}")

        def put() -> None:
            for path in lake.rglob("*.parquet"):
                with filesystem.open_output_stream(f"{BUCKET}/in/{path.relative_to(lake)}") as stream:
                    stream.write(path.read_bytes())

        more: dict[str, Any] = {"state": tmp_path / "state"}
        put()
        protect(champion, f"s3://{BUCKET}/in", f"s3://{BUCKET}/out", **more)
        put()  # other times, the same bytes
        read: list[str] = []

        def noted(_files: object, paths: Iterable[str]) -> dict[str, str]:
            read.extend(paths)
            return {}

        monkeypatch.setattr("tasks.production.source_files.content_digests", noted)
        assert not plan_of(make_options(champion, f"s3://{BUCKET}/in", f"s3://{BUCKET}/out", **more)).work
        for path in (lake / DAY).glob("*.parquet"):
            _write(path, 0)
        put()
        plan = plan_of(make_options(champion, f"s3://{BUCKET}/in", f"s3://{BUCKET}/out", **more))
        assert {one.name: one.reason for one in plan.work} == {DAY: "input changed"}
        assert not read  # the store names the bytes


def test_notes_hold_keyed_numbers_only(champion: Path, tmp_path: Path) -> None:
    """Neither paths, which may hold private values, nor plain digests, by which values could be guessed."""
    lake = write_lake(make_table(start=2000), tmp_path / "lake", by=("gender", "day"))
    protect(champion, lake, tmp_path / "out")
    for path in (state_of(str(tmp_path / "out")) / "inputs").glob("*.json"):
        noted = json.loads(path.read_text())["table"]
        assert len(noted) == 2
        words = [word for number, parts in noted.items() for word in (number, *parts)]
        assert all(len(word) == 16 and int(word, 16) >= 0 for word in words)


def test_footers_are_read_at_once(lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there are files here: each waits until all are being read, and a damaged one is reported when it is used."""
    config = load_config(write_params(tmp_path, dataset={"calls": SECTION | {"source": str(lake)}})).dataset["calls"]
    assert isinstance(config, LakeConfig)
    source = LakeSource(config, DRAW_KEY)
    work = list(source.partitions().values())
    everybody = threading.Barrier(len(work) + 1)
    real = dict(source._fragments)

    class Waiting:
        """A file whose footer takes as long as everybody else's."""

        def __init__(self, path: str) -> None:
            self.path = path

        @property
        def physical_schema(self) -> Any:
            everybody.wait(60)
            if self.path == damaged:
                raise pa.ArrowInvalid("damaged")
            return real[self.path].physical_schema

    damaged = "damaged.parquet"
    monkeypatch.setattr(source, "_fragments", {path: Waiting(path) for path in (*real, damaged)})
    source.read_footers([*work, SourcePartition("damaged", "", (damaged,))])
    assert not everybody.broken
    assert everybody.n_waiting == 0
