"""Whether a released record leads back to its original.

An attacker who holds originals and the protector asks of every original how likely it is to be replaced by what was released;
nobody does better. Where P(x'|x) is not known, the original nearest to the released record is taken.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pass_core.auditing.findings import Linkage, RepeatedDraws
from pass_core.auditing.record_bundles import find_bundles
from pass_core.auditing.subject import Part, Subject, Substitution
from pass_core.auditing.thresholds import Depth
from pass_core.channel.draws import inverse_cdf, uniform_words
from pass_core.data import DoubleArray, FloatArray, IntArray
from pass_core.statistics.intervals import Blocks, Estimate

SCORES_AT_ONCE = 2**22  # candidates times released records whose scores are held


@dataclass(frozen=True, slots=True)
class _Gallery:
    """Originals that the attacker holds."""

    rows: IntArray  # positions among the test records
    persons: IntArray
    blocks: Blocks

    @classmethod
    def drawn(cls, test: Part, at_most: int, rng: np.random.Generator) -> "_Gallery":
        rows: IntArray = np.sort(rng.permutation(len(test))[:at_most]).astype(np.int64)
        return cls(rows, test.persons[rows], Blocks.of(test.blocks[rows], np.zeros_like(rows)))

    def __len__(self) -> int:
        return len(self.rows)

    def parts(self) -> Iterator[IntArray]:
        """Places in the gallery, so many at a time that their scores fit."""
        at_once = max(1, SCORES_AT_ONCE // len(self))
        for start in range(0, len(self), at_once):
            yield np.arange(start, min(start + at_once, len(self)))

    def hits(self, scores: DoubleArray, own: IntArray) -> tuple[DoubleArray, DoubleArray]:
        """How often the best of all candidates is the record itself, and of its person; candidates that tie are tossed for.

        Args:
            scores: (released, gallery), the larger the likelier.
            own: (released,) the true candidates.
        """
        best = scores == scores.max(axis=1, keepdims=True)
        chosen = best / best.sum(axis=1, keepdims=True)
        person: DoubleArray = (chosen * (self.persons[own, None] == self.persons)).sum(axis=1)
        return chosen[np.arange(len(own)), own], person

    def share(self, hits: DoubleArray) -> Estimate:
        """Their mean, with an interval by blocks."""
        influence = self.blocks.centred(hits, np.zeros(len(hits), dtype=np.int64))
        return self.blocks.proportion(float(hits.mean()), self.blocks.spread(influence))

    @property
    def person_chance(self) -> float:
        """How often a candidate taken blindly is of the right person."""
        _, counts = np.unique(self.persons, return_counts=True)
        return float(((counts / len(self)) ** 2).sum())


def find_linkage(subject: Subject, depth: Depth, rng_for: Callable[..., np.random.Generator]) -> Linkage:
    """Originals found again by one release, by several, and what several releases of one person tell together."""
    gallery = _Gallery.drawn(subject.test, depth.gallery, rng_for("linkage", "gallery"))
    repeated: tuple[RepeatedDraws, ...] = ()
    if subject.substitution is None:
        releases = (subject.released_test, *subject.repeated_test)
        numbers = sorted({1, *(number for number in depth.draws if number <= len(releases))})
        found = [
            RepeatedDraws(n, *shares) for n, shares in zip(numbers, _by_nearest(subject, gallery, releases, numbers), strict=True)
        ]
        record, person = found[0].record, found[0].person
        repeated = tuple(found) if subject.repeated_test else ()
    else:
        p = _probabilities(subject.test, subject.substitution, gallery.rows)
        log_p = torch.from_numpy(p.T.copy()).log_().numpy()  # (pool, gallery); −∞ where a candidate cannot be
        ((record, person),) = _by_likelihood(gallery, log_p, subject.substitution.drawn[None, gallery.rows], (1,))
        repeated = _repeated_draws(gallery, p, log_p, depth.draws, rng_for("linkage", "draws"))
    return Linkage(
        gallery=len(gallery),
        reidentified=record,
        chance=1 / len(gallery),
        attack="nearest" if subject.substitution is None else "likelihood",
        person=person,
        person_chance=gallery.person_chance,
        bundles=find_bundles(subject, depth.bundles, rng_for),
        repeated_draws=repeated,
    )


def _probabilities(test: Part, substitution: Substitution, rows: IntArray) -> FloatArray:
    channel = substitution.channel("test", rows)
    return np.concatenate([p for _, p in channel.blocks(test.records.features[rows])])


def _repeated_draws(
    gallery: _Gallery, p: FloatArray, log_p: FloatArray, counts: Sequence[int], rng: np.random.Generator
) -> tuple[RepeatedDraws, ...]:
    numbers = sorted(set(counts))
    most = max(numbers, default=0)
    draws = inverse_cdf(p, uniform_words(rng, most * len(p)).reshape(most, len(p)))
    found = _by_likelihood(gallery, log_p, draws, numbers)
    return tuple(RepeatedDraws(number, *shares) for number, shares in zip(numbers, found, strict=True))


def _by_likelihood(
    gallery: _Gallery, log_p: FloatArray, draws: IntArray, numbers: Sequence[int]
) -> list[tuple[Estimate, Estimate]]:
    """After some of the draws (k, gallery): likelihoods multiply."""
    return _found_again(gallery, lambda draw, own: log_p[draws[draw, own]], len(draws), numbers)


def _by_nearest(
    subject: Subject, gallery: _Gallery, releases: Sequence[FloatArray], numbers: Sequence[int]
) -> list[tuple[Estimate, Estimate]]:
    """After some of the releases: squared distances add up, every feature in units of its spread over the gallery."""
    flat = subject.test.records.features[gallery.rows].reshape(len(gallery), -1).astype(np.float64)
    spread = flat.std(axis=0)
    centre, scale = flat.mean(axis=0), np.where(spread > 0, spread, 1.0)
    originals = (flat - centre) / scale
    lengths = (originals**2).sum(axis=1)

    def nearness(number: int, own: IntArray) -> DoubleArray:
        released = (releases[number][gallery.rows[own]].reshape(len(own), -1) - centre) / scale
        near: DoubleArray = 2 * released @ originals.T - lengths
        return near

    return _found_again(gallery, nearness, len(releases), numbers)


def _found_again(
    gallery: _Gallery, scores_of: Callable[[int, IntArray], np.ndarray], draws: int, numbers: Sequence[int]
) -> list[tuple[Estimate, Estimate]]:
    """Records and persons found again after the first `numbers` of the draws, whose scores (released, gallery) add up."""
    found = np.empty((len(numbers), 2, len(gallery)))
    for own in gallery.parts():
        scores = np.zeros((len(own), len(gallery)))
        for number in range(draws):
            scores += scores_of(number, own)
            if number + 1 in numbers:
                found[numbers.index(number + 1), :, own] = np.stack(gallery.hits(scores, own), axis=1)
    return [(gallery.share(record), gallery.share(person)) for record, person in found]
