"""Model and pool of the run's start: every part of a run that relies on them checks the bytes that lie there."""

import torch

from pass_core.errors import ChecksumMismatch
from tasks.production.interfaces import Job
from tasks.release.protector import Protector, read_protector
from tasks.storage.files import digest
from tasks.storage.parquet import TableInfo


def check_pinned(job: Job) -> None:
    """Rejects a model or pool that was replaced or damaged since the run was planned."""
    for name, path, expected in (("model", job.model, job.pins.model), ("pool", job.pool, job.pins.pool)):
        _compare(name, str(path), expected, digest(path))


def read_pinned(job: Job, device: torch.device) -> Protector:
    """The protector that the run was planned with."""
    check_pinned(job)
    protector = read_protector(job.model, job.pool, job.lake.attributes(TableInfo.load(job.pool).classes), device)
    # Digests of what was there after it was read: a swap while it was read is found, too.
    _compare("model", str(job.model), job.pins.model, protector.model_digest)
    _compare("pool", str(job.pool), job.pins.pool, protector.pool_digest)
    return protector


def _compare(name: str, place: str, expected: str, found: str) -> None:
    if found != expected:
        pinned = f"expected the {name} that the run was planned with ({expected[:12]}), found another ({found[:12]})"
        advice = "put the first one back to publish what is staged, or keep this one to protect with it; then run again"
        raise ChecksumMismatch(f"{place}: {pinned}; {advice}")
