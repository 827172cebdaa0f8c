"""Which donors' records are shown instead of the originals, and how often a record is replaced by itself or its own person."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pass_core.auditing.analyses.base import Analysis
from pass_core.auditing.exact_attacker import Audited
from pass_core.auditing.section import Bars, Block, Card, Facts
from pass_core.auditing.subject import Part, Split, Subject
from pass_core.data import IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Donors:
    """Which donors are shown, and how often."""

    releases: int
    used: int
    pool_size: int
    uses: tuple[int, ...]  # releases per donor, largest first
    largest_share: float  # of the releases that show one donor
    largest_exposure: float  # max over donors of P(X'=d)
    self_rate: float  # records replaced by themselves, in the release
    same_person_rate: float
    expected_self_rate: float  # its mean probability
    expected_same_person_rate: float


def find_donors(subject: Subject, released_train: IntArray | None = None) -> Donors | None:
    """Over the test records and, where the donors `released_train` (n,) are given, the training records; None without a pool."""
    substitution = subject.substitution
    if substitution is None:
        return None
    releases: list[tuple[Split, Part, IntArray]] = [("test", subject.test, substitution.drawn)]
    if released_train is not None:
        releases.append(("train", subject.train, released_train))
    n = sum(len(donors) for _, _, donors in releases)
    pool_size = len(substitution.donor_rows)
    uses, exposure = np.zeros(pool_size, dtype=np.int64), np.zeros(pool_size)
    met, expected = np.zeros(2), np.zeros(2)  # of oneself, and of one's own person
    for split, part, donors in releases:
        # Numbers as of `donor_rows`; donors are training records or strangers (−1), so a test record is none of them.
        own = np.arange(len(part)) if split == "train" else np.full(len(part), -2)
        units = ((own, substitution.donor_rows), (part.persons, substitution.donor_persons))
        uses += np.bincount(donors, minlength=pool_size)
        met += [(of_donors[donors] == of_records).sum() for of_records, of_donors in units]
        shown, masses = np.zeros(pool_size), np.zeros(2)
        for rows, p in substitution.channel(split, np.arange(len(part))).blocks(part.records.features):
            shown += p.sum(axis=0, dtype=np.float64)
            masses += [p[of_records[rows, None] == of_donors].sum(dtype=np.float64) for of_records, of_donors in units]
        exposure += shown
        expected += masses
    return Donors(
        releases=n,
        used=int((uses > 0).sum()),
        pool_size=pool_size,
        uses=tuple(np.sort(uses)[::-1].tolist()),
        largest_share=float(uses.max() / n),
        largest_exposure=float(exposure.max() / n),
        self_rate=float(met[0] / n),
        same_person_rate=float(met[1] / n),
        expected_self_rate=float(expected[0] / n),
        expected_same_person_rate=float(expected[1] / n),
    )


def half_of_releases(uses: Sequence[int]) -> int:
    """How few donors make up half of all releases."""
    reached = np.cumsum(sorted(uses, reverse=True))
    return int(np.searchsorted(2 * reached, reached[-1])) + 1 if len(uses) else 0


def reuse_counts(uses: Sequence[int], pool_size: int) -> list[tuple[str, int]]:
    """Donors never shown, shown once, two or three times, four to seven times, and so on."""
    used = [number for number in uses if number > 0]
    counts, start = [("0", pool_size - len(used))], 1
    while used and start <= max(used):
        end = 2 * start - 1
        counts.append((str(start) if start == end else f"{start}–{end}", sum(start <= number <= end for number in used)))
        start = end + 1
    return counts


def _find(audited: Audited) -> Donors | None:
    substitution = audited.subject.substitution
    return None if substitution is None else find_donors(audited.subject, substitution.drawn_train)


def _highlights(donors: Donors) -> Iterator[Card]:
    meaning = f"real people’s records; the one shown most is {donors.largest_share:.1%} of the release"
    yield Card("Donors shown", f"{donors.used} of {donors.pool_size}", meaning)


def _section(donors: Donors | None) -> Iterator[Block]:
    if donors is None:
        yield "No donors are known: the method uses no pool, or the release comes from elsewhere."
        return
    yield (
        f"Every released record is a real donor’s record, and needs that person’s consent. {donors.used} of {donors.pool_size} "
        f"donors appear in {donors.releases} releases; half of the releases show only {half_of_releases(donors.uses)} of them."
    )
    figure = Bars(
        name="donor_reuse",
        title="How often donors are shown",
        unit="times shown",
        bars=reuse_counts(donors.uses, donors.pool_size),
        label="Number of donors by how often they were released",
        caption="Number of donors by times shown, in steps that double.",
    )
    same_person = f"{donors.same_person_rate:.2%} of records ({donors.expected_same_person_rate:.2%} expected)"
    facts = (
        ("Shown most", f"{donors.largest_share:.1%} of all releases"),
        ("Largest exposure", f"{donors.largest_exposure:.1%}, the probability that a release shows one certain donor"),
        ("Replaced by itself", f"{donors.self_rate:.2%} of records ({donors.expected_self_rate:.2%} expected)"),
        ("Replaced by the same person", same_person),
    )
    yield (figure, Facts(facts))


ANALYSIS = Analysis(key="donors", rank=40, title="Donors", finding=Donors, find=_find, highlights=_highlights, section=_section)
