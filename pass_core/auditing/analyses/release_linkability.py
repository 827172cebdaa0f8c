"""Whether two releases can be recognised as one person's, or as two releases of one record.

Whoever can tell this groups a release by person, and combines what single records reveal. The attacker learns from pairs of
released training records. A pair of one person is compared with a pair of two persons that has the same useful and general
classes: these are kept on purpose, and what they reveal about a person does not count here.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from pass_core.auditing.analyses._pairs import learn_pairs, pairs_within, standard_components
from pass_core.auditing.analyses.base import Analysis
from pass_core.auditing.exact_attacker import Audited
from pass_core.auditing.findings import Check, Population, with_interval
from pass_core.auditing.section import Block, Demand, Table
from pass_core.auditing.subject import KEPT, Part, Subject
from pass_core.auditing.thresholds import Thresholds
from pass_core.data import DoubleArray, FloatArray, IntArray, Rng
from pass_core.statistics.intervals import Blocks, Estimate
from pass_core.statistics.nag import Scoring

TITLE = "Linking releases to each other"
COMPONENTS = 16
PAIRS = 6000  # at most, of one person, and as many of two
FEWEST_PAIRS = 40  # fewer say nothing
FEWEST_PERSONS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Linked:
    """Pairs of one kind: main attack on releases, control on originals; the baseline is a coin toss."""

    of: str  # person or record: what two releases have in common
    pairs: int  # of one person or record, among the test records
    units: int
    auc: Estimate  # of the attacker who sees two releases
    originals_auc: Estimate | None  # of the same attack on originals; None for releases of one record, whose originals are equal
    baseline: float = 0.5


@dataclass(frozen=True, slots=True)
class ReleaseLinkability:
    """Whether releases can be linked to each other."""

    population: Population
    kinds: tuple[Linked, ...]


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Rows of two releases each: first those of one person or record, then as many of two with the same kept classes."""

    left: IntArray
    right: IntArray
    together: IntArray  # 1: of one
    units: IntArray  # the person of the left one

    def of(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """(pairs, features): the same whichever of the two comes first."""
        one, other = left[self.left], right[self.right]
        return np.concatenate([np.abs(one - other), one * other], axis=1)


def find_linkability(audited: Audited) -> ReleaseLinkability | None:
    """Pairs of persons with several records, and of records that were released several times; None without either."""
    subject, found = audited.subject, []
    kept = subject.given(roles=KEPT)
    rng = audited.rng_for("linkability", "person")
    train, test = (_of_persons(part, of, rng) for part, of in zip((subject.train, subject.test), kept, strict=True))
    if train is not None and test is not None:
        released, originals = subject.released_train(0), (subject.train.records.features, subject.test.records.features)
        found.append(
            Linked(
                of="person",
                pairs=int(test.together.sum()),
                units=len(np.unique(test.units)),
                auc=_auc(train, test, (released, released), (subject.released_test, subject.released_test), rng),
                originals_auc=_auc(train, test, (originals[0],) * 2, (originals[1],) * 2, rng),
            )
        )
    found += _of_records(subject, kept, audited.rng_for("linkability", "record"))
    return ReleaseLinkability(subject.population, tuple(found)) if found else None


def _of_persons(part: Part, kept: IntArray, rng: Rng) -> _Pairs | None:
    """None where too few persons have several records."""
    if len(np.unique(part.persons)) in (1, len(part)):
        return None
    left, right = pairs_within(part.persons, PAIRS, rng)
    return _matched(left, right, part.persons, kept, rng)


def _of_records(subject: Subject, kept: tuple[IntArray, IntArray], rng: Rng) -> list[Linked]:
    """Two releases of one record against releases of two records."""
    if not subject.repeated_test:
        return []
    first, second = subject.released_train(0), subject.released_train(1)
    if np.array_equal(first, second):
        return []
    rows = [rng.permutation(len(part))[:PAIRS] for part in (subject.train, subject.test)]
    train, test = (_matched(some, some, np.arange(len(of)), of, rng) for some, of in zip(rows, kept, strict=True))
    if train is None or test is None:
        return []
    auc = _auc(train, test, (first, second), (subject.released_test, subject.repeated_test[0]), rng)
    return [Linked(of="record", pairs=len(rows[1]), units=len(rows[1]), auc=auc, originals_auc=None)]


def _matched(left: IntArray, right: IntArray, units: IntArray, kept: IntArray, rng: Rng) -> _Pairs | None:
    """With every pair one of two units: another right record with the same kept classes. None where too few have one."""
    by_class = np.argsort(kept, kind="stable")
    starts, counts = np.searchsorted(kept[by_class], kept[right]), np.bincount(kept)[kept[right]]
    other = right.copy()
    for _ in range(8):  # a class may hold mostly records of one unit: some pairs stay without a match
        same = units[other] == units[left]
        other[same] = by_class[starts[same] + (rng.random(int(same.sum())) * counts[same]).astype(np.int64)]
    kept = units[other] != units[left]
    left, right, other = left[kept], right[kept], other[kept]
    if len(left) < FEWEST_PAIRS or len(np.unique(units[left])) < FEWEST_PERSONS:
        return None
    together = np.repeat(np.array([1, 0]), len(left))
    return _Pairs(np.tile(left, 2), np.concatenate([right, other]), together, np.tile(units[left], 2))


def _auc(
    train: _Pairs,
    test: _Pairs,
    train_records: tuple[FloatArray, FloatArray],
    test_records: tuple[FloatArray, FloatArray],
    rng: Rng,
) -> Estimate:
    """Learnt on training pairs, scored on test pairs; the interval is by persons."""
    components: Callable[[FloatArray], FloatArray] = standard_components(train_records[0], COMPONENTS, rng)
    shown, tried = (tuple(components(side) for side in sides) for sides in (train_records, test_records))
    learnt = learn_pairs(train.of(*shown), train.together, 2, rng)
    probabilities: DoubleArray = learnt(test.of(*tried))
    nobody = np.zeros(len(test.together))
    return Scoring(test.together, Blocks.of(test.units, test.together), nobody, nobody).auc(probabilities)


def _checks(found: ReleaseLinkability, thresholds: Thresholds) -> Iterator[Check]:
    limit = thresholds.linked_auc_at_most
    for one in found.kinds:
        words = (
            f"two releases are recognised as of one {one.of} with AUC {with_interval(one.auc)}, at most {limit.value:.1%} allowed"
        )
        yield Check.at_most(
            "linked_auc_at_most", limit, f"two releases of one {one.of}", one.auc, words,
            population=found.population, required=False, units=one.units,
        )  # fmt: skip


def _section(found: ReleaseLinkability | None) -> Iterator[Block]:
    if found is None:
        yield (
            "Not analysed: no pairs to compare. This needs persons with several records in training and in test, or records that "
            "were released several times; and others with the same useful and general classes. Where these tell who somebody is, "
            "the releases of a person are linked as declared."
        )
        return
    yield (
        "Can two releases be recognised as one person’s? The attacker sees a release and two others with the same useful and "
        "general classes, which are kept on purpose: one of the same person and one of somebody else. It has learnt from pairs "
        "of training records. A coin toss is right in 50 of 100 cases; the control is the same attack on originals."
    )
    rows = [
        (f"of one {one.of}", str(one.pairs), str(one.units), one.auc, one.originals_auc, f"{one.baseline:.0%}")
        for one in found.kinds
    ]
    columns = ("Two releases", "Pairs", "Persons or records", "Right, from releases", "Right, from originals", "Coin toss")
    yield Table(TITLE, "How often the right one of two releases is chosen (AUC).", columns, rows)


ANALYSIS = Analysis(
    key="release_linkability",
    rank=16,
    title=TITLE,
    finding=ReleaseLinkability,
    find=find_linkability,
    checks=_checks,
    section=_section,
    demands={"linked_auc_at_most": Demand("Releases are not linked to each other", "AUC at most {:.1%}")},
)
