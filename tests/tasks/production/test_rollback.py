"""Going back to an earlier version, through the commands: a folder, an object store, a Delta table; killed at every step."""

import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from flows.cli.main import app
from pass_core.errors import ConfigError, DataError, StorageError
from tasks.production import crash_points
from tasks.production.history import open_target, roll_back
from tasks.production.options import state_of
from tests.tasks.production.lakes import make_table, protect, published, write_lake
from tests.tasks.production.s3 import BUCKET, objects, s3_server

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["tests.tasks.production.lakes", "great_expectations", "deltalake"])
STEPS = ("version started", "version half linked", "version linked", "version named", "pointer made", "pointer moved")
KEEP: dict[str, Any] = {"protect": {"audit_records": 200, "keep_versions": 3}}


def _lake(*arguments: str) -> str:
    return CliRunner().invoke(app, ["lake", *arguments], catch_exceptions=False).output


def _listed(*arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(_lake("versions", *arguments, "--json"))
    return found


def _read_folder(target: str) -> Any:
    return published(Path(target))


def _read_delta(target: str) -> Any:
    return sorted((row["day"], row["topic"], tuple(row["vector"])) for row in DeltaTable(target).to_pyarrow_table().to_pylist())


def _read_store(target: str) -> Any:
    found = objects(target.removeprefix(f"s3://{BUCKET}/"))
    manifest = json.loads(found[json.loads(found["current.json"])["manifest"]])
    return {
        file["path"]: found[f"{manifest['places'][name]}/{file['path']}"]
        for name, receipt in manifest["partitions"].items()
        for file in receipt["files"]
    }


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    pytest.importorskip("moto.server", reason="needs a server for S3's protocol: pip install '.[dev]'")
    patch = pytest.MonkeyPatch()
    with s3_server() as settings:
        for name, value in settings.items():
            patch.setenv(name, value)
        yield f"s3://{BUCKET}"
    patch.undo()


@pytest.mark.parametrize("kind", ["folder", "delta", "store", "delta in the store"])
def test_versions_rollback_status_and_the_next_run(
    champion: Path, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    place = request.getfixturevalue("store") if "store" in kind else str(tmp_path)
    target, state = f"{place}/{kind.replace(' ', '-')}", tmp_path / "state"
    form = "delta" if "delta" in kind else "parquet"
    read: Callable[[str], Any] = _read_delta if form == "delta" else _read_store if "store" in kind else _read_folder
    more: dict[str, Any] = {"state": state, "target_format": form, "params": KEEP}
    lake, where, seen = tmp_path / "lake", ("--state", str(state)), []
    for start in (2000, 2200):  # the second day anew, and a third
        write_lake(make_table(days=2, start=start), lake)
        protect(champion, lake, target, redraw="other records under known names", **more)
        seen.append(read(target))
    assert [(one["version"], one["live"], one["rows"]) for one in _listed(target, *where)] == [(2, True, 600), (1, False, 400)]
    assert all(one["published"] for one in _listed(target, *where))

    assert "version 3 is live and repeats version 1" in _lake("rollback", target, *where)
    assert read(target) == seen[0]
    found = _listed(target, *where)
    assert [(one["version"], one["live"], one["restores"]) for one in found] == [(3, True, 1), (2, False, None), (1, False, None)]
    assert found[0]["models"] == found[2]["models"]
    assert json.loads(_lake("status", target, *where, "--json"))["targets"][0]["live"]["restores"] == 1
    assert "repeats version 1  live" in _lake("status", target, *where)
    with pytest.raises(ConfigError, match="none before the live one"):
        _lake("rollback", target, *where)  # what is live is the first version
    assert "version 4 is live and repeats version 2" in _lake("rollback", target, "--to", "2", *where)
    assert read(target) == seen[1]
    _lake("rollback", target, "--to", "1", *where)

    # The next run sees what is live, does what differs from the source, and publishes on top.
    plan, manifest = protect(champion, lake, target, redraw="published again", **more)
    assert manifest is not None
    assert (manifest.version, manifest.restores) == (6, None)
    assert sorted(planned.reason for planned in plan.work) == ["input changed", "new"]
    assert read(target) == seen[1]
    assert [one["version"] for one in _listed(target, *where)] == [6, 5, 4]  # older ones went, the files that 5 needs stayed
    _lake("rollback", target, "--to", "5", *where)
    assert read(target) == seen[0]


@pytest.fixture
def two_versions(champion: Path, lake: Path) -> Callable[[Path], list[Any]]:
    def make(target: Path) -> list[Any]:
        seen = []
        for start in (2000, 2600):  # three days, and three more
            write_lake(make_table(start=start), lake)
            protect(champion, lake, target)
            seen.append(published(target))
        return seen

    return make


def _die_at(step: str, target: str) -> None:
    os.environ[crash_points.CRASH_AT] = step
    roll_back(open_target(target))


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_step_readers_see_one_version_and_a_rollback_works(two_versions: Any, tmp_path: Path, step: str) -> None:
    target = tmp_path / "out"
    first, second = two_versions(target)
    process = SERVER.Process(target=_die_at, args=(step, str(target)))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    assert published(target) == (first if step == "pointer moved" else second)
    roll_back(open_target(str(target)), 1)
    assert published(target) == first


def test_what_cannot_be_restored_is_rejected(two_versions: Any, tmp_path: Path) -> None:
    target = tmp_path / "out"
    opened = open_target(str(target))
    with pytest.raises(ConfigError, match="expected a protected lake with versions"):
        roll_back(opened)
    two_versions(target)
    for wrong in (2, 7):
        with pytest.raises(ConfigError, match="expected one of 1 with --to"):
            roll_back(opened, wrong)
    with opened.lock(), pytest.raises(StorageError, match="is writing to this target"):
        roll_back(open_target(str(target)))
    next((target / "versions" / "000001").rglob("*.parquet")).unlink()
    with pytest.raises(DataError, match="expected all files, found none for 1 partition"):
        roll_back(opened)
    assert json.loads(_lake("status", str(target), "--json"))["targets"][0]["live"]["version"] == 2
    (state_of(str(target)) / "versions.jsonl").write_text('{"version": 1, "publ')  # cut off by a crash
    assert [one["published"] for one in _listed(str(target))] == [None, None]
