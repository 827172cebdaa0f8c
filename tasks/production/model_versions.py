"""A folder of model versions with one champion, which `lake protect --models FOLDER/champion` follows.

    FOLDER/versions/003     a root of the pipeline, or a link to one: model, pool, audit, hold-out
    FOLDER/champion         a link to one of them, replaced in one step
    FOLDER/decisions.json   every decision with its reasons, the oldest first

Runs resolve the link when they start, so that a run under way keeps its version.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pass_core.errors import AuditFailed, ConfigError, DataError
from pass_core.storage.audits import Audit, read_audit
from tasks.production.run_log import now
from tasks.running.layout import Layout
from tasks.running.step_io import RunKey
from tasks.running.tracking import track_step
from tasks.sections.running import TrackingConfig
from tasks.storage.files import digest, read_json, staging_folder, storage_errors, sync_folder, write_json

CHAMPION, VERSIONS, DECISIONS = "champion", "versions", "decisions.json"
MOVES = ("PROMOTE", "ROLLBACK")  # decisions that make a version the champion


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A decision about one version."""

    version: int
    decision: Literal["ADD", "PROMOTE", "HOLD", "REJECT", "ROLLBACK"]
    reasons: tuple[str, ...]
    dataset: str
    method: str
    champion: int | None  # before this decision
    time: str = dataclasses.field(default_factory=now)

    @property
    def key(self) -> RunKey:
        return RunKey(self.dataset, self.method)


class ModelVersions:
    """The versions in a folder, and which of them is the champion."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    def root(self, version: int) -> Path:
        """The version's root."""
        return self.folder / VERSIONS / f"{version:03d}"

    def layout(self, version: int) -> Layout:
        """The version's files, wherever its root lies."""
        return Layout(self.root(version).resolve())

    def versions(self) -> list[int]:
        return sorted(int(path.name) for path in (self.folder / VERSIONS).glob("[0-9]*"))

    def champion(self) -> int | None:
        """The version that `champion` names; None before the first one."""
        link = self.folder / CHAMPION
        if not link.is_symlink():
            if link.exists():
                raise DataError(f"{link}: expected a link to a version, found something else; move it away")
            return None
        version = int(name) if (name := link.readlink().name).isdigit() else 0
        if version not in self.versions():
            raise DataError(f"{link}: expected a link to one of the versions, found one to nothing; promote a version again")
        return version

    def decisions(self) -> list[Decided]:
        """All decisions, the oldest first."""
        path = self.folder / DECISIONS
        try:
            return [Decided(**one | {"reasons": tuple(one["reasons"])}) for one in read_json(path)] if path.exists() else []
        except (KeyError, TypeError):
            raise DataError(f"{path}: expected a list of decisions, found a damaged file; restore it") from None

    def key_of(self, version: int) -> RunKey:
        """The data set and method of a version."""
        known = {one.version: one.key for one in self.decisions()}
        if version not in known or version not in self.versions():
            expected = f"expected one of {', '.join(map(str, sorted(known))) or 'no'} version(s), found {version}"
            raise ConfigError(f"{self.folder}: {expected}; see `pass-pipeline lake models list`")
        return known[version]

    def before_champion(self) -> int:
        """The version that was the champion before this one; what was rolled back does not count."""
        line: list[int] = []
        for one in self.decisions():
            if one.decision == "PROMOTE":
                line.append(one.version)
            elif one.decision == "ROLLBACK":
                line = [*line[: line.index(one.version)], one.version] if one.version in line else [*line[:-1], one.version]
        earlier = [version for version in line if version != self.champion()]
        if not earlier:
            raise ConfigError(f"{self.folder}: expected an earlier champion to go back to, found none; name a version with --to")
        return earlier[-1]

    def next(self) -> int:
        """The number of the next candidate: a new one, or that of one that was not finished."""
        known, last = {one.version for one in self.decisions()}, max(self.versions(), default=0)
        unfinished = last and last not in known and last != self.champion() and not self.root(last).is_symlink()
        return last if unfinished else last + 1

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keeps others from training a candidate here, or from moving the champion, at the same time."""
        with storage_errors(self.folder), staging_folder(self.folder / ".staging", "models"):
            yield

    def add(self, root: Path, key: RunKey) -> int:
        """Makes a root that was trained elsewhere a version, by a link; its number."""
        for path in (Layout(root).artefact(name, key) for name in ("model", "pool", "audit")):
            if not path.exists():
                raise DataError(f"{path}: expected a trained and audited model with its pool, found none; run the pipeline first")
        version = max(self.versions(), default=0) + 1
        self.root(version).parent.mkdir(parents=True, exist_ok=True)
        self.root(version).symlink_to(root.resolve())
        self.note(self.decided(version, "ADD", (f"added from {root.resolve()}",), key))
        return version

    def decided(
        self,
        version: int,
        decision: Literal["ADD", "PROMOTE", "HOLD", "REJECT", "ROLLBACK"],
        reasons: tuple[str, ...],
        key: RunKey,
    ) -> Decided:
        """A decision that is made now."""
        method, champion = str(key.method), self.champion()
        return Decided(version=version, decision=decision, reasons=reasons, dataset=key.dataset, method=method, champion=champion)

    def note(self, decided: Decided) -> None:
        """Keeps a decision."""
        entries = [dataclasses.asdict(one) for one in [*self.decisions(), decided]]
        write_json(self.folder / DECISIONS, entries, sync=True)

    def passed_audit(self, version: int, key: RunKey) -> Audit:
        """The audit of a version that may become the champion: it is of this model and pool, and it passed."""
        layout = self.layout(version)
        audit = read_audit(layout.artefact("audit", key))
        for name, found in (("model", audit.model_digest), ("pool", audit.pool_digest)):
            if digest(layout.artefact(name, key)) != found:
                raise DataError(f"{layout.root}: expected an audit of this {name}, found one of another; run audit again")
        if audit.verdict != "pass" or audit.effort != "full":
            found = f"{audit.effort} audit with the verdict {audit.verdict}"
            raise AuditFailed(f"{layout.root}: expected a full audit that passed, found a {found}; the champion stays")
        return audit

    def settle(
        self, decided: Decided, tracking: TrackingConfig, project: Path, figures: dict[str, float], facts: dict[str, str]
    ) -> None:
        """Records a decision here and in MLflow; one that makes a version the champion moves the alias, then the link."""
        key, layout, moves = decided.key, self.layout(decided.version), decided.decision in MOVES
        if moves:
            self.passed_audit(decided.version, key)
        model = layout.artefact("model", key)
        with track_step("promote", key, tracking, "retrain", project) as record:
            numbered = {f"reason_{number}": reason for number, reason in enumerate(decided.reasons, 1)}
            known = {"decision": decided.decision, "version": str(decided.version), "champion_before": str(decided.champion)}
            record.log(known | numbered | facts, figures, (), {"model": digest(model)})
            names = ("audit", "nag_table", "bundle_table", "report")
            outputs = {name: path for name in names if (path := layout.artefact(name, key)).exists()}
            record.log_outputs({"model": model}, outputs, "pass" if moves else None)
        self.note(decided)
        if moves:
            link = self.folder / f".{CHAMPION}"
            link.unlink(missing_ok=True)
            link.symlink_to(self.root(decided.version).relative_to(self.folder))
            link.replace(self.folder / CHAMPION)
            sync_folder(self.folder)
