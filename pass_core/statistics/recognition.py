"""How many members a score recognises when only a small share of others may be taken for members.

Both ends are exact for independent records: the threshold that such a share of the others exceeds is known between two of their
scores, and the share of members beyond each of these is known by Clopper and Pearson's interval. Records of one unit depend on
each other; so many independent records count as would have the same variance.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from pass_core.data import DoubleArray, IntArray
from pass_core.statistics.intervals import CONFIDENCE, Blocks, Estimate, clopper_pearson

BoolArray = NDArray[np.bool_]


def rate_among_others(
    scores: DoubleArray, is_member: BoolArray, units: IntArray, allowed: float, *, among: int = 1
) -> tuple[Estimate, float]:
    """The share of members whose score only a share `allowed` of the others exceeds; and the smallest such share that these
    others can measure. Below it, the interval is 0 to 1.

    Args:
        among: so many intervals hold together.
    """
    tail = (1 - CONFIDENCE) / 4 / among  # two ends, and for each a threshold and a share
    others, members = np.sort(scores[~is_member])[::-1], scores[is_member]
    usual = others[min(int(allowed * len(others)), len(others) - 1)]
    value = float((members > usual).mean())
    n = _independent(scores[~is_member], units[~is_member], usual)
    smallest = clopper_pearson(0.0, n, tail)[1]
    if smallest > allowed:
        return Estimate(value, 0.0, 1.0), smallest
    # The k-th largest score of the others: the larger k, the more of all others exceed it.
    above, reached = np.arange(len(others)) / len(others), np.arange(1, len(others) + 1) / len(others)
    sure = special.betainc(above * n + 1, n - above * n, allowed) >= 1 - tail  # at most the allowed share exceeds it
    loose = special.betainc(reached * n, n - reached * n + 1, allowed) <= tail  # at least that share does
    high_threshold = others[np.flatnonzero(sure)[-1]]
    low_threshold = others[np.flatnonzero(loose)[0]] if loose.any() else -math.inf
    ends = []
    for hits, end in ((members > high_threshold, 0), (members >= low_threshold, 1)):
        number = _independent(members, units[is_member], high_threshold if end == 0 else low_threshold)
        ends.append(clopper_pearson(float(hits.mean()), number, tail)[end])
    return Estimate(value, min(ends[0], value), max(ends[1], value)), smallest


def _independent(scores: DoubleArray, units: IntArray, threshold: float) -> float:
    """How many independent records know the share beyond a threshold as well: the fewer by the share itself and by all ranks."""
    blocks = Blocks.of(units, np.zeros(len(scores), dtype=np.int64))
    if blocks.number == len(scores):
        return float(len(scores))
    beyond, ranks = (scores > threshold).astype(np.float64), stats.rankdata(scores)
    spreads = [blocks.spread((values - values.mean()) / len(values)) for values in (beyond, ranks)]
    by_ranks = float(ranks.var()) / spreads[1].variance if spreads[1].variance > 0 else math.inf
    return max(1.0, min(len(scores), blocks.effective(float(beyond.mean()), spreads[0]), by_ranks))
