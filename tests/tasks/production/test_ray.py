"""A cluster of two nodes, one of which is killed: the same bytes as from one process; and nothing secret on Ray's disk."""

import dataclasses
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pass_core.errors import DataError, TransientError
from tasks.production.interfaces import GateResult, Job, Sample
from tasks.production.ray import unfit
from tasks.production.run import Hooks
from tasks.production.worker import THREADS
from tasks.running.numerics import fingerprint
from tests.tasks.production.lakes import DRAW_KEY, PassGate, make_table, protect, published, write_lake

# Ray reads these when it is imported. A cluster for tests on this machine asks nobody who they are.
os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
pytest.importorskip("ray", reason="the distributed engine is not installed: pip install '.[distributed]'")

from ray.cluster_utils import Cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A head with one core and a node with one more."""
    small: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "include_dashboard": False}
    started = Cluster(initialize_head=True, head_node_args=small)
    try:
        started.add_node(num_cpus=1, object_store_memory=100 * 2**20)
        yield started
    finally:
        started.shutdown()


def test_one_of_two_nodes_is_killed_and_every_byte_is_the_same(champion: Path, tmp_path: Path, cluster: Cluster) -> None:
    lake = write_lake(make_table(days=10, per_day=300, start=2000), tmp_path / "lake")
    protect(champion, lake, tmp_path / "local")
    node = next(iter(cluster.worker_nodes))
    done: list[int] = []
    killed = threading.Event()

    def kill_after_some(work: str, rows: int, total: int, note: str = "") -> None:
        done.append(rows)
        if rows and not killed.is_set():
            killed.set()
            cluster.remove_node(node, allow_graceful=False)

    hooks = Hooks(gate=PassGate(), progress=kill_after_some)
    place: dict[str, Any] = {"executor": "ray", "address": cluster.address, "workers": None}
    assert protect(champion, lake, tmp_path / "ray", hooks=hooks, **place)[1] is not None
    assert killed.is_set()  # whether its worker had a partition in work depends on how fast it had started
    assert published(tmp_path / "ray") == published(tmp_path / "local")
    assert len(published(tmp_path / "ray")) == 10
    _nothing_secret_on_disk(tmp_path)


def _nothing_secret_on_disk(folder: Path) -> None:
    """In no file below the session's folder: neither the draw key nor the ledger's, nor an id, nor the name of a source file."""
    session, files = Path("/tmp/ray") / "session_latest", 0  # noqa: S108 (where Ray puts it)
    ledger = bytes.fromhex((folder / "ledger" / "calls" / "ledger.key").read_text().strip())
    for path in session.resolve().rglob("*"):
        if path.is_file():
            data, files = path.read_bytes(), files + 1
            found = [k for k, key in enumerate((DRAW_KEY, ledger)) if key in data or key.hex().encode() in data.lower()]
            assert not found, path
            assert b"call-00" not in data
            assert b"day=2026" not in data
    assert files > 5  # the control: there is something to read


def test_a_cluster_of_its_own_fails_like_one_machine(champion: Path, tmp_path: Path) -> None:
    """A damaged partition is a failure of its own, reported once; the others are published."""
    lake = write_lake(make_table(days=3, start=2000), tmp_path / "lake")
    protect(champion, lake, tmp_path / "local")
    damaged = next((lake / "day=2026-11-12").glob("*.parquet"))
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:200] + bytes(400) + whole[600:])
    os.utime(damaged, (1, 1))
    with pytest.raises(DataError, match=r"1 partition\(s\) failed and are quarantined, the others are published"):
        protect(champion, lake, tmp_path / "ray", executor="ray", workers=2)
    damaged.write_bytes(whole)
    os.utime(damaged, (2, 2))
    titles: list[str] = []

    def noting(_name: str, title: str, body: Callable[[], Any]) -> Any:
        titles.append(title)
        return body()

    protect(champion, lake, tmp_path / "ray", executor="ray", workers=1, hooks=Hooks(gate=PassGate(), call=noting))
    assert titles[0] == "1 partition(s)"
    assert published(tmp_path / "ray") == published(tmp_path / "local")


class _AskingGate(PassGate):
    """Looks at the run's job while its staging folder exists."""

    def __init__(self, elsewhere: Path) -> None:
        super().__init__()
        self.elsewhere = elsewhere

    def judge(self, sample: Sample, job: Job) -> GateResult:
        numerics = fingerprint(torch.device("cpu"), THREADS)
        assert unfit(job, numerics) is None
        assert "another processor" in str(unfit(job, numerics | {"processor": "other"}))
        assert "all nodes share" in str(unfit(dataclasses.replace(job, staging=self.elsewhere), numerics))
        return super().judge(sample, job)


def test_a_node_that_sees_or_computes_something_else_is_refused(champion: Path, lake: Path, tmp_path: Path) -> None:
    gate = _AskingGate(tmp_path / "not-shared")
    protect(champion, lake, tmp_path / "out", hooks=Hooks(gate=gate))
    assert gate.seen


def test_a_cluster_that_is_not_there_is_reported(champion: Path, lake: Path, tmp_path: Path) -> None:
    with pytest.raises(TransientError, match="cannot reach"):
        protect(champion, lake, tmp_path / "out", executor="ray", address="127.0.0.1:1")
