"""Whether records are released as themselves, or so nearly that only a copy explains it.

Similar donors are no copies. A release counts as a near copy only if it is much nearer to its own original than the nearest
original of somebody else is; what the nearest of other originals would reach by chance is the control, and is subtracted.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pass_core.attacks._flat import principal_components
from pass_core.attacks._released import UNSEEN, RecordNumbers
from pass_core.auditing.analyses.base import Analysis
from pass_core.auditing.exact_attacker import Audited
from pass_core.auditing.findings import Check, with_interval
from pass_core.auditing.section import Block, Demand, Table
from pass_core.auditing.subject import Part, Split, Subject
from pass_core.auditing.thresholds import Thresholds
from pass_core.data import DoubleArray, FloatArray, IntArray, Rng
from pass_core.statistics.intervals import Blocks, Estimate

TITLE = "Copies"
NEAR = 0.1  # of the distance to the nearest original of somebody else
COMPONENTS = 64  # principal components that distances are measured in, where records have more features
RECORDS = 8000  # at most, whose distances are measured, and as many other originals
DENSER = 4  # times as many records as half of the other originals may be in a pool of similar donors: the control counts so often
DISTANCES_AT_ONCE = 2**22
SPLITS: tuple[Split, ...] = ("test", "train")


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedShare:
    """The share of releases that are copies of their own originals: main attack, control and baseline."""

    kind: str  # exact or near
    split: str  # whose releases: test or training records
    records: int
    units: int
    share: Estimate  # of the releases
    control: float  # exact: equal to another original of the same useful classes; near: what the most similar donor gives
    baseline: float  # releases that are copies of a random other original of the same useful classes
    excess: Estimate  # share above the control


@dataclass(frozen=True, slots=True)
class Copies:
    """Exact and near copies."""

    shares: tuple[CopiedShare, ...]


def find_copies(audited: Audited) -> Copies:
    """Of the test records, and of the training records as attackers get them."""
    subject, found = audited.subject, []
    useful = subject.given()
    for split in SPLITS:
        part, others = (subject.test, subject.train) if split == "test" else (subject.train, subject.test)
        if len(part) < 2:
            continue
        released = subject.released_test if split == "test" else subject.released_train(0)
        given = useful[1] if split == "test" else useful[0]
        dependent = subject.dependent() if split == "test" else part.blocks
        found.append(_exact(subject, split, part, released, given=given, dependent=dependent))
        near = _near(part, others, released, given, audited.rng_for("copies", split))
        if near is not None:
            found.append(_share("near", split, *near[:3], dependent=dependent[near[3]]))
    return Copies(tuple(found))


def _share(
    kind: str, split: Split, own: DoubleArray, control: DoubleArray, baseline: DoubleArray, *, dependent: IntArray
) -> CopiedShare:
    """A share of copies (n,) less the control for the same records (n,); the interval is that of the difference."""
    blocks = Blocks.of(dependent, np.zeros(len(own), dtype=np.int64))
    share, expected = float(own.mean()), float(control.mean())
    difference = blocks.spread((own - control - share + expected) / len(own))
    ends = blocks.proportion(share, difference)
    return CopiedShare(
        kind=kind,
        split="test" if split == "test" else "training",
        records=len(own),
        units=blocks.number,
        share=ends,
        control=expected,
        baseline=float(baseline.mean()),
        excess=Estimate(*(max(0.0, end - expected) for end in (ends.value, ends.low, ends.high))),
    )


def _exact(
    subject: Subject, split: Split, part: Part, released: FloatArray, *, given: IntArray, dependent: IntArray
) -> CopiedShare:
    """Equal bytes; of a donor who is known to be a training record, whether it is the record itself.

    Where originals have few distinct values, a release equals many of them: a random other original of the same useful classes
    shows how many.
    """
    numbers, n = RecordNumbers(), len(part)
    originals = numbers.number(part.records.features)
    shown = numbers.find(released)
    if subject.substitution is not None:
        drawn = subject.substitution.drawn if split == "test" else subject.substitution.drawn_train
        donors = subject.substitution.donor_rows[drawn]
        if split == "test":
            shown = np.where(donors >= 0, UNSEEN, shown)  # a training record, however similar, is somebody else's
        elif (subject.substitution.donor_rows >= 0).all():
            originals, shown = np.arange(n), donors
    own = (shown == originals).astype(np.float64)
    largest = int(originals.max()) + 1
    cells, counts = np.unique(given * largest + originals, return_counts=True)
    wanted = given * largest + shown
    place = np.minimum(np.searchsorted(cells, wanted), len(cells) - 1)
    alike = np.where((cells[place] == wanted) & (shown != UNSEEN), counts[place], 0)
    chance = (alike - own) / np.maximum(np.bincount(given)[given] - 1, 1)
    return _share("exact", split, own, chance, chance, dependent=dependent)


def _near(
    part: Part, others: Part, released: FloatArray, given: IntArray, rng: Rng
) -> tuple[DoubleArray, DoubleArray, DoubleArray, IntArray] | None:
    """Where a release is a near copy, the control, the baseline, and the rows; None with too few other originals.

    Other originals are in two halves. The control is a donor as similar as possible: the nearest original of one half, held
    against the other half. With few features such a donor is often very near, and so nothing is called a copy.
    """
    chosen: IntArray = np.sort(rng.permutation(len(part))[:RECORDS])
    held_out = rng.permutation(len(others))[:RECORDS]
    flat = others.records.features[held_out].reshape(len(held_out), -1)
    finite = np.isfinite(flat).all(axis=0)
    if len(held_out) < 4 or not finite.any():
        return None
    prepare = principal_components(flat[:, finite], COMPONENTS, rng)

    def prepared(records: FloatArray) -> DoubleArray:
        return np.asarray(prepare(np.nan_to_num(records.reshape(len(records), -1)[:, finite])), dtype=np.float64)

    hold_out, originals, releases = (prepared(one) for one in (flat, part.records.features[chosen], released[chosen]))
    middle = len(held_out) // 2
    first, second = (_nearest(originals, half) for half in (hold_out[:middle], hold_out[middle:]))
    reach = NEAR * np.minimum(first, second)
    near = np.linalg.norm(releases - originals, axis=1) < reach
    control = DENSER * ((first < NEAR * second).astype(np.float64) + (second < NEAR * first)) / 2
    order = np.lexsort((rng.random(len(chosen)), given[chosen]))
    partner = np.empty_like(order)
    partner[order] = np.roll(order, 1)  # another record, of the same useful classes for all but one record of each
    baseline = np.linalg.norm(releases - originals[partner], axis=1) < reach[partner]
    return near.astype(np.float64), control, baseline.astype(np.float64), chosen


def _nearest(records: DoubleArray, others: DoubleArray) -> DoubleArray:
    """(n,) distances to the nearest other; the nearest are found by products, their distance is computed by difference."""
    lengths, found = (others**2).sum(axis=1), np.empty(len(records))
    at_once = max(1, DISTANCES_AT_ONCE // len(others))
    for start in range(0, len(records), at_once):
        some = records[start : start + at_once]
        nearest = (lengths - 2 * some @ others.T).argmin(axis=1)
        found[start : start + at_once] = np.linalg.norm(some - others[nearest], axis=1)
    return found


def _checks(copies: Copies, thresholds: Thresholds) -> Iterator[Check]:
    limit = thresholds.copied_at_most
    for one in copies.shares:
        words = (
            f"{one.kind} copies of their own originals are {with_interval(one.share)} of the releases of {one.split} records "
            f"(by chance {one.control:.2%}), at most {limit.value:.1%} above chance allowed"
        )
        yield Check.at_most(
            "copied_at_most", limit, f"{one.kind} copies of {one.split} records", one.excess, words,
            population="enrolled people", required=False, units=one.units,
        )  # fmt: skip


def _section(copies: Copies | None) -> Iterator[Block]:
    if copies is None or not copies.shares:
        yield "Not analysed: copies are counted over at least two records."
        return
    yield (
        "A record that is released as itself is not protected. An exact copy has the same bytes as its original; where donors "
        "are training records, it is a record that was drawn as its own donor. By chance, as many releases equal a random other "
        "original of the same useful classes."
    )
    yield (
        f"A near copy is less than {NEAR:.0%} as far from its own original as the nearest of the other originals is. This counts "
        "copies, such as a record with a little noise, and not similarity: a donor who is chosen because it is similar is no "
        "nearer than other people are. By chance, the nearest of one half of the other originals is as near, compared with the "
        f"other half; this counts {DENSER} times, since donors may be more than these. Records with one or two features have "
        "similar donors so near that near copies cannot be told from them; exact copies can."
    )
    rows = [
        (f"{one.kind}, {one.split} records", str(one.records), one.share, f"{one.control:.2%}", f"{one.baseline:.2%}", one.excess)
        for one in copies.shares
    ]
    columns = ("Copies", "Records", "Share", "By chance", "Of a random other original", "Above chance")
    yield Table(TITLE, "Share of releases that are copies of their own originals.", columns, rows)


ANALYSIS = Analysis(
    key="copies",
    rank=12,
    title=TITLE,
    finding=Copies,
    find=find_copies,
    checks=_checks,
    section=_section,
    demands={"copied_at_most": Demand("Records are not released as themselves", "at most {:.1%} above chance")},
)
