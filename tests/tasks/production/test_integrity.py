"""Flipped bits, emptied files, power cuts: nothing damaged is published or kept, and the next run makes it good."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from pass_core.errors import AuditFailed, DataError, StorageError
from tasks.production.history import open_target
from tasks.production.interfaces import GateResult, Job, Sample
from tasks.production.manifest import Receipts
from tasks.production.options import state_of
from tasks.production.run import Hooks, plan_of
from tests.tasks.production.lakes import FailGate, PassGate, make_options, make_table, protect, published, write_lake
from tests.tasks.production.s3 import BUCKET, objects, s3_server

DAY = "day=2026-11-12"


def _flip(path: Path, *, keep_time: bool = False) -> None:
    """Flips a bit in the middle of a file; the size stays, and so may the time."""
    data, before = bytearray(path.read_bytes()), path.stat()
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    if keep_time:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _empty(path: Path) -> None:
    """What a power cut leaves of a file that was not synced."""
    path.write_bytes(b"")


class FlippingGate(PassGate):
    """Passes everything, while a bit of a staged file flips."""

    def __init__(self, state: Path, pattern: str) -> None:
        super().__init__()
        self._state, self._pattern = state, pattern

    def judge(self, sample: Sample, job: Job) -> GateResult:
        _flip(next(self._state.glob(f"staging/*/{self._pattern}")), keep_time=True)
        return super().judge(sample, job)


@pytest.fixture(scope="module")
def expected(champion: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What an undisturbed run publishes of the lake."""
    folder = tmp_path_factory.mktemp("undisturbed")
    protect(champion, write_lake(make_table(start=2000), folder / "lake"), folder / "out")
    return published(folder / "out")


@pytest.mark.parametrize("pattern", ["data/**/*.parquet", "draws.npy", "donors.npy"])
def test_a_bit_that_flips_in_staging_is_not_published(
    champion: Path, lake: Path, tmp_path: Path, expected: dict[str, bytes], pattern: str
) -> None:
    target = tmp_path / "out"
    gate = FlippingGate(state_of(str(target)), pattern)
    with pytest.raises(StorageError, match=r"found others in 1 partition\(s\), which were removed"):
        protect(champion, lake, target, hooks=Hooks(gate=gate))
    assert not (target / "current").exists()
    protect(champion, lake, target)
    assert published(target) == expected


@pytest.mark.parametrize("change", [_flip, _empty])
@pytest.mark.parametrize("pattern", ["*/data/**/*.parquet", "*/draws.npy", "*/sample.npz", "*/receipt.json", "pinned.json"])
def test_what_an_unfinished_run_left_damaged_is_made_again(
    champion: Path, lake: Path, tmp_path: Path, expected: dict[str, bytes], *, pattern: str, change: Callable[[Path], None]
) -> None:
    target = tmp_path / "out"
    with pytest.raises(AuditFailed):
        protect(champion, lake, target, hooks=Hooks(gate=FailGate()))
    change(next((state_of(str(target)) / "staging").glob(pattern)))
    protect(champion, lake, target)
    assert published(target) == expected


def test_what_must_survive_a_power_cut_is_synced_before_it_gets_its_name(
    champion: Path, lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[str] = set()
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    protect(champion, lake, tmp_path / "out")
    own = os.getpid()
    assert {"draws.npy", "donors.npy", "sample.npz", "data", "staging", f".receipt.json.{own}", f".pinned.json.{own}"} <= synced
    receipts = list((state_of(str(tmp_path / "out")) / "receipts").glob("*.json"))
    assert len(receipts) == 3
    assert {f".{path.name}.{own}" for path in receipts} <= synced


@pytest.mark.parametrize("keep_time", [False, True])
def test_a_published_file_that_was_damaged_is_not_kept_for_the_next_version(
    champion: Path, lake: Path, tmp_path: Path, expected: dict[str, bytes], *, keep_time: bool
) -> None:
    target = tmp_path / "out"
    protect(champion, lake, target)
    _flip(next((target / "current" / DAY).glob("*.parquet")), keep_time=keep_time)
    write_lake(make_table(days=1, start=2600), lake)
    plan, _ = protect(champion, lake, target)
    assert {one.name: one.reason for one in plan.work} == {DAY: "output damaged", "day=2026-11-14": "new"}
    assert {name: data for name, data in published(target).items() if name in expected} == expected
    assert not plan_of(make_options(champion, lake, target)).work


def test_damage_while_a_run_works_is_found_before_it_publishes(champion: Path, lake: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    protect(champion, lake, target)
    write_lake(make_table(days=1, start=2600), lake)

    def call(name: str, _title: str, body: Callable[[], Any]) -> Any:
        if name == "publish":
            _flip(next((target / "current" / DAY).glob("*.parquet")))
        return body()

    with pytest.raises(DataError, match=r"found others or none in 1 partition\(s\)\. Nothing was published"):
        protect(champion, lake, target, hooks=Hooks(gate=PassGate(), call=call))
    assert len(published(target)) == 3
    assert protect(champion, lake, target)[0].reasons() == {"output damaged": 1, "new": 1}


def test_unchanged_files_are_not_read_again(champion: Path, lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out"
    protect(champion, lake, target)
    monkeypatch.setattr("tasks.production.published.content_digests", lambda _files, paths: dict.fromkeys(paths))
    write_lake(make_table(days=1, start=2600), lake)
    protect(champion, lake, target)
    assert not plan_of(make_options(champion, lake, target)).work


@pytest.mark.parametrize("change", [_flip, _empty, Path.unlink])
def test_a_damaged_receipt_is_found_when_it_is_relied_on(
    champion: Path, lake: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    protect(champion, lake, tmp_path / "out")
    target = open_target(str(tmp_path / "out"))
    manifest, receipts = target.current(), Receipts(target.state / "receipts")
    assert manifest is not None
    receipt = manifest.partitions[DAY]
    assert receipts.donors(receipt).sum() == 200
    change(receipts.folder / f"{receipt.id}.npy")
    with pytest.raises(DataError, match="expected a partition's receipt"):
        receipts.donors(receipt)


class Place:
    """A target with the commands' options, and its published files."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        self.target = f"s3://{BUCKET}/verified/out" if kind == "s3" else str(folder / "out")
        self.more: dict[str, Any] = {"state": folder / "state"} if kind == "s3" else {}
        if kind == "delta":
            self.more["target_format"] = "delta"

    def files(self) -> dict[str, bytes]:
        """Name without the version's folder -> content, of all versions that are kept."""
        if self.kind == "s3":
            found = objects("verified/out")
        else:
            root = Path(self.target)
            found = {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*.parquet") if "_delta_log" not in p.parts}
        return {name: data for name, data in found.items() if name.endswith(".parquet")}

    def flip(self, name: str) -> None:
        if self.kind == "s3":
            import pyarrow.fs as pafs

            data = bytearray(self.files()[name])
            data[len(data) // 2] ^= 4
            filesystem, _ = pafs.FileSystem.from_uri(f"s3://{BUCKET}")
            with filesystem.open_output_stream(f"{BUCKET}/verified/out/{name}") as stream:
                stream.write(bytes(data))
        else:
            _flip(Path(self.target) / name, keep_time=True)

    def verify(self, *options: str) -> tuple[int, dict[str, Any], str]:
        state = ["--state", str(self.more["state"])] if "state" in self.more else []
        done = CliRunner().invoke(app, ["lake", "verify", self.target, *state, *options, "--json"])
        lines = done.stdout.splitlines()
        error = done.exception if isinstance(done.exception, DataError) else None
        return getattr(error, "exit_code", done.exit_code), json.loads(lines[0]), f"{done.output} {error}"


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    if request.param != "s3":
        yield Place(request.param, tmp_path)
        return
    pytest.importorskip("moto.server", reason="needs a server for S3's protocol: pip install '.[dev]'")
    with s3_server() as settings:
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        yield Place("s3", tmp_path)


@pytest.mark.parametrize("place", ["folder", "s3", "delta"], indirect=True)
def test_verify_reports_damage_and_repair_has_exactly_that_redone(champion: Path, lake: Path, place: Place) -> None:
    protect(champion, lake, place.target, **place.more)
    before = place.files()
    assert place.verify()[:2] == (0, {"version": 1, "partitions": 3, "damaged": []})
    name = next(name for name in before if DAY in name)
    place.flip(name)
    damage = {"number": 2, "differing": 1, "missing": 0, "restored": False}
    for options in ((), ("--repair",)):
        code, report, printed = place.verify(*options)
        assert (code, report["damaged"]) == (2, [damage])
        assert "2026" not in printed  # values of partitions may be private
    plan, _ = protect(champion, lake, place.target, **place.more)
    assert {one.name: one.reason for one in plan.work} == {DAY: "output damaged"}
    assert place.verify()[0] == 0
    made_again = [data for path, data in place.files().items() if path.endswith(Path(name).name)]
    assert before[name] in made_again


def test_repair_restores_an_intact_copy(champion: Path, lake: Path, tmp_path: Path) -> None:
    """A damaged copy that replaced the file, as a restored backup does, leaves the older version's link as it was."""
    place = Place("folder", tmp_path)
    protect(champion, lake, place.target)
    write_lake(make_table(days=1, start=2600), lake)
    protect(champion, lake, place.target)
    before = published(Path(place.target))
    path = next((Path(place.target) / "current" / DAY).glob("*.parquet"))
    other = tmp_path / "other"
    shutil.copyfile(path, other)
    _flip(other)
    other.rename(path.resolve())
    code, report, _ = place.verify("--repair")
    assert (code, report["damaged"]) == (0, [{"number": 2, "differing": 1, "missing": 0, "restored": True}])
    assert published(Path(place.target)) == before
    assert path.stat().st_mtime == 0
    assert not plan_of(make_options(champion, lake, place.target)).work
