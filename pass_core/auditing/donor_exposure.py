"""Whose records are shown instead of the originals, and how often a record meets itself or its own person."""

import numpy as np

from pass_core.auditing.findings import Donors
from pass_core.auditing.subject import Part, Split, Subject, Substitution
from pass_core.data import DoubleArray, IntArray


def find_donors(subject: Subject, released_train: IntArray | None = None) -> Donors | None:
    """Over the test records and, where the donors released for them are given, the training records; None without a pool.

    Args:
        released_train: (n,) donors that were released for the training records, in their order.
    """
    substitution = subject.substitution
    if substitution is None:
        return None
    releases: list[tuple[Split, Part, IntArray]] = [("test", subject.test, substitution.drawn)]
    if released_train is not None:
        releases.append(("train", subject.train, released_train))
    n = sum(len(donors) for _, _, donors in releases)
    pool_size = len(substitution.donor_rows)
    uses, met = np.zeros(pool_size, dtype=np.int64), np.zeros(2)
    exposure, expected = np.zeros(pool_size), np.zeros(2)
    for split, part, donors in releases:
        rows = _own_rows(split, part)
        uses += np.bincount(donors, minlength=pool_size)
        met += [(substitution.donor_rows[donors] == rows).sum(), (substitution.donor_persons[donors] == part.persons).sum()]
        shown, masses = _expected(substitution, split, part)
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


def _own_rows(split: Split, part: Part) -> IntArray:
    """Numbers as of `donor_rows`; donors are training records or strangers (−1), so a test record is none of them."""
    return np.arange(len(part)) if split == "train" else np.full(len(part), -2)


def _expected(substitution: Substitution, split: Split, part: Part) -> tuple[DoubleArray, DoubleArray]:
    """Sums over the records of P(.|x), (pool,), and of the probabilities to meet oneself and one's own person, (2,)."""
    own_rows = _own_rows(split, part)
    shown, masses = np.zeros(len(substitution.donor_rows)), np.zeros(2)
    for rows, p in substitution.channel(split, np.arange(len(part))).blocks(part.records.features):
        shown += p.sum(axis=0, dtype=np.float64)
        for place, (records, donors) in enumerate(
            ((own_rows[rows], substitution.donor_rows), (part.persons[rows], substitution.donor_persons))
        ):
            masses[place] += p[records[:, None] == donors].sum(dtype=np.float64)
    return shown, masses
