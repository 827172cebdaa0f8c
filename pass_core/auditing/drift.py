"""Whether new records without labels resemble the records of a labelled audit.

Four figures, each beside what chance gives: whether features separate new from audited records, how much sharper or wider the
rows of P(x'|x) have become, how far donors' exposure has moved, and whether the donors are drawn as P(x'|x) requires. Chance is
measured by permuting records between the two sides, by whole persons where there are enough of them: a few new people always
differ from other people, and that is no drift. Records of either side depend on each other within a person.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from pass_core.attacks._flat import flat_features
from pass_core.auditing.findings import Check, Drift
from pass_core.auditing.thresholds import Limit, Thresholds
from pass_core.channel.draws import inverse_cdf, uniform_words
from pass_core.channel.substitution import Channel
from pass_core.data import DoubleArray, FloatArray, IntArray
from pass_core.errors import AuditError
from pass_core.statistics.null_distribution import compared

RECORDS = 2000  # at most, of each side: the tables of all pairs fit into memory, and an AUC is known to 0.01
FEWEST_RECORDS = 20  # of each side: fewer cannot show any drift, which would look like none
FEWEST_DEALS = 10_000  # ways to deal units out: fewer could not make any figure unlikely enough to count

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Side:
    """Records of one side: those that the labelled audit was made of, or the new ones."""

    features: FloatArray  # (n, *shape)
    persons: IntArray  # (n,)
    blocks: IntArray  # (n,) records with one number depend on each other
    channel: Callable[[IntArray], Channel] | None  # P(x'|x) of these rows; None for methods without a pool
    _: KW_ONLY
    drawn: IntArray | None = None  # (n,) donors that were drawn for them, where any were

    def sampled(self, rng: np.random.Generator) -> "Side":
        """At most `RECORDS` of them."""
        rows = np.sort(rng.permutation(len(self.features))[:RECORDS])
        whole, drawn = self.channel, None if self.drawn is None else self.drawn[rows]
        channel = None if whole is None else lambda chosen: whole(rows[chosen])
        return Side(self.features[rows], self.persons[rows], self.blocks[rows], channel, drawn=drawn)


@dataclass(frozen=True, slots=True)
class _Deals:
    """Which records are new: the true assignment first, then random ones."""

    unit: str
    units: int
    possible: int  # ways to deal
    is_new: BoolArray  # (permutations + 1, n)

    @classmethod
    def of(cls, reference: Side, new: Side, permutations: int, rng: np.random.Generator) -> "_Deals":
        """Over persons; over recordings or records where there are too few, or where only one side has persons."""
        groupings = {
            "person": (reference.persons, new.persons),
            "recording": (reference.blocks, new.blocks),
            "record": (np.arange(len(reference.features)), np.arange(len(new.features))),
        }
        for unit, sides in groupings.items():
            # A person who is on both sides counts as two units, one on each.
            numbers = [np.unique(side, return_inverse=True)[1] for side in sides]
            counts = [int(side.max()) + 1 for side in numbers]
            possible = math.comb(sum(counts), counts[1])
            alike = (counts[0] == len(sides[0])) == (counts[1] == len(sides[1]))
            if unit == "record" or (possible >= FEWEST_DEALS and alike):
                break
        true = np.arange(sum(counts)) >= counts[0]
        dealt = np.stack([true, *(rng.permutation(true) for _ in range(permutations))])
        return cls(unit, sum(counts), possible, dealt[:, np.concatenate([numbers[0], counts[0] + numbers[1]])])

    def drift(self, name: str, figures: DoubleArray) -> Drift:
        """The figure of the true assignment beside those of the random ones."""
        null = asdict(compared(figures))
        # No test can be surer than one in the number of possible permutations.
        null["p_value"] = max(null["p_value"], 1 / self.possible)
        return Drift(name=name, unit=self.unit, units=self.units, **null)


def find_drift(reference: Side, new: Side, permutations: int, rng_for: Callable[..., np.random.Generator]) -> tuple[Drift, ...]:
    """Every figure that can be computed; those of donors need a pool, that of draws needs draws.

    `reference` holds no donors, such as the hold-out does: a donor can be replaced by itself, a new record cannot.
    """
    for side, which in ((reference, "audited"), (new, "new")):
        if len(side.features) < FEWEST_RECORDS:
            raise AuditError(f"drift: expected at least {FEWEST_RECORDS} {which} records, found {len(side.features)}")
    if reference.features.shape[1:] != new.features.shape[1:]:
        shapes = f"expected features of shape {reference.features.shape[1:]}, found {new.features.shape[1:]}"
        raise AuditError(f"drift: {shapes}; use the same extractor")
    reference, new = reference.sampled(rng_for("drift", "reference")), new.sampled(rng_for("drift", "new"))
    deals = _Deals.of(reference, new, permutations, rng_for("drift", "deals"))
    found = [deals.drift("feature_drift_at_most", _separation(reference.features, new.features, deals.is_new))]
    if reference.channel is None or new.channel is None:
        return tuple(found)
    rows = [
        np.concatenate([p for _, p in channel(np.arange(len(features))).blocks(features)])
        for channel, features in ((reference.channel, reference.features), (new.channel, new.features))
    ]
    p = np.concatenate(rows)
    found.append(deals.drift("entropy_drift_at_most", _entropy_distances(p, deals.is_new)))
    found.append(deals.drift("exposure_drift_at_most", _exposure_distances(p, deals.is_new)))
    if new.drawn is not None:
        null = compared(_usage_distances(rows[1], new.drawn, permutations, rng_for("drift", "usage")))
        found.append(Drift(name="usage_drift_at_most", unit="record", units=len(new.drawn), **asdict(null)))
    return tuple(found)


def _separation(reference: FloatArray, new: FloatArray, is_new: BoolArray) -> DoubleArray:
    """(deals,) AUC of separating the sides by which one a record resembles more, itself left out.

    Alike is a Gaussian of the distance, which sees differences of any form; its width is the usual distance of two records.
    """
    flat = [flat_features(side).astype(np.float64) for side in (reference, new)]
    spread = flat[0].std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    records = torch.from_numpy(np.concatenate(flat) / scale).float()
    squared = torch.cdist(records, records).square_()
    alike = torch.exp(-squared / squared.median().clamp_min(1e-12))
    alike.fill_diagonal_(0.0)
    dealt = torch.from_numpy(is_new).float()
    to_new, to_all = dealt @ alike, alike.sum(dim=1)
    n_new = dealt.sum(dim=1, keepdim=True)
    n_old = dealt.shape[1] - n_new
    score = to_new / (n_new - dealt).clamp_min(1.0) - (to_all - to_new) / (n_old - (1 - dealt)).clamp_min(1.0)
    ranks = stats.rankdata(score.numpy(), axis=1)
    above, below = is_new.sum(axis=1), (~is_new).sum(axis=1)
    return np.asarray(((ranks * is_new).sum(axis=1) - above * (above + 1) / 2) / (above * below))


def _entropy_distances(p: FloatArray, is_new: BoolArray) -> DoubleArray:
    """(deals,) how far apart the sides' row entropies are, nats per record: the area between their distribution functions."""
    entropies = torch.special.entr(torch.from_numpy(p)).sum(dim=1, dtype=torch.float64).numpy()
    order = np.argsort(entropies)
    dealt = is_new[:, order]
    steps = dealt / dealt.sum(axis=1, keepdims=True) - ~dealt / (~dealt).sum(axis=1, keepdims=True)
    return np.asarray(np.abs(np.cumsum(steps, axis=1)[:, :-1]) @ np.diff(entropies[order]))


def _exposure_distances(p: FloatArray, is_new: BoolArray) -> DoubleArray:
    """(deals,) total variation between the sides' shares of donors: so many releases show other donors than they would."""
    dealt, rows = torch.from_numpy(is_new).float(), torch.from_numpy(p)
    to_new, to_all = (dealt @ rows).double(), rows.sum(dim=0, dtype=torch.float64)
    n_new = dealt.sum(dim=1, keepdim=True).double()
    difference = to_new / n_new - (to_all - to_new) / (len(rows) - n_new)
    return difference.abs().sum(dim=1).numpy() / 2


def _usage_distances(p: FloatArray, drawn: IntArray, draws: int, rng: np.random.Generator) -> DoubleArray:
    """(draws + 1,) total variation between how often donors were drawn and what P(x'|x) requires; then of fresh draws."""
    words = uniform_words(rng, draws * len(p)).reshape(draws, len(p))
    every = np.concatenate([drawn[None], inverse_cdf(p, words)])
    expected = p.mean(axis=0, dtype=np.float64)
    shares = np.stack([np.bincount(donors, minlength=len(expected)) / len(p) for donors in every])
    return np.asarray(np.abs(shares - expected).sum(axis=1) / 2)


SENTENCES = {
    "feature_drift_at_most": "features separate new records from the audited ones with AUC {found:.3f}, chance gives {mean:.3f}",
    "entropy_drift_at_most": "new rows of P(x'|x) are {found:.3f} nats sharper or wider, chance gives {mean:.3f}",
    "exposure_drift_at_most": "{found:.1%} of the releases show other donors than in the audit, chance gives {mean:.1%}",
    "usage_drift_at_most": "{found:.1%} of the draws show other donors than P(x'|x) requires, chance gives {mean:.1%}",
}


def judge_drift(drifts: Sequence[Drift], thresholds: Thresholds) -> tuple[Check, ...]:
    """Failed where a figure exceeds chance by more than its limit, and is less likely than the significance they all share."""
    significance = thresholds.significance
    checks = []
    for drift in drifts:
        limit = getattr(thresholds, drift.name)
        likely = drift.p_value * len(drifts) > significance.value
        chance = "no more than chance" if likely else "more than chance"
        sentence = (
            f"{SENTENCES[drift.name].format(found=drift.found, mean=drift.null_mean)}: {chance} (p {drift.p_value:.2g}, over "
            f"{drift.units} {drift.unit}s); at most {limit.value:g} above chance allowed"
        )
        passed = likely or drift.excess <= limit.value
        both = Limit(limit.value, f"{limit.reason} {significance.reason}")
        checks.append(Check.fact(drift.name, both, "new records", value=drift.excess, passed=passed, sentence=sentence))
    return tuple(checks)
