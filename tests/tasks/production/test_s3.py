"""Source and target in an object store: published, killed at every step, run again; the same bytes, and nothing left over."""

import json
import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pytest
from deltalake import DeltaTable

from tasks.production import crash_points
from tasks.production.run import plan_of
from tests.tasks.production.lakes import make_options, make_table, protect, published, write_lake
from tests.tasks.production.s3 import BUCKET, objects, s3_server

pytest.importorskip("moto.server", reason="needs a server for S3's protocol: pip install '.[dev]'")
# Neither the store's nor Delta's threads outlive a fork.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["tests.tasks.production.lakes", "great_expectations", "deltalake"])
STEPS = ("version started", "version half linked", "version named", "pointer moved", "retired one")
ONE_VERSION: dict[str, Any] = {"protect": {"audit_records": 200, "keep_versions": 1}}


@pytest.fixture(scope="module")
def store() -> Iterator[dict[str, str]]:
    """The store's environment, in force while the module runs."""
    patch = pytest.MonkeyPatch()
    with s3_server() as settings:
        for name, value in settings.items():
            patch.setenv(name, value)
        yield settings
    patch.undo()


def _put(days: int, start: int, prefix: str) -> str:
    """A hive lake in the store; partitions of the same name are replaced."""
    filesystem, _ = pafs.FileSystem.from_uri(f"s3://{BUCKET}")
    table = make_table(days=days, start=start)
    ds.write_dataset(
        table,
        f"{BUCKET}/{prefix}",
        filesystem=filesystem,
        format="parquet",
        partitioning=["day"],
        partitioning_flavor="hive",
        existing_data_behavior="delete_matching",
        create_dir=False,
    )
    return f"s3://{BUCKET}/{prefix}"


def _seen(prefix: str) -> dict[str, bytes]:
    """What a reader of the pointer finds: every file of the current version, by its name in a plain lake."""
    found = objects(prefix)
    manifest = json.loads(found[json.loads(found["current.json"])["manifest"]])
    files = {
        file["path"]: f"{manifest['places'][name]}/{file['path']}"
        for name, receipt in manifest["partitions"].items()
        for file in receipt["files"]
    }
    return {name: found[place] for name, place in files.items()}


def _die_at(step: str, settings: dict[str, str], champion: Path, source: str, target: str, state: Path, form: Any) -> None:
    os.environ |= settings | {crash_points.CRASH_AT: step}
    protect(champion, source, target, state=state, target_format=form, params=ONE_VERSION)


def _kill(*arguments: Any) -> None:
    process = SERVER.Process(target=_die_at, args=arguments)
    process.start()
    process.join(180)
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_step_the_next_run_finishes(champion: Path, store: Any, tmp_path: Path, step: str) -> None:
    prefix = step.replace(" ", "-")
    local = write_lake(make_table(days=2, start=2000), tmp_path / "lake")
    protect(champion, local, tmp_path / "out")
    before = published(tmp_path / "out")
    source, target, state = _put(2, 2000, f"{prefix}/in"), f"s3://{BUCKET}/{prefix}/out", tmp_path / "state"
    protect(champion, source, target, state=state, params=ONE_VERSION)
    assert _seen(f"{prefix}/out") == before  # the bytes that a folder would hold
    write_lake(make_table(days=2, start=2200), local)  # the second day anew, and a third
    protect(champion, local, tmp_path / "out", redraw="other records under known names")
    after = published(tmp_path / "out")
    _put(2, 2200, f"{prefix}/in")
    _kill(step, store, champion, source, target, state, None)
    assert _seen(f"{prefix}/out") in (before, after)
    protect(champion, source, target, state=state, params=ONE_VERSION)
    assert _seen(f"{prefix}/out") == after
    _put(1, 2600, f"{prefix}/in")
    protect(champion, source, target, state=state, params=ONE_VERSION)
    parquet = [name for name in objects(f"{prefix}/out") if name.endswith(".parquet")]
    assert len(parquet) == 4  # nothing of older versions, nor of the run that died


def test_a_delta_table_in_the_store(champion: Path, store: Any, tmp_path: Path) -> None:
    source, target, state = _put(2, 2000, "table/in"), f"s3://{BUCKET}/table/out", tmp_path / "state"
    _kill("version named", store, champion, source, target, state, "delta")
    assert not DeltaTable.is_deltatable(target)
    protect(champion, source, target, state=state, target_format="delta")
    table = DeltaTable(target)
    assert [entry["passVersion"] for entry in table.history() if "passVersion" in entry] == [1]
    assert table.to_pyarrow_table().num_rows == 400
    assert not plan_of(make_options(champion, source, target, state=state)).work
