"""A model in memory for test_lake_model.py: what a lake must show, and its ledger must count, after any sequence of events.

The model knows no plan, no staging and no file of a target. After a run that ended well it expects of each target the records
of the source, without those that were erased, and nothing else.
"""

import copy
from dataclasses import dataclass, field
from typing import NamedTuple

from tasks.production.crash_points import STEPS

LIMIT = 1  # protect.draws_at_most
COUNTED, LIVE, SETTLED = (STEPS.index(step) for step in ("ledger written", "pointer moved", "staging cleared"))

Rows = dict[str, int]  # ticket of a record -> number of its payload


class Draw(NamedTuple):
    """What records are drawn with: numbers of the key and of the pool."""

    key: int
    pool: int


class Drawn(NamedTuple):
    """One draw of a record: the same three always meet the same donor."""

    ticket: str
    payload: int
    draw: Draw


@dataclass(frozen=True, kw_only=True)
class Part:
    """A published partition."""

    files: dict[str, Rows]  # of the source, as they were read
    rows: Rows
    draw: Draw
    most: int  # draws of the record that was drawn most often, when it was published

    def draws(self) -> set[Drawn]:
        return {Drawn(ticket, payload, self.draw) for ticket, payload in self.rows.items()}


Version = dict[str, Part]  # day -> partition


@dataclass
class Target:
    """A target: all versions that it ever published, and the erasures that its state folder knows."""

    versions: list[Version] = field(default_factory=list)  # the last one is live
    erased: set[str] = field(default_factory=set)  # tickets
    erasing: bool = False  # until a run has ended well
    pending: set[str] = field(default_factory=set)  # days that may show erased records, until they are protected again

    @property
    def live(self) -> Version:
        return self.versions[-1] if self.versions else {}


@dataclass(frozen=True)
class Expected:
    """How a run must end; `version` is None where it publishes nothing."""

    ending: str  # published, unchanged, missing (partitions), early or late (refusal of draws)
    version: Version | None = None
    fresh: frozenset[Drawn] = frozenset()
    allowed: int = 0  # draws of a record that the run's reason allows to all records of its draw


@dataclass
class Model:
    """Source, targets, and what the ledger of the data set must hold."""

    source: dict[str, dict[str, Rows]] = field(default_factory=dict)  # day -> file -> rows
    targets: tuple[Target, Target] = field(default_factory=lambda: (Target(), Target()))
    now: Draw = field(default_factory=lambda: Draw(0, 0))
    withdrawn: dict[int, int] = field(default_factory=dict)  # pool -> donor who is no longer in it, nor in those made of it
    drawn: set[Drawn] = field(default_factory=set)
    reasons: dict[Draw, int] = field(default_factory=dict)  # draw -> draws of a record that somebody approved for it
    donors: dict[Drawn, int] = field(default_factory=dict)  # as they were first seen in a published row

    def records(self, day: str, target: Target) -> Rows:
        """What the source holds of a day, without erased records."""
        rows = {ticket: payload for part in self.source[day].values() for ticket, payload in part.items()}
        return {ticket: payload for ticket, payload in rows.items() if ticket not in target.erased}

    def count(self, ticket: str, drawn: set[Drawn]) -> int:
        return sum(one.ticket == ticket for one in drawn)

    def work(self, target: Target) -> dict[str, bool]:
        """Days that must be protected, and whether each is drawn in another way than what is published of it."""
        found = {}
        for day, files in self.source.items():
            part = target.live.get(day)
            redrawn = part is not None and part.draw != self.now and not self.still_good(part)
            if part is None or redrawn or part.files != files or day in target.pending:
                found[day] = part is not None and part.draw != self.now
            elif part.rows != self.records(day, target):
                found[day] = part.draw != self.now
        return found

    def still_good(self, part: Part) -> bool:
        """Whether a partition may stay after a donor withdrew: made with the pool before, it does not show this donor."""
        if part.draw != Draw(self.now.key, self.now.pool - 1):
            return False
        return self.withdrawn[self.now.pool] not in {self.donors[one] for one in part.draws()}

    def run(self, target: Target, *, reason: bool, drop_missing: bool) -> Expected:
        """How a run over the whole source must end."""
        work, missing = self.work(target), set(target.live) - set(self.source)
        if missing and not drop_missing:
            return Expected("missing")
        if not work and not missing:
            return Expected("unchanged")
        unused = not any(one.draw == self.now for one in self.drawn)
        if not reason and unused and any(redrawn and target.live[day].most + 1 > LIMIT for day, redrawn in work.items()):
            return Expected("early")
        rows = {day: self.records(day, target) for day in work}
        after = self.drawn | {Drawn(*row, self.now) for day in work for row in rows[day].items()}
        fresh, approved = after - self.drawn, self.reasons.get(self.now, 0)
        for one in fresh if not reason else ():
            first = not any(two.ticket == one.ticket and two.draw == self.now for two in self.drawn)
            if self.count(one.ticket, after) > (max(LIMIT, approved) if first else LIMIT):
                return Expected("late")
        version = {day: part for day, part in target.live.items() if day not in missing}
        for day in work:
            most = max((self.count(ticket, after) for ticket in rows[day]), default=0)
            version[day] = Part(files=copy.deepcopy(self.source[day]), rows=rows[day], draw=self.now, most=most)
        allowed = max((version[day].most for day in work), default=0) if reason else 0
        return Expected("published", version, frozenset(fresh), allowed)

    def apply(self, target: Target, expected: Expected, died_at: str | None = None) -> None:
        """Takes over what a run has done, or what it had done when it died at a step."""
        step = STEPS.index(died_at) if died_at else len(STEPS)
        if expected.version is not None and step >= COUNTED:
            self.drawn |= expected.fresh
            if expected.allowed:
                self.reasons[self.now] = max(self.reasons.get(self.now, 0), expected.allowed)
        if expected.version is not None and step >= LIVE:
            target.versions.append(expected.version)
        if expected.ending in ("published", "unchanged") and step >= SETTLED:
            target.pending.clear()
            target.erasing = False

    def erase(self, target: Target, tickets: set[str]) -> None:
        """Notes an erasure, before the run that carries it out."""
        held = {day for day in self.source if tickets & set(self.records(day, Target()))}
        unsettled = set(self.work(target)) | (set(target.live) - set(self.source))
        target.pending |= (held | unsettled) & set(target.live)
        target.erased |= tickets
        target.erasing = True

    def roll_back(self, target: Target, number: int) -> None:
        """Publishes a version (counted from 1) again."""
        base, live = target.versions[number - 1], target.live
        if target.erasing:
            target.pending |= {day for day, part in base.items() if day not in live or part.draws() != live[day].draws()}
        target.versions.append(dict(base))
