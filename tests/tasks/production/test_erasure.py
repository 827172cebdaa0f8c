"""Erasing records: nothing that can be cleaned shows them afterwards, and they do not come back."""

import datetime
import multiprocessing
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from flows.cli.main import app
from pass_core.errors import AuditFailed, ConfigError, DataError, PartitionsQuarantined
from tasks.production import crash_points
from tasks.production.erased import Erasures
from tasks.production.erasure import Erased, erase
from tasks.production.history import open_target, roll_back
from tasks.production.options import state_of
from tasks.production.run import Hooks, execute
from tasks.production.status import check_target
from tests.tasks.production.lakes import FailGate, PassGate, make_options, make_table, protect, released, write_lake
from tests.tasks.production.s3 import BUCKET, objects, s3_server

DAY = "day=2026-11-12"
TOGETHER = {"protect": {"audit_records": 2000}}


def _erase(champion: Path, lake: Path | str, target: Path | str, records: list[str], persons: Any = (), **more: Any) -> Erased:
    options = make_options(champion, lake, target, params=dict(TOGETHER), **more)
    return erase(options, records, persons, "request 17", hooks=Hooks(gate=PassGate()))


def _rows(target: Path) -> dict[str, int]:
    return {name: len(table) for name, table in released(target).items()}


def _evidence(target: Path) -> int:
    rows = 0
    for path in (state_of(str(target)) / "audited").rglob("*.npz"):
        with np.load(path) as arrays:
            rows += len(arrays["records"])
    return rows


def test_an_erased_record_is_gone_and_does_not_come_back(champion: Path, lake: Path, tmp_path: Path) -> None:
    target, state = tmp_path / "out", state_of(str(tmp_path / "out"))
    protect(champion, lake, target, params=dict(TOGETHER))
    write_lake(make_table(days=1, start=3000), lake)
    protect(champion, lake, target, params=dict(TOGETHER))
    before, ledger = released(target), sum(path.stat().st_size for path in (tmp_path / "ledger").rglob("*.draws"))
    done = _erase(champion, lake, target, ["call-002205", "call-002206"])
    assert (done.receipt.rows, done.receipt.evidence, done.receipt.partitions) == (2, 2, 1)
    assert (done.receipt.version, done.receipt.waiting, done.trained) == (3, (), 0)
    after = released(target)
    assert len(after[DAY]) == len(before[DAY]) - 2
    assert all(after[name].equals(before[name]) for name in before if name != DAY)
    assert [path.name for path in (target / "versions").iterdir()] == ["000003"]
    assert not (state / "staging").exists()
    assert len(list((state / "receipts").glob("*.npy"))) == len(after)  # an older one would show the records' donors
    # The records are still in the source, and stay out: nothing to do, a changed day, another target of the same run.
    assert protect(champion, lake, target, params=dict(TOGETHER))[1] is None
    day = next((lake / DAY).glob("*.parquet"))
    pq.write_table(pq.read_table(day, partitioning=None).slice(3), day)
    protect(champion, lake, target, params=dict(TOGETHER))
    assert _rows(target)[DAY] == 195
    assert sum(path.stat().st_size for path in (tmp_path / "ledger").rglob("*.draws")) == ledger
    kept = b"".join(path.read_bytes() for path in state.rglob("*") if path.is_file())
    assert b"call-00220" not in kept
    assert b"request 17" in kept


def test_all_records_of_a_person_are_erased_and_their_evidence(champion: Path, lake: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    protect(champion, lake, target, params=dict(TOGETHER))
    whole, evidence = sum(_rows(target).values()), _evidence(target)
    people = make_table(start=2000).column("customer").to_pylist()
    count = people.count("customer-5")
    done = _erase(champion, lake, target, [], ["customer-5"], workers=1)
    assert count > 10
    assert (done.receipt.rows, done.receipt.partitions) == (count, 3)
    assert sum(_rows(target).values()) == whole - count
    assert done.receipt.evidence == count
    assert evidence == whole
    late = make_table(days=1, start=4000)  # they are left out of what comes later, too
    write_lake(late, lake)
    protect(champion, lake, target, params=dict(TOGETHER))
    assert sum(_rows(target).values()) == whole - count + 200 - late.column("customer").to_pylist().count("customer-5")


def test_a_partition_that_becomes_empty_is_ordinary(champion: Path, tmp_path: Path) -> None:
    lake, target = write_lake(make_table(days=1, per_day=3, start=2000), tmp_path / "lake"), tmp_path / "out"
    protect(champion, lake, target, params=dict(TOGETHER))
    done = _erase(champion, lake, target, [f"call-{2000 + k:06d}" for k in range(3)])
    assert done.receipt.version == 2
    assert list(_rows(target).values()) == [0]
    assert _evidence(target) == 0


def test_an_erasure_that_was_interrupted_is_finished_by_the_next_run(champion: Path, lake: Path, tmp_path: Path) -> None:
    target, state = tmp_path / "out", state_of(str(tmp_path / "out"))
    protect(champion, lake, target, params=dict(TOGETHER))

    def killed(_: object) -> None:
        raise KeyboardInterrupt

    options = make_options(champion, lake, target, params=dict(TOGETHER))
    with pytest.raises(KeyboardInterrupt):
        erase(options, ["call-002205"], (), "request 18", run=killed)
    assert Erasures(state).waiting() == {DAY}
    plan, _ = protect(champion, lake, target, params=dict(TOGETHER))
    assert plan.reasons() == {"records erased": 1}
    assert _rows(target)[DAY] == 199
    assert Erasures(state).all()[0].version == 2
    assert list(open_target(str(target)).manifests()) == [2]


def test_a_rollback_during_an_erasure_does_not_bring_its_records_back(champion: Path, lake: Path, tmp_path: Path) -> None:
    """They were in no live partition when the erasure began, so nothing waited for another run."""
    target, state = tmp_path / "out", state_of(str(tmp_path / "out"))
    protect(champion, lake, target, params=dict(TOGETHER))
    (lake / DAY).rename(tmp_path / "taken away")
    protect(champion, lake, target, params=dict(TOGETHER), drop_missing=True)

    def killed(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        erase(make_options(champion, lake, target, params=dict(TOGETHER)), ["call-002205"], (), "request 18", run=killed)
    (tmp_path / "taken away").rename(lake / DAY)
    roll_back(open_target(str(target)))
    assert _rows(target)[DAY] == 200
    protect(champion, lake, target, params=dict(TOGETHER))
    assert _rows(target)[DAY] == 199
    assert not Erasures(state).unfinished()


def test_a_range_finishes_an_erasure_alone(champion: Path, lake: Path, tmp_path: Path) -> None:
    """Where something else in the source stops whole runs."""
    target, state = tmp_path / "out", state_of(str(tmp_path / "out"))
    protect(champion, lake, target, params=dict(TOGETHER))
    write_lake(make_table(days=1, start=3000), lake)
    next((lake / "day=2026-11-16").glob("*.parquet")).write_bytes(b"damaged")
    with pytest.raises(PartitionsQuarantined):
        _erase(champion, lake, target, ["call-002005"])
    assert not Erasures(state).unfinished()  # what is damaged was never published
    options = make_options(champion, lake, target, params=dict(TOGETHER))
    with pytest.raises(AuditFailed):
        erase(options, ["call-002205"], (), "request 18", hooks=Hooks(gate=FailGate()))
    assert Erasures(state).waiting() == {DAY}
    plan, _ = protect(champion, lake, target, params=dict(TOGETHER), first="2026-11-12", last="2026-11-12")
    assert plan.reasons() == {"records erased": 1}
    assert not Erasures(state).unfinished()
    assert _rows(target) == {"day=2026-11-11": 199, DAY: 199, "day=2026-11-13": 200}


def test_a_partition_that_cannot_be_read_keeps_the_erasure_unfinished(champion: Path, lake: Path, tmp_path: Path) -> None:
    """It may hold the record, and it shows what it showed before."""
    target, state = tmp_path / "out", state_of(str(tmp_path / "out"))
    protect(champion, lake, target, params=dict(TOGETHER))
    day = next((lake / DAY).glob("*.parquet"))
    whole = day.read_bytes()
    day.write_bytes(whole[:-50])
    with pytest.raises(PartitionsQuarantined):
        _erase(champion, lake, target, ["call-002205", "call-002005"])
    assert Erasures(state).waiting() == {DAY}
    now = datetime.datetime.now(datetime.UTC)
    assert "erasing" in [one.kind for one in check_target(str(target), None, datetime.timedelta(days=1), now).troubles]
    assert _rows(target)["day=2026-11-11"] == 199
    day.write_bytes(whole)
    protect(champion, lake, target, params=dict(TOGETHER))
    assert _rows(target)[DAY] == 199
    assert not Erasures(state).unfinished()


def test_a_damaged_receipt_or_a_lost_key_stops_runs(champion: Path, lake: Path, tmp_path: Path) -> None:
    """Otherwise erased records would come back silently."""
    target, folder = tmp_path / "out", state_of(str(tmp_path / "out")) / "erasures"
    protect(champion, lake, target, params=dict(TOGETHER))
    _erase(champion, lake, target, ["call-002205"])
    write_lake(make_table(days=1, start=3000), lake)
    receipt = folder / "000001.json"
    whole = receipt.read_text()
    receipt.write_text("{}")
    with pytest.raises(DataError, match="would come back"):
        protect(champion, lake, target, params=dict(TOGETHER))
    receipt.write_text(whole)
    key = (folder / "erasures.key").rename(tmp_path / "lost.key")
    with pytest.raises(ValueError, match="found none; without it erased records would come back"):
        protect(champion, lake, target, params=dict(TOGETHER))
    key.rename(folder / "erasures.key")
    protect(champion, lake, target, params=dict(TOGETHER))


@pytest.fixture(scope="module")
def store() -> Iterator[None]:
    """The store's environment, in force while the module runs."""
    pytest.importorskip("moto.server", reason="needs a server for S3's protocol: pip install '.[dev]'")
    patch = pytest.MonkeyPatch()
    with s3_server() as settings:
        for name, value in settings.items():
            patch.setenv(name, value)
        yield
    patch.undo()


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_records_are_erased_from_object_stores(champion: Path, lake: Path, tmp_path: Path, store: None, form: str) -> None:
    target, state = f"s3://{BUCKET}/erase-{form}", tmp_path / "state"
    kind: dict[str, Any] = {"state": state, "target_format": form}
    protect(champion, lake, target, **kind)
    write_lake(make_table(days=1, start=3000), lake)
    protect(champion, lake, target, **kind)
    before = {name for name in objects(f"erase-{form}") if DAY in name}
    done = _erase(champion, lake, target, ["call-002205"], **kind)
    assert done.receipt.version == 3
    opened = open_target(target, state)
    manifest = opened.current()
    assert manifest is not None
    assert manifest.partitions[DAY].rows == 199
    assert list(opened.manifests()) == [3]
    after = {name for name in objects(f"erase-{form}") if DAY in name}
    assert not before & after
    if form == "delta":
        assert DeltaTable(target).to_pyarrow_table().num_rows == 799


def test_records_are_erased_from_a_delta_table(champion: Path, lake: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    protect(champion, lake, target, target_format="delta")
    files = {path for path in target.rglob("*.parquet") if DAY in str(path)}
    _erase(champion, lake, target, ["call-002205"])
    assert DeltaTable(target).to_pyarrow_table().num_rows == 599
    assert not [path for path in files if path.exists()]


def test_the_command_says_what_it_cannot_clean(champion: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of training are erased: the pool's, the model's and the caches of a run. test_canaries.py runs it with Prefect."""
    monkeypatch.setattr("flows.cli.erase.run_flow", lambda options, quiet: execute(options, Hooks(gate=PassGate())))  # noqa: ARG005
    root, lake, target = tmp_path / "own" / "root", write_lake(make_table(days=4), tmp_path / "lake"), tmp_path / "out"
    shutil.copytree(champion, root)
    cache = root / ".cache" / "features" / "calls"
    cache.mkdir(parents=True)
    protect(root, lake, target)
    donor = pq.read_table(root / "pools" / "calls" / "part-00000.parquet").column("record_id")[0].as_py()
    (tmp_path / "ids.txt").write_text(f"{donor}\nnobody-we-know\n")
    options = make_options(root, lake, target)
    command = [
        "lake", "erase", str(target), "--record", f"@{tmp_path / 'ids.txt'}", "--reason", "request 17", "--dataset", "calls",
        "--models", str(root), "--params", options.params, "--key-file", str(options.key_file), "--workers", "0",
        "--set", options.settings[0],
    ]  # fmt: skip
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    said = done.output
    assert "2 record id(s) erased" in said
    assert "version 2 is live, all older versions are deleted" in said
    assert f"- source: 1 record(s) in {lake}" in said
    assert "- pool: 1 of them are donors" in said
    assert "lake donors withdraw IDS --dataset calls" in said
    assert "- model: 1 of them are in its training data" in said
    assert "dvc gc" in said
    assert "mlflow gc" in said
    assert donor not in said
    assert not cache.exists()
    with pytest.raises(ConfigError, match="expected a file with one id per line"):
        CliRunner().invoke(app, [*command[:3], "--record", "@nowhere", *command[5:]], catch_exceptions=False)


def _die_erasing(step: str, champion: Path, lake: Path, target: Path) -> None:
    os.environ[crash_points.CRASH_AT] = step
    _erase(champion, lake, target, ["call-002205"])


@pytest.mark.parametrize("step", ["locked", "partition half written", "ledger written", "pointer moved", "retired one"])
def test_an_erasure_that_is_killed_is_finished_by_the_next_run(champion: Path, lake: Path, tmp_path: Path, step: str) -> None:
    target, state = tmp_path / "out", state_of(str(tmp_path / "out"))
    protect(champion, lake, target, params=dict(TOGETHER))
    process = multiprocessing.get_context("fork").Process(target=_die_erasing, args=(step, champion, lake, target))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    assert _rows(target)[DAY] == (199 if step in ("pointer moved", "retired one") else 200)
    assert Erasures(state).unfinished()
    protect(champion, lake, target, params=dict(TOGETHER))
    assert _rows(target)[DAY] == 199
    assert len(list((target / "versions").iterdir())) == 1
    assert not Erasures(state).unfinished()
    assert not (state / "retired").exists()
