"""Whether a description read from the release fits exactly one person's original.

As Anonymeter defines it: predicates are built from released records alone. They succeed when they fit exactly one original. The
same predicates on originals whose releases were not used are the control: extreme descriptions fit one of them by chance, too.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pass_core.attacks._flat import principal_components
from pass_core.auditing.analyses.base import Analysis
from pass_core.auditing.exact_attacker import Audited
from pass_core.auditing.findings import Check, Population, with_interval
from pass_core.auditing.section import Block, Demand, Table
from pass_core.auditing.thresholds import Thresholds
from pass_core.data import DoubleArray, IntArray, Rng
from pass_core.statistics.intervals import Blocks, Estimate

TITLE = "Singling out"
FEWEST_JUDGED = 60  # descriptions by several features
COMPARISONS = 10  # the release adds nothing in most audits, and the limit is near: a rare alarm needs a wide interval
ONE, SEVERAL = "one feature", "several features"
COLUMNS = 32  # features that predicates are about; principal components where records have more
PREDICATES = 1000  # of each kind, from each half of the records
RECORDS = 4000  # at most, in each half
FEWEST = 50  # records in each half
MOST_FEATURES = 8  # in one predicate
FEW_VALUES = 20  # of a feature: its values are compared for equality
FEWEST_UNITS = 20  # persons, to make halves of whole persons

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinglingRisk:
    """One kind of predicate: success of the main attack, the control and the baseline."""

    kind: str  # one feature, or several features
    predicates: int
    main: float  # fit exactly one original of the records whose releases were read
    control: float  # fit exactly one original of other records
    baseline: float  # random predicates that fit exactly one original
    risk: Estimate  # (main − control) / (1 − control)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinglingOut:
    """Predicates from each half of the test records, tried on the originals of both."""

    records: int  # in each half
    halves: str  # of persons or of records
    population: Population
    risks: tuple[SinglingRisk, ...]


@dataclass(frozen=True, slots=True)
class _Predicate:
    """Conditions on some columns: equal to a value, at least it (1) or at most it (−1)."""

    columns: IntArray
    values: DoubleArray
    sides: IntArray  # 0: equal
    source: int  # the released record that it was read from

    def fitting(self, records: DoubleArray) -> IntArray:
        """Rows that meet all conditions."""
        rows = np.arange(len(records))
        for column, value, side in zip(self.columns, self.values, self.sides, strict=True):
            some = records[rows, column]
            rows = rows[some == value if side == 0 else some >= value if side > 0 else some <= value]
        return rows


def find_singling_out(audited: Audited) -> SinglingOut | None:
    """Both halves of the test records in turn; None where they are too few."""
    subject, rng = audited.subject, audited.rng_for("singling out")
    dependent = subject.dependent()
    units, name = (
        (subject.test.persons, "persons") if _several(subject.test.persons) else (np.arange(len(subject.test)), "records")
    )
    halves = _halves(units, rng)
    size = min(RECORDS, *(len(half) for half in halves))
    if size < FEWEST:
        return None
    rows = [rng.permutation(half)[:size] for half in halves]
    released = subject.released_test.reshape(len(subject.test), -1)
    originals = subject.test.records.features.reshape(len(subject.test), -1)
    varied = (released[rows[0]].std(axis=0) > 0) & np.isfinite(originals).all(axis=0)
    if not varied.any():
        return None
    released, originals = released[:, varied], originals[:, varied]
    prepare = (lambda some: some) if released.shape[1] <= COLUMNS else principal_components(released[rows[0]], COLUMNS, rng)
    shown, true = ([np.asarray(prepare(of[half]), dtype=np.float64) for half in rows] for of in (released, originals))
    found: dict[str, list[tuple[DoubleArray, IntArray]]] = {ONE: [], SEVERAL: []}
    for own, other in ((0, 1), (1, 0)):
        made = {ONE: _extremes(shown[own]), SEVERAL: _combined(shown[own], rng)}
        for kind, predicates in made.items():
            if predicates:
                successes = np.array([
                    [_one(p, true[own]), _one(p, true[other]), _one(q, true[own])]
                    for p, q in zip(predicates, _random_like(predicates, shown[own], rng), strict=True)
                ])  # fmt: skip
                found[kind].append((successes, dependent[rows[own][[p.source for p in predicates]]]))
    risks = tuple(_risk(kind, parts) for kind, parts in found.items() if parts)
    return SinglingOut(records=size, halves=name, population=subject.population, risks=risks) if risks else None


def _several(persons: IntArray) -> bool:
    return len(np.unique(persons)) >= FEWEST_UNITS


def _halves(units: IntArray, rng: Rng) -> tuple[IntArray, IntArray]:
    """Rows of a random half of the units, and of the other units."""
    every = rng.permutation(np.unique(units))
    first = np.isin(units, every[: len(every) // 2])
    return np.flatnonzero(first), np.flatnonzero(~first)


def _one(predicate: _Predicate, records: DoubleArray) -> bool:
    return len(predicate.fitting(records)) == 1


def _sides(released: DoubleArray) -> tuple[BoolArray, DoubleArray]:
    """Which columns have few values, and the medians of all."""
    few = np.array([len(np.unique(column)) <= FEW_VALUES for column in released.T])
    return few, np.median(released, axis=0)


def _extremes(released: DoubleArray) -> list[_Predicate]:
    """At least the largest, at most the smallest released value of a column; equal to a rare value where it has few."""
    few, _ = _sides(released)
    found = []
    for column, values in enumerate(released.T):
        sources = [(int(values.argmax()), 1), (int(values.argmin()), -1)]
        if few[column]:
            _, first, counts = np.unique(values, return_index=True, return_counts=True)
            sources = [(int(source), 0) for source in first[counts == 1]]
        found += [_Predicate(np.array([column]), values[[row]], np.array([side]), row) for row, side in sources]
    return found


def _combined(released: DoubleArray, rng: Rng) -> list[_Predicate]:
    """From a released record, columns in random order until no different released record fits: all that the attacker can see."""
    distinct, rows = np.unique(released, axis=0, return_index=True)
    few, middle = _sides(released)
    found = []
    for place in rng.permutation(len(distinct))[:PREDICATES]:
        record, fitting = distinct[place], np.arange(len(distinct))
        columns: IntArray = rng.permutation(distinct.shape[1])[:MOST_FEATURES]
        sides = np.where(few[columns], 0, np.where(record[columns] >= middle[columns], 1, -1))
        for number in range(1, len(columns) + 1):
            last = _Predicate(columns[number - 1 : number], record[columns[number - 1 : number]], sides[number - 1 : number], 0)
            fitting = fitting[last.fitting(distinct[fitting])]
            if len(fitting) == 1:
                used = columns[:number]
                found.append(_Predicate(used, record[used], sides[:number], int(rows[place])))
                break
    return found


def _random_like(predicates: list[_Predicate], released: DoubleArray, rng: Rng) -> Iterator[_Predicate]:
    """The baseline: as many conditions each, on random columns, at values between the smallest and the largest."""
    low, high = released.min(axis=0), released.max(axis=0)
    for one in predicates:
        columns = rng.permutation(released.shape[1])[: len(one.columns)]
        values = rng.uniform(low[columns], high[columns])
        yield _Predicate(columns, values, rng.choice(np.array([-1, 1]), len(columns)), one.source)


def _risk(kind: str, parts: list[tuple[DoubleArray, IntArray]]) -> SinglingRisk:
    """Over both halves. Predicates that were read from dependent records are dependent."""
    successes = np.concatenate([one for one, _ in parts]).astype(np.float64)
    blocks = Blocks.of(np.concatenate([of for _, of in parts]), np.zeros(len(successes), dtype=np.int64))
    main, control, baseline = (float(share) for share in successes.mean(axis=0))
    risk = (main - control) / max(1 - control, 1e-9)
    influence = (successes[:, 0] - main - (1 - risk) * (successes[:, 1] - control)) / max(1 - control, 1e-9) / len(successes)
    value = min(1.0, max(0.0, risk))
    return SinglingRisk(
        kind=kind, predicates=len(successes), main=main, control=control, baseline=baseline,
        risk=blocks.proportion(value, blocks.spread(influence), among=COMPARISONS),
    )  # fmt: skip


def _checks(found: SinglingOut, thresholds: Thresholds) -> Iterator[Check]:
    """Of many descriptions by several features: a few are extremes, which depend on each other."""
    limit = thresholds.singled_out_at_most
    for one in (risk for risk in found.risks if risk.kind == SEVERAL and risk.predicates >= FEWEST_JUDGED):
        words = (
            f"descriptions by {one.kind} of a release fit exactly one original in {one.main:.1%} of cases, and in "
            f"{one.control:.1%} among originals whose release was not read: risk {with_interval(one.risk)}, at most "
            f"{limit.value:.1%} allowed"
        )
        yield Check.at_most(
            "singled_out_at_most", limit, f"singling out by {one.kind}", one.risk, words,
            population=found.population, required=False, units=one.predicates,
        )  # fmt: skip


def _section(found: SinglingOut | None) -> Iterator[Block]:
    if found is None:
        yield f"Not analysed: this needs at least {2 * FEWEST} test records and a release whose records differ."
        return
    yield (
        "Somebody is singled out when a description fits this one original and no other. The attacker reads descriptions from "
        "the release: the most extreme value of one feature, or values of several features of one released record that no other "
        f"released record has. They are tried on {found.records} originals whose releases were read, and on as many others as a "
        f"control: the test {found.halves} are in two halves. The risk is what the release adds: 0 % is no better than the "
        "control, 100 % is certainty. Descriptions by one feature, and fewer than "
        f"{FEWEST_JUDGED} by several, depend on each other: they are shown, and not judged."
    )
    rows = [
        (one.kind, str(one.predicates), f"{one.main:.1%}", f"{one.control:.1%}", f"{one.baseline:.1%}", one.risk)
        for one in found.risks
    ]
    columns = ("Description by", "Descriptions", "Fit one original", "Control", "Random descriptions", "Risk")
    yield Table(TITLE, "Share of descriptions that fit exactly one original.", columns, rows)


ANALYSIS = Analysis(
    key="singling_out",
    rank=14,
    title=TITLE,
    finding=SinglingOut,
    find=find_singling_out,
    checks=_checks,
    section=_section,
    demands={"singled_out_at_most": Demand("Nobody is singled out by the release", "risk at most {:.1%}")},
)
