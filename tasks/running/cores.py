"""How many cores this process may use: a container's quota and a process's affinity count, not what the host has."""

import math
import os
from collections.abc import Iterator
from pathlib import Path


def usable_cores(cgroups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """The smaller of the affinity mask and the cgroup's CPU quota, rounded up; at least 1."""
    quotas = [math.ceil(quota) for quota in _quotas(cgroups, own)]
    return max(1, min(len(os.sched_getaffinity(0)), *quotas)) if quotas else len(os.sched_getaffinity(0))


def _quotas(cgroups: Path, own: Path) -> Iterator[float]:
    """Quotas in cores of this process's control group and of those that contain it, of version 2 and 1."""
    lines = own.read_text().splitlines() if own.is_file() else []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = cgroups / "cpu" if controllers else cgroups
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(root):
                yield from _quota(folder)


def _quota(folder: Path) -> Iterator[float]:
    if (file := folder / "cpu.max").is_file():
        quota, period = file.read_text().split()
    elif (file := folder / "cpu.cfs_quota_us").is_file():
        quota, period = file.read_text().strip(), (folder / "cpu.cfs_period_us").read_text()
    else:
        return
    if quota not in ("max", "-1"):
        yield int(quota) / int(period)
