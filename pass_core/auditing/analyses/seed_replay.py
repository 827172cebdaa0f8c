"""Whether the draws of a release can be repeated without the key, which would undo every random choice.

It tries the seeds that people pick: as this project derives an experiment's key from a seed, and as code does that seeds numpy's
generator and draws record by record.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pass_core.auditing.analyses.base import Analysis
from pass_core.auditing.findings import Check
from pass_core.auditing.section import Block, Demand
from pass_core.auditing.thresholds import Thresholds
from pass_core.channel.draws import WordArray, experiment_key, inverse_cdf, keyed_words, uniform_words
from pass_core.data import FloatArray, IntArray

SEEDS = 4096  # from 0 on
RECORDS = 64
FIRST_RECORDS = 4  # are tried with every seed, the others only with seeds that these agree with
LARGEST_PROBABILITY = 0.9  # a record that goes to one donor nearly surely agrees with any seed
FALSE_ALARM = 1e-9  # of agreeing by accident, over all that is tried

Guess = Callable[[int, IntArray], WordArray]  # (seed, places) -> words of these records


@dataclass(frozen=True, slots=True)
class Replay:
    """Whether the draws of a release can be repeated without the key."""

    records: int  # whose draws were tried
    seeds: int  # that were tried
    replayed: bool
    claimed_secret: bool  # the release declares its key secret


def find_replay(
    p: FloatArray,
    record_ids: Sequence[str],
    donors: IntArray,
    scopes: Sequence[tuple[str, ...]],
    *,
    claimed_secret: bool,
    more_seeds: Iterable[int] = (),
) -> Replay:
    """Tries seeds 0 to 4095 and `more_seeds`, which are not negative; no records where agreement would mean nothing.

    Args:
        p: (n, pool) rows P(.|x) of the first records that were drawn, in that order and bit for bit as used.
        donors: (n,) that were released for them.
        scopes: what keyed draws may have been bound to, as `tasks.steps.substitute` does: data set, model digest, rule.
    """
    seeds = sorted({*range(SEEDS), *more_seeds})
    guesses = [*(_keyed(scope, record_ids) for scope in scopes), _numpy]
    largest = p.max(axis=1) / p.sum(axis=1)
    order = np.argsort(largest, kind="stable")[:RECORDS]  # the least certain draws first
    places = order[largest[order] < LARGEST_PROBABILITY]
    rows = p[places].astype(np.float64)
    chances = rows[np.arange(len(places)), donors[places]] / rows.sum(axis=1)
    # −ln of the probability that a wrong seed draws these very donors
    surprise = float(-np.log(np.maximum(chances, np.finfo(np.float64).tiny)).sum())
    if surprise < math.log(len(seeds) * len(guesses) / FALSE_ALARM):
        return Replay(records=0, seeds=len(seeds), replayed=False, claimed_secret=claimed_secret)
    replayed = any(_agrees(guess, seeds, p, donors, places) for guess in guesses)
    return Replay(records=len(places), seeds=len(seeds), replayed=replayed, claimed_secret=claimed_secret)


def _agrees(guess: Guess, seeds: Sequence[int], p: FloatArray, donors: IntArray, places: IntArray) -> bool:
    """Whether one of the seeds draws the released donors."""
    left = seeds
    for tried in (places[:FIRST_RECORDS], places):
        words = np.stack([guess(seed, tried) for seed in left])  # (seeds, records)
        same = (inverse_cdf(p[tried], words) == donors[tried]).all(axis=1)
        left = [seed for seed, agrees in zip(left, same.tolist(), strict=True) if agrees]
        if not left:
            return False
    return True


def _keyed(scope: tuple[str, ...], record_ids: Sequence[str]) -> Guess:
    return lambda seed, places: keyed_words(experiment_key(seed), "draw", scope, [record_ids[place] for place in places])


def _numpy(seed: int, places: IntArray) -> WordArray:
    """`choice(pool, p=row)` and `random()` use the same upper bits of a word a record as `uniform_words`."""
    return uniform_words(np.random.default_rng(seed), int(places.max()) + 1)[places]


def _checks(replay: Replay, thresholds: Thresholds) -> Iterator[Check]:
    if not replay.records:
        sentence = "so few draws are left to chance that trying seeds shows nothing"
    elif not replay.replayed:
        sentence = f"none of {replay.seeds} guessable seeds reproduces the draws"
    else:
        sentence = "the draws can be repeated from a guessable seed"
        sentence += "" if replay.claimed_secret else ", as the release declares"
    limit, passed = thresholds.replayed_seeds_at_most, not (replay.replayed and replay.claimed_secret)
    yield Check.fact("replayed_seeds_at_most", limit, "draws", value=float(replay.replayed), passed=passed, sentence=sentence)


def _section(replay: Replay | None) -> Iterator[Block]:
    if replay is None:
        yield "Not analysed: this needs the replacement probabilities and the draws."
    elif replay.replayed and replay.claimed_secret:
        yield "The draws can be repeated from a guessable seed, although the release declares its key secret."
    elif replay.replayed:
        yield "The draws can be repeated from a guessable seed, as the release declares: an experiment, not for publication."
    elif not replay.records:
        yield "Not decided: so few draws are left to chance that agreement with a seed would mean nothing."
    else:
        yield f"None of the {replay.seeds} seeds that people commonly pick reproduces the draws of {replay.records} records."


ANALYSIS = Analysis(
    key="replay",
    rank=50,
    title="Repeating the draws",
    finding=Replay,
    find=lambda _: None,  # only the caller knows how the release was drawn: see `find_replay`
    checks=_checks,
    section=_section,
    demands={"replayed_seeds_at_most": Demand("The draws cannot be repeated", "at most {} guessable seeds")},
)
