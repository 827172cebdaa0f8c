"""Counts draws: pairs of hashes (record, payload), sorted by record, of many segments, compared one range of hashes at a time.

A draw of a record is known by its payload and by what it was drawn with (model, pool, key, recipe): the same three give the same
donor, so it counts once, however often it is published. Memory holds one range and does not grow with the ledger.
"""

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pass_core.channel.draws import WordArray, keyed_words
from pass_core.data import IntArray

PairArray = NDArray[np.uint64]  # (n, 2): record, payload; sorted by record
RANGE_ROWS = 2**22
UNKNOWN = 0  # the payload in segments of releases that counted records only; it equals any one payload


def ledger_pairs(key: bytes, dataset: str, records: WordArray, payloads: WordArray) -> PairArray:
    """The pairs of a partition, sorted: hashes of records as they are, digests of payloads under the ledger's key."""
    hashed = keyed_words(key, "payload", (dataset,), map(str, payloads.tolist()))
    pairs = np.stack([records, np.where(hashed == UNKNOWN, 1, hashed)], axis=1)
    return pairs[np.argsort(records, kind="stable")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Draws of the records in one range."""

    draws: list[IntArray]  # of each partition's records, once these are drawn
    fresh: list[NDArray[np.bool_]]  # of each partition's records: whether this draw of it is a new one
    first: list[NDArray[np.bool_]]  # of each partition's records: whether it was never drawn with this model, pool and key
    new: PairArray  # what the ledger does not hold yet


def count_draws(staged: Sequence[PairArray], segments: Mapping[str, Sequence[PairArray]], draw: str) -> Iterator[Counted]:
    """Counts the records of partitions that are about to be published under `draw`; `segments` are the ledger's, by draw."""
    kept = [(name, part) for name, parts in segments.items() for part in parts]
    rows = sum(map(len, staged)) + sum(len(part) for _, part in kept)
    number = max(1, -(-rows // RANGE_ROWS))
    cuts = [_cuts(part, number) for part in (*staged, *(part for _, part in kept))]
    for k in range(number):
        parts = [np.array(part[cut[k] : cut[k + 1]]) for part, cut in zip(staged, cuts, strict=False)]
        held: dict[str, list[PairArray]] = {}
        for (name, part), cut in zip(kept, cuts[len(staged) :], strict=True):
            held.setdefault(name, []).append(np.array(part[cut[k] : cut[k + 1]]))
        yield _count_range(parts, held, draw)


def _cuts(part: PairArray, number: int) -> list[int]:
    """Where the ranges of hashes begin; by bisection, which reads a few rows of a large file."""
    edges = [2**64 * k // number for k in range(1, number)]
    return [0, *(bisect.bisect_left(part, edge, key=lambda row: int(row[0])) for edge in edges), len(part)]


def _count_range(staged: list[PairArray], held: Mapping[str, list[PairArray]], draw: str) -> Counted:
    ordered = np.sort(np.concatenate([part[:, 0] for part in staged]))
    records = ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]  # np.unique hashes, which is far slower here
    others: IntArray = np.zeros(len(records), dtype=np.int64)
    for name in set(held) - {draw}:
        others += _Payloads.of(records, held[name]).counts()
    known = _Payloads.of(records, held.get(draw, []))
    before = known.counts()
    places, new = [np.searchsorted(records, part[:, 0]) for part in staged], []
    for part, at in zip(staged, places, strict=True):
        unseen = ~known.hold(at, part[:, 1])
        known.add(at[unseen], part[unseen, 1])
        new.append(part[unseen])
    after, rows = known.counts(), np.concatenate(new)
    draws, fresh, first = others + after, after > before, before == 0  # once: a run may have thousands of partitions
    return Counted(
        draws=[draws[at] for at in places],
        fresh=[fresh[at] for at in places],
        first=[first[at] for at in places],
        new=rows[np.argsort(rows[:, 0], kind="stable")],
    )


class _Payloads:
    """The different payloads that each record was drawn with: the first of every record in one array, the second in the next."""

    def __init__(self, records: int) -> None:
        self._unknown = np.zeros(records, dtype=bool)
        self._layers: list[WordArray] = []

    @classmethod
    def of(cls, records: WordArray, parts: Sequence[PairArray]) -> "_Payloads":
        """Those of these records (sorted) in a ledger's segments."""
        made = cls(len(records))
        for part in parts:
            for at, payloads in _matches(records, part):
                made.add(at, payloads)
        return made

    def add(self, places: IntArray, payloads: WordArray) -> None:
        unknown = payloads == UNKNOWN
        self._unknown[places[unknown]] = True
        places, payloads, depth = places[~unknown], payloads[~unknown], 0
        while len(places):
            if depth == len(self._layers):
                self._layers.append(np.zeros(len(self._unknown), dtype=np.uint64))
            layer, depth = self._layers[depth], depth + 1
            empty = layer[places] == UNKNOWN
            layer[places[empty]] = payloads[empty]
            left = layer[places] != payloads
            places, payloads = places[left], payloads[left]

    def hold(self, places: IntArray, payloads: WordArray) -> NDArray[np.bool_]:
        found = np.zeros(len(places), dtype=bool)
        for layer in self._layers:
            found |= layer[places] == payloads
        return found

    def counts(self) -> IntArray:
        total: IntArray = np.zeros(len(self._unknown), dtype=np.int64)
        for layer in self._layers:
            total += layer != UNKNOWN
        return np.maximum(total, self._unknown)


def _matches(records: WordArray, part: PairArray) -> Iterator[tuple[IntArray, WordArray]]:
    """Places among `records` and payloads of the rows of `part` that are about them; the shorter is looked up in the longer."""
    own = np.ascontiguousarray(part[:, 0])
    if not len(records) or not len(own):
        return
    if len(own) <= len(records):
        at = np.minimum(np.searchsorted(records, own), len(records) - 1)
        hit = records[at] == own
        yield at[hit], part[hit, 1]
        return
    at, places = np.searchsorted(own, records), np.arange(len(records))
    while len(at):  # once more for records with several payloads
        inside = at < len(own)
        at, places = at[inside], places[inside]
        hit = own[at] == records[places]
        at, places = at[hit], places[hit]
        yield places, part[at, 1]
        at = at + 1
