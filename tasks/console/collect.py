"""What the console shows, from manifests, receipts, the run log, audits and MLflow alone."""

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pass_core.auditing.analyses.donor_exposure import half_of_releases
from pass_core.errors import PassError
from tasks.production.history import list_versions, open_target
from tasks.production.manifest import Receipts
from tasks.production.options import state_of
from tasks.production.run_log import RunRecord, read_runs
from tasks.production.status import TargetStatus, check_target
from tasks.production.troubles import EXIT_CODES, exit_code
from tasks.production.withdrawn import noted_withdrawals
from tasks.reports.page import PAGE
from tasks.running.tracking import ModelVersion
from tasks.storage.files import read_json


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """A version when it was published, with the audit that it was published on."""

    version: int
    time: str
    rows: int
    verdict: str
    nag: Mapping[str, tuple[str, Estimate]]  # attribute -> role, NAG


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """How often donors of one pool are shown by the live version."""

    pool: str
    donors: int
    shown: int
    most: float  # share of the rows that show one donor
    half: int  # so many donors make up half of the rows


@dataclass(frozen=True, slots=True)
class Report:
    """An audit of a model, with its report."""

    method: str
    verdict: str
    model: str  # digest
    time: str
    page: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFacts:
    """All that the page of a data set shows of one target."""

    status: TargetStatus
    publications: tuple[Publication, ...] = ()
    versions: tuple[Mapping[str, Any], ...] = ()
    runs: tuple[RunRecord, ...] = ()
    exposure: tuple[Exposure, ...] = ()
    withdrawn: int = 0  # donors

    @property
    def code(self) -> int:
        return exit_code(self.status.troubles)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetFacts:
    """A data set with its targets, models and audits."""

    name: str
    targets: tuple[TargetFacts, ...]
    models: tuple[ModelVersion, ...] = field(default=())
    reports: tuple[Report, ...] = field(default=())

    @property
    def in_trouble(self) -> bool:
        return any(target.code for target in self.targets)

    @property
    def urgency(self) -> int:
        """The smaller, the more it needs attention."""
        codes = [target.code for target in self.targets if target.code]
        return min(codes, default=max(EXIT_CODES.values()) + 1)


def collect_target(place: str, state: str | None, longest: datetime.timedelta, now: datetime.datetime) -> TargetFacts:
    """The facts of one target; of one that cannot be read, only its trouble."""
    status = check_target(place, state, longest, now)
    folder = state_of(place, state)
    if status.live is None:
        return TargetFacts(status=status, runs=tuple(read_runs(folder)) if folder.is_dir() else ())
    target, runs = open_target(place, state), read_runs(folder)
    return TargetFacts(
        status=status,
        publications=tuple(_publication(run) for run in runs if run.version is not None),
        versions=tuple(list_versions(target)),
        runs=tuple(runs),
        exposure=_exposure(target.current(), Receipts(folder / "receipts")),
        withdrawn=sum(len(one.donors) for one in noted_withdrawals(folder)),
    )


def by_dataset(targets: Sequence[TargetFacts], models: Sequence[ModelVersion], roots: Sequence[Path]) -> list[DatasetFacts]:
    """Data sets, the one that needs attention most first; a target that never published is one of its own."""
    names = list(dict.fromkeys(one.status.dataset or one.status.target for one in targets))
    found = [
        DatasetFacts(
            name=name,
            targets=tuple(one for one in targets if (one.status.dataset or one.status.target) == name),
            models=tuple(one for one in models if one.dataset == name),
            reports=tuple(one for root in roots for one in _reports(root, name)),
        )
        for name in names
    ]
    return sorted(found, key=lambda one: (one.urgency, one.name))


def _publication(run: RunRecord) -> Publication:
    details = run.audit.get("details", {})
    attributes = details.get("attributes") or details.get("champion") or {}
    nag = {name: (str(one.get("role", "private")), _estimate(one)) for name, one in attributes.items()}
    verdict = str(run.audit.get("verdict", "pass"))
    return Publication(version=run.version or 0, time=run.ended or run.started, rows=run.published_rows, verdict=verdict, nag=nag)


def _estimate(found: Mapping[str, Any]) -> Estimate:
    """Of an audit with labels, or of the champion's audit that another relied on."""
    if isinstance(found["nag"], Mapping):
        return _estimate({"nag": found["nag"]["value"], **found["nag"]})
    return Estimate(float(found["nag"]), float(found["low"]), float(found["high"]))


def _exposure(manifest: Any, receipts: Receipts) -> tuple[Exposure, ...]:
    pools: dict[str, Any] = {}
    for receipt in manifest.partitions.values():
        counts = receipts.donors(receipt)
        pools[receipt.pins.pool] = pools.get(receipt.pins.pool, np.zeros(len(counts), dtype=np.int64)) + counts
    found = []
    for pool, counts in pools.items():
        rows, used = max(1, int(counts.sum())), [int(number) for number in counts if number]
        share = int(counts.max(initial=0)) / rows
        found.append(Exposure(pool=pool, donors=len(counts), shown=len(used), most=share, half=half_of_releases(used)))
    return tuple(found)


def _reports(root: Path, dataset: str) -> list[Report]:
    """The published audits of a data set below a root; one that is damaged is left out."""
    found = []
    for path in sorted((root / "published" / dataset).glob(f"*/{PAGE}")):
        try:
            audit, provenance = (read_json(path.parent / name) for name in ("audit.json", "provenance.json"))
            time = str(provenance.get("audit", {}).get("time", ""))
            found.append(Report(path.parent.name, str(audit["verdict"]), str(audit.get("model_digest") or ""), time, path))
        except (PassError, json.JSONDecodeError, KeyError, AttributeError):
            continue
    return found
