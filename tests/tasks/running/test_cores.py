"""The cores that a process may use, in containers of both versions of control groups."""

import os
from pathlib import Path

import pytest

from tasks.running.cores import usable_cores

ALL = len(os.sched_getaffinity(0))


def _write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


@pytest.mark.parametrize(
    ("quota", "cores"), [("max 100000", ALL), ("50000 100000", 1), ("100000 100000", 1), (f"{(ALL + 3) * 10**5} 100000", ALL)]
)
def test_quota_of_version_2(tmp_path: Path, quota: str, cores: int) -> None:
    _write(tmp_path / "cgroup" / "system.slice" / "nightly.service", cpu__max=quota)
    _write(tmp_path, own="0::/system.slice/nightly.service\n")
    assert usable_cores(tmp_path / "cgroup", tmp_path / "own") == cores


def test_quota_of_a_group_that_contains_this_one(tmp_path: Path) -> None:
    _write(tmp_path / "cgroup" / "pod" / "job", cpu__max="max 100000")
    _write(tmp_path / "cgroup" / "pod", cpu__max="100000 100000")
    _write(tmp_path, own="0::/pod/job\n")
    assert usable_cores(tmp_path / "cgroup", tmp_path / "own") == 1


def test_quota_of_version_1(tmp_path: Path) -> None:
    _write(tmp_path / "cgroup" / "cpu" / "docker", cpu__cfs_quota_us="100000\n", cpu__cfs_period_us="100000\n")
    _write(tmp_path, own="5:memory:/docker\n4:cpu,cpuacct:/docker\n")
    assert usable_cores(tmp_path / "cgroup", tmp_path / "own") == 1


def test_without_control_groups_the_affinity_counts(tmp_path: Path) -> None:
    assert usable_cores(tmp_path, tmp_path / "none") == ALL
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    try:
        assert usable_cores(tmp_path, tmp_path / "none") == 1
    finally:
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
