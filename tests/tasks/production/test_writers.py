"""Writers with state folders of their own: one publishes, the others are refused, and nothing is lost, doubled or unreadable."""

import json
import multiprocessing
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from flows.cli.main import app
from pass_core.errors import ConfigError, PassError, StorageError
from tasks.production.history import open_target, roll_back
from tasks.production.run import Hooks, execute, plan_of
from tests.tasks.production.lakes import PassGate, make_options, make_table, protect, released, write_lake
from tests.tasks.production.s3 import BUCKET, objects, s3_server

# Neither the store's nor Delta's threads outlive a fork.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["tests.tasks.production.lakes", "great_expectations", "deltalake", "botocore.session"])
KINDS = ("folder", "store", "delta", "delta in the store")


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    pytest.importorskip("moto.server", reason="needs a server for S3's protocol: pip install '.[dev]'")
    patch = pytest.MonkeyPatch()
    with s3_server() as settings:
        for name, value in settings.items():
            patch.setenv(name, value)
        yield f"s3://{BUCKET}"
    patch.undo()


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """An empty target of each kind, and its format."""
    root = request.getfixturevalue("store") if "store" in request.param else str(tmp_path)
    return f"{root}/{tmp_path.name.replace('_', '-')}-out", "delta" if "delta" in request.param else "parquet"


def rows_of(target: str, form: str) -> dict[str, int]:
    """Rows by day, as a reader of the target finds them; every file is read."""
    if form == "delta":
        days = DeltaTable(target).to_pyarrow_table().column("day").to_pylist()
        return {f"day={day}": days.count(day) for day in sorted(set(days))}
    if "://" not in target:
        return {name: table.num_rows for name, table in released(Path(target)).items()}
    found = objects(target.removeprefix(f"s3://{BUCKET}/"))
    manifest = json.loads(found[json.loads(found["current.json"])["manifest"]])
    rows: dict[str, int] = {}
    for name, receipt in manifest["partitions"].items():
        for file in receipt["files"]:
            table = pa.parquet.read_table(pa.BufferReader(found[f"{manifest['places'][name]}/{file['path']}"]))
            rows[name] = rows.get(name, 0) + table.num_rows
    return rows


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two lakes of different days."""
    folder = tmp_path_factory.mktemp("lakes")
    return (
        write_lake(make_table(days=2, start=2000), folder / "first"),
        write_lake(make_table(days=1, start=3000), folder / "second"),
    )


FIRST, SECOND = {"day=2026-11-11": 200, "day=2026-11-12": 200}, {"day=2026-11-16": 200}


def test_a_target_refuses_a_state_folder_that_is_not_its_own(
    champion: Path, lakes: tuple[Path, Path], place: tuple[str, str], tmp_path: Path
) -> None:
    target, form = place
    protect(champion, lakes[0], target, state=tmp_path / "a", target_format=form)
    with pytest.raises(ConfigError, match="expected the state folder that this target is bound to"):
        protect(champion, lakes[1], target, state=tmp_path / "b", target_format=form)
    assert rows_of(target, form) == FIRST


def test_of_two_first_runs_from_two_state_folders_one_publishes(
    champion: Path, lakes: tuple[Path, Path], place: tuple[str, str], tmp_path: Path
) -> None:
    target, form = place
    answers: list[str] = []

    def attempt(lake: Path, state: str, hooks: Hooks | None = None) -> None:
        try:
            protect(champion, lake, target, state=tmp_path / state, target_format=form, hooks=hooks)
        except StorageError as error:
            answers.append(str(error))
        else:
            answers.append(state)

    def overtaken(name: str, _title: str, body: Callable[[], Any]) -> Any:
        if name == "publish":
            attempt(lakes[0], "a")
        return body()

    attempt(lakes[1], "b", Hooks(gate=PassGate(), call=overtaken))
    refused, winners = [one for one in answers if one not in {"a", "b"}], [one for one in answers if one in {"a", "b"}]
    assert len(winners) == 1, answers
    assert "another" in refused[0]
    assert rows_of(target, form) == (FIRST if winners == ["a"] else SECOND)


def test_a_lost_state_folder_is_replaced_and_the_old_one_refused(
    champion: Path, lakes: tuple[Path, Path], place: tuple[str, str], tmp_path: Path
) -> None:
    target, form = place
    protect(champion, lakes[0], target, state=tmp_path / "a", target_format=form)
    shutil.copytree(tmp_path / "a", tmp_path / "backup")
    command = ["lake", "adopt", target, "--state", str(tmp_path / "b"), "--reason"]
    with pytest.raises(ConfigError, match="expected a reason, found none"):
        CliRunner().invoke(app, [*command, " "], catch_exceptions=False)
    assert "version 2 is live, repeats version 1" in CliRunner().invoke(app, [*command, "its disk died"]).output
    assert rows_of(target, form) == FIRST
    decision = json.loads((tmp_path / "b" / "decisions.jsonl").read_text())
    assert (decision["decision"], decision["reason"], decision["version"]) == ("adopt", "its disk died", 1)
    _, manifest = protect(champion, lakes[1], target, state=tmp_path / "b", target_format=form, drop_missing=True)
    assert manifest is not None
    assert manifest.version == 3
    assert rows_of(target, form) == SECOND
    for old in ("a", "backup"):
        with pytest.raises(ConfigError, match="belongs to another target"):
            protect(champion, lakes[0], target, state=tmp_path / old, target_format=form)
        with pytest.raises(ConfigError, match="belongs to another target"):
            roll_back(open_target(target, tmp_path / old))


def test_copies_that_are_too_old_are_refused(champion: Path, lakes: tuple[Path, Path], tmp_path: Path) -> None:
    target, state, backup = tmp_path / "out", tmp_path / "state", tmp_path / "backup"
    protect(champion, lakes[0], target, state=state)
    shutil.copytree(state, backup / "state")
    shutil.copytree(target, backup / "out", symlinks=True)
    for lake in (lakes[1], lakes[0]):
        protect(champion, lake, target, state=state, drop_missing=True)
    with pytest.raises(ConfigError, match=r"after version 1, although version 3 is live; it is an older copy"):
        protect(champion, lakes[1], target, state=backup / "state", drop_missing=True)
    with pytest.raises(ConfigError, match=r"after version 3, although version 1 is live; the target is an older copy"):
        protect(champion, lakes[1], backup / "out", state=state, drop_missing=True)
    shutil.rmtree(target)
    with pytest.raises(ConfigError, match=r"after version 3, although version 0 is live"):
        protect(champion, lakes[1], target, state=state)


def test_a_target_that_cannot_be_written_is_found_before_the_work(
    champion: Path, lakes: tuple[Path, Path], tmp_path: Path, store: str
) -> None:
    """Also a state folder from which nothing can be moved to the target. Nothing is staged."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(disk)], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount a small file system (run as root)")
    try:
        with pytest.raises(ConfigError, match="expected a state folder on the target's file system"):
            plan_of(make_options(champion, lakes[0], disk / "out", state=tmp_path / "state"))
        for name in ("real", "seen"):
            (disk / name).mkdir()
        subprocess.run(["mount", "--bind", str(disk / "real"), str(disk / "seen")], check=True)  # another mount of the same disk
        with pytest.raises(ConfigError, match="expected a state folder on the target's file system"):
            protect(champion, lakes[0], disk / "seen" / "out", state=disk / "state")
        assert not (disk / "state" / "staging").exists()
        subprocess.run(["umount", "-l", str(disk / "seen")], check=True)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        for form in ("parquet", "delta"):
            with pytest.raises(StorageError, match="expected a folder that can be written to"):
                plan_of(make_options(champion, lakes[0], disk / "out", state=disk / "state", target_format=form))
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
    for form in ("parquet", "delta"):
        with pytest.raises(PassError, match=r"cannot be (read|written)"):
            protect(champion, lakes[0], f"{store}-none/out", state=tmp_path / f"{form}.state", target_format=form)
        assert not (tmp_path / f"{form}.state" / "staging").exists()


def _compete(number: int, champion: Path, lake: Path, place: tuple[str, str], settings: dict[str, str], channels: Any) -> None:
    """One writer, round after round: it protects its own day and reports how that ended."""
    os.environ |= settings
    folder, day, (barrier, answers) = lake.parent, f"2026-11-{number + 1:02d}", channels
    more: dict[str, Any] = {"first": day, "last": day, "backfill": True, "target_format": place[1]}
    options = make_options(champion, lake, place[0], state=folder / f"state-{number}", **more)
    while True:
        barrier.wait(600)
        if (folder / "over").exists():
            return
        try:
            done = execute(options, Hooks(gate=PassGate())).manifest
        except PassError as error:
            answers.put((number, f"{type(error).__name__}: {error}"))
        else:
            answers.put((number, "published" if done else "nothing to do"))
        barrier.wait(600)


def _rounds(champion: Path, place: tuple[str, str], folder: Path, rounds: int) -> None:
    """Eight writers, each with a copy of the target's state folder; everybody has something to publish in every round."""
    target, form = place
    table = make_table(days=8, per_day=40)
    lake, notes = write_lake(table, folder / "lake"), table.column_names.index("secret")
    channels = barrier, answers = SERVER.Barrier(9), SERVER.Queue()
    arguments = (champion, lake, place, dict(os.environ), channels)
    writers = [SERVER.Process(target=_compete, args=(number, *arguments), daemon=True) for number in range(8)]
    for writer in writers:
        writer.start()
    expected: dict[str, int] = {}
    for round_ in range(1, rounds + 1):
        barrier.wait(600)
        found = dict(answers.get(timeout=600) for _ in writers)
        barrier.wait(600)
        winners = [number for number, answer in found.items() if answer == "published"]
        assert len(winners) == 1, (round_, found)
        losers = [answer for answer in found.values() if answer != "published"]
        # Those that start after the winner has published find that their folder is older than the target.
        assert all("StorageError: " in one or "it is an older copy" in one for one in losers), (round_, losers)
        expected[f"day=2026-11-{winners[0] + 1:02d}"] = 40
        assert rows_of(target, form) == dict(sorted(expected.items())), round_
        live = open_target(target, folder / "reader").current()
        assert live is not None
        assert live.version == round_
        changed = pa.array([f"note of round {round_}"] * len(table))
        write_lake(table.set_column(notes, "secret", changed), lake)  # other bytes: everybody has to protect them again
        for number in set(range(8)) - set(winners):  # as if somebody had copied the folder to eight machines
            shutil.rmtree(folder / f"state-{number}", ignore_errors=True)
            shutil.copytree(folder / f"state-{winners[0]}", folder / f"state-{number}")
    (folder / "over").touch()
    barrier.wait(600)
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0


@pytest.mark.parametrize("place", KINDS[:3], indirect=True)
def test_of_eight_writers_one_wins_every_round(champion: Path, place: tuple[str, str], tmp_path: Path) -> None:
    _rounds(champion, place, tmp_path, 2)


@pytest.mark.slow
def test_of_eight_writers_one_wins_in_each_of_fifty_rounds(champion: Path, place: tuple[str, str], tmp_path: Path) -> None:
    _rounds(champion, place, tmp_path, 50)
