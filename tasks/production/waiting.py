"""Small changes wait until there are more of them (`protect.min_change`).

Whoever kept the version before can compare it with the new one, and sees which rows are gone and which are new. A single late,
changed or erased record stands alone there, whatever the audit says about whole versions.
"""

import datetime
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pass_core.errors import DataError
from tasks.production.binding import note_decision
from tasks.storage.files import read_json, write_json

if TYPE_CHECKING:  # `lake status` reads the record without torch
    from tasks.production.manifest import Manifest, Receipts
    from tasks.production.plan import Plan
    from tasks.production.staging import Staged
    from tasks.production.versions import Target

FILE = "waiting.json"  # in the private state folder


@dataclass(frozen=True, slots=True)
class SmallChanges:
    """Compares staged partitions with what is published."""

    target: "Target"
    receipts: "Receipts"
    passed: Sequence[str]  # columns that are published unchanged
    least: int  # protect.min_change

    def hold(self, plan: "Plan", before: "Manifest", staged: Mapping[str, "Staged"], reason: str | None) -> dict[str, int]:
        """What `find` finds, unless there is a reason to publish it; notes either."""
        few, state = self.find(before, staged) if self.least > 1 else {}, self.target.state
        if few and reason:
            note_decision(state, "publish few", reason, rows=sum(few.values()))
            few = {}
        note_waiting(state, plan, {name: {"rows": rows, "least": self.least} for name, rows in few.items()})
        return few

    def find(self, before: "Manifest", staged: Mapping[str, "Staged"]) -> dict[str, int]:
        """The partitions that should wait, with the number of rows that would change.

        A published partition waits when fewer rows than `least` would change in it: its name shows where to compare. All wait
        when so few would change in the others together. Partitions without a change do not wait.
        """
        changed = {name: rows for name, one in staged.items() if (rows := self._rows(before, name, one))}
        few = {name for name, rows in changed.items() if name in before.partitions and rows < self.least}
        if sum(rows for name, rows in changed.items() if name not in few) < self.least:
            few = set(changed)
        return {name: changed[name] for name in few}

    def _rows(self, before: "Manifest", name: str, one: "Staged") -> int:
        """How many rows only one of the two versions shows; the larger number, since a changed row is gone and new."""
        old, new = before.partitions.get(name), one.receipt
        if old is None:
            return new.rows
        if old.pins != new.pins:  # all rows are drawn again, and none stands alone
            return 0
        try:
            difference = one.load("donors") - self.receipts.donors(old)
        except DataError:  # a lost or damaged receipt
            return max(old.rows, new.rows)
        rows = max(int(difference[difference > 0].sum()), int(-difference[difference < 0].sum()))
        if rows < self.least and self.passed:
            rows = max(rows, self._passed_rows(before, name, one))
        return rows

    def _passed_rows(self, before: "Manifest", name: str, one: "Staged") -> int:
        """The same number, by the columns that are published unchanged."""
        from pyarrow.fs import LocalFileSystem

        from tasks.lakes.open import find_filesystem
        from tasks.production.staging import DATA

        files, base = find_filesystem(self.target.location)
        there = [f"{base}/{before.places[name]}/{file.path}" for file in before.partitions[name].files]
        here = [str(one.folder / DATA / file.path) for file in one.receipt.files]
        old, new = _values(files, there, self.passed), _values(LocalFileSystem(), here, self.passed)
        return max((new - old).total(), (old - new).total())


def _values(files: Any, paths: Sequence[str], columns: Sequence[str]) -> Counter[str]:
    import pyarrow.parquet as pq

    found: Counter[str] = Counter()
    for path in paths:
        if path.endswith(".parquet"):
            table = pq.read_table(path, columns=list(columns), filesystem=files, partitioning=None)
            found.update(map(repr, table.to_pylist()))
    return found


def note_waiting(state: Path, plan: "Plan", few: Mapping[str, Mapping[str, int]]) -> None:
    """Records partitions that wait, and since when; forgets those that are published or no longer differ."""
    before = read_waiting(state)
    handled = {planned.name for planned in plan.work} | set(plan.unchanged) | set(plan.missing)
    now = {name: entry for name, entry in before.items() if name not in handled}
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    now |= {name: {**found, "since": before.get(name, {}).get("since", today)} for name, found in few.items()}
    if now or before:
        write_json(state / FILE, now)


def read_waiting(state: Path) -> dict[str, dict[str, Any]]:
    """Partition -> rows that would change, protect.min_change at that time, and the day when the first of them began to wait."""
    path = state / FILE
    return dict(read_json(path)) if path.exists() else {}
