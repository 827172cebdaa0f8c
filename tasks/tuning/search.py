"""Successive halving within a budget: many settings judged quickly, the best ones fully, each point kept on disk."""

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pass_core.errors import DataError, MethodError
from tasks.config import Config
from tasks.running.step_io import Reporter, RunKey
from tasks.running.tracking import track_step
from tasks.storage.code_digest import code_digest
from tasks.storage.files import json_digest, read_json, rounded, write_json
from tasks.tuning.candidates import Candidate, first_candidates, variations
from tasks.tuning.controls import Control
from tasks.tuning.study import Study
from tasks.tuning.trial import Judged, Trial

logger = logging.getLogger(__name__)

FIRST_RECORDS = 4000  # about so many are learnt from in the first rounds: on fewer every setting looks leaky
FIRST_TIME, THEN_TIME = 0.5, 0.65  # of the budget, when the first round ends, and that of variations
SURVIVORS = 6  # of the first rounds, tried on all records with all analyses
UTILITY = "useful_nag_at_least"  # the check that is about what a release keeps
SECTIONS = ("seed", "compute", "pool", "train", "release", "attacker", "audit")  # that a point depends on, beside its own


class OutOfTimeError(Exception):
    """The budget ended while a point was computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A candidate with what was found; `judged` is empty where the method could not be fitted."""

    candidate: Candidate
    share: float
    whole: bool  # judged with all analyses
    judged: tuple[Judged, ...]
    problem: str | None = None

    @property
    def first(self) -> Judged:
        """The audit of the part like the data set's own test part."""
        return self.judged[0]

    @property
    def broken(self) -> int:
        """How many checks fail, on any part."""
        return sum(len(one.broken) for one in self.judged)

    @property
    def undecided(self) -> int:
        """How many checks a pass needs and the deciding part cannot decide."""
        return len(self.first.undecided)

    @property
    def passes(self) -> bool:
        """Whether the deciding part passes with whole intervals, and nothing fails among the others."""
        return bool(self.judged) and self.first.verdict == "pass" and not self.broken

    @property
    def hides(self) -> bool:
        """Whether the deciding part is below every privacy limit, and all that fails on any part is a useful attribute."""
        broken = {str(check["name"]) for one in self.judged for check in one.broken}
        return bool(self.judged) and self.first.privacy == "below the limit" and broken <= {UTILITY}


@dataclass(kw_only=True)
class Search:
    """One search; `run` gives its points on all records, the best first."""

    study: Study
    params: Path
    overrides: Mapping[str, str]
    config: Config
    dataset: str
    methods: tuple[str, ...]
    store: Path  # folder of finished points
    minutes: float
    base: Path  # of a relative tracking store
    progress: Reporter
    clock: Callable[[], float] = time.monotonic
    tried: list[Point] = field(default_factory=list)  # of every round
    left: int = 0  # candidates for which there was no time
    _times: dict[tuple[str, bool], list[float]] = field(default_factory=dict)
    _control: Control | None = None

    def run(self) -> list[Point]:
        """Points on all records with all analyses: those that pass first, by mNAG."""
        started = self.clock()
        end = started + 60 * self.minutes
        share = min(1.0, FIRST_RECORDS / len(self.study.learnt))
        ends = [started + part * (end - started) for part in (FIRST_TIME, THEN_TIME)]
        candidates = first_candidates(self.study, self.config, self.dataset, self.methods)
        first = self._round("first settings", candidates, share, ends[0])
        best = sorted((point for point in first if point.judged), key=_promise, reverse=True)
        more = list(variations(best[0].candidate, self.study, self.config)) if best else []
        first += self._round("variations of the best", more, share, ends[1])
        # Where time was too short for a single point, the configured setting is judged all the same.
        last = self._round("the best with all analyses", _survivors(first) or candidates[:1], 1.0, end, whole=True)
        return sorted(last, key=final_rank, reverse=True)

    def _round(
        self, title: str, candidates: Sequence[Candidate], share: float, end: float, *, whole: bool = False
    ) -> list[Point]:
        """The points of these candidates as far as time allows; the last round computes at least one."""
        points: list[Point] = []
        for number, candidate in enumerate(candidates):
            must = whole and not any(point.judged for point in points)
            point = self._point(candidate, share, math.inf if must else end, whole=whole)
            self.left += point is None
            points += [point] if point else []
            note = _note(point) if point else "no time left"
            self.progress(f"tune {self.dataset}: {title}", number + 1, len(candidates), note)
        self.tried += points
        return points

    def _point(self, candidate: Candidate, share: float, end: float, *, whole: bool) -> Point | None:
        """A point from disk, or computed if there is time; None without."""
        config = candidate.config(self.params, self.overrides)
        path = self.store / f"{self._digest(candidate, config, share, whole=whole)}.json"
        if path.exists():
            return _read(path, candidate)
        started = self.clock()
        known = self._times.get((candidate.method, whole)) or self._times.get((candidate.method, False), [])
        if started + (sum(known) / len(known) if known else 0.0) > end:
            return None

        def tick() -> None:
            if self.clock() > end:
                raise OutOfTimeError

        trial = Trial(
            study=self.study, config=config, dataset=self.dataset, method=candidate.method, share=share, whole=whole,
            control=self._shared_control(), tick=tick,
        )  # fmt: skip
        problem, judged = None, tuple[Judged, ...]()
        with track_step("tune", RunKey(self.dataset, candidate.method), self.config.tracking, "tune", self.base) as record:
            try:
                judged = trial.judge()
            except OutOfTimeError:
                return None
            except (DataError, MethodError) as error:  # such as a pool without a donor of some class
                problem = str(error)
            point = Point(candidate=candidate, share=share, whole=whole, judged=judged, problem=problem)
            record.log(
                {"share": share, "all_analyses": whole, **candidate.values}, _figures(point), (), {"study": self.study.digest}
            )
        self._times.setdefault((candidate.method, whole), []).append(self.clock() - started)
        write_json(path, {"candidate": dataclasses.asdict(candidate), "share": share, "whole": whole, "problem": problem,
                          "judged": [rounded(dataclasses.asdict(one)) for one in judged]})  # fmt: skip
        logger.info("tune %s: %s%s: %s in %.0f s", self.dataset, candidate.words(), ", all analyses" if whole else "",
                    _note(point), self.clock() - started)  # fmt: skip
        return _read(path, candidate)  # the same whether it was computed or kept

    def _digest(self, candidate: Candidate, config: Config, share: float, *, whole: bool) -> str:
        sections = {name: _plain(getattr(config, name)) for name in SECTIONS}
        sections["method"] = [candidate.method, _plain(config.method[candidate.method])]
        code = code_digest(("tasks.tuning.trial", f"pass_core.methods.{candidate.method}"))
        return json_digest([sections, share, whole, self.study.digest, code])

    def _shared_control(self) -> Control:
        if self._control is None:
            from pass_core.attacks.network import NetworkConfig

            self._control = Control(self.config.audit.attacks.get("network") or NetworkConfig())
        return self._control


def final_rank(point: Point) -> tuple[bool, bool, float, int, float]:
    """Passing points first, then those that hide the private attributes, by mNAG; then by the fewest open checks."""
    if not point.judged:
        return False, False, -math.inf, 0, 0.0
    if point.passes or point.hides:
        return point.passes, True, 0, 0, point.first.mnag
    return False, False, -point.broken, -point.undecided, point.first.mnag


def _promise(point: Point) -> tuple[int, float]:
    """On few records: few broken checks, then mNAG."""
    return -point.broken, point.first.mnag


def _survivors(points: Iterable[Point]) -> list[Candidate]:
    """The most useful of the most private, and the most private ones: alternately, each once."""
    judged = [point for point in points if point.judged]
    by_mnag = sorted(judged, key=_promise, reverse=True)
    by_checks = sorted(judged, key=lambda p: (-p.broken - p.undecided, p.first.mnag), reverse=True)
    alternately = [point.candidate for pair in zip(by_mnag, by_checks, strict=True) for point in pair]
    chosen: list[Candidate] = []
    for candidate in alternately:
        if candidate not in chosen:
            chosen.append(candidate)
    return chosen[:SURVIVORS]


def _note(point: Point) -> str:
    if not point.judged:
        return "cannot be fitted"
    return f"{point.first.verdict}, mNAG {100 * point.first.mnag:.1f}, {point.broken} broken"


def _figures(point: Point) -> dict[str, float]:
    found: dict[str, float] = {}
    for one in point.judged:
        found |= {f"{one.part}_mnag": one.mnag, f"{one.part}_private_nag": one.private, f"{one.part}_broken": len(one.broken)}
        found |= {f"{one.part}_nag_{name}": value for name, value in one.nag.items()}
    return found


def _read(path: Path, candidate: Candidate) -> Point:
    kept = read_json(path)
    judged = tuple(Judged(**one) for one in kept["judged"])
    return Point(candidate=candidate, share=kept["share"], whole=kept["whole"], judged=judged, problem=kept["problem"])


def _plain(value: Any) -> Any:
    """A config as JSON values."""
    if dataclasses.is_dataclass(value):
        return {part.name: _plain(getattr(value, part.name)) for part in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, (tuple, list)) else value
