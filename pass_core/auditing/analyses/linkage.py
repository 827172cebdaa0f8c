"""Whether a released record can be traced to its original.

An attacker who holds originals and the protector computes for every original how likely the release replaces it; no attacker
does better. Where P(x'|x) is not known, the original nearest to the released record is taken.

Useful and general attributes are kept on purpose. Who is told them has fewer originals to choose from, such as the clips of one
speaker and digit. So much was declared; judged is how much more often a release is traced. How often the record is found when
only the originals of its own kept classes are searched is shown beside it.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pass_core.auditing.analyses._record_bundles import Bundles, bundles_part, find_bundles
from pass_core.auditing.analyses.base import Analysis
from pass_core.auditing.findings import Check, with_interval
from pass_core.auditing.section import Block, Card, Curve, Demand, Part, Series
from pass_core.auditing.subject import KEPT, Subject
from pass_core.auditing.thresholds import Depth, Thresholds
from pass_core.channel.draws import inverse_cdf, uniform_words
from pass_core.data import DoubleArray, FloatArray, IntArray, combinations
from pass_core.statistics.intervals import Blocks, Estimate

SCORES_AT_ONCE = 2**22  # candidates times released records whose scores are held

Scores = Callable[[int, IntArray], np.ndarray]  # (draw, places in the gallery) -> (released, gallery), the larger the likelier


@dataclass(frozen=True, slots=True)
class RepeatedDraws:
    """One record released several times: how often it is found among originals."""

    draws: int
    record: Estimate
    person: Estimate
    alike: Estimate | None  # the record among originals of the same kept classes; None where none has such originals beside it


@dataclass(frozen=True, slots=True, kw_only=True)
class Linkage:
    """Whether releases can be linked to originals, to each other through a person, or to themselves."""

    gallery: int  # originals among which a record is sought
    reidentified: Estimate  # by one release, in that gallery
    chance: float
    declared: float  # by chance, for whoever is told all useful and general classes
    alike: Estimate | None  # by one release, among the originals of the gallery that have the same useful and general classes
    alike_records: int  # originals that are not the only one of their kept classes: only these count in `alike`
    alike_chance: float
    attack: str  # "likelihood" where P(x'|x) is known, "nearest" neighbour in feature space otherwise
    person: Estimate  # the person of the best candidate is right
    person_chance: float
    bundles: tuple[Bundles, ...]
    judged_records: int  # of one person: the bundle that the recipient is assumed to hold
    judged_draws: int  # of one record
    repeated_draws: tuple[RepeatedDraws, ...]  # empty where records were released once and P(x'|x) is unknown


@dataclass(frozen=True)
class _Gallery:
    """Originals that the attacker holds."""

    rows: IntArray  # positions among the test records
    persons: IntArray
    kept: IntArray  # combination of the classes that the release is declared to keep
    blocks: IntArray

    @functools.cached_property
    def alike(self) -> IntArray:
        """(gallery,) how many originals have the kept classes of this one."""
        return np.asarray(np.bincount(self.kept)[self.kept])

    def __len__(self) -> int:
        return len(self.rows)

    def hits(self, scores: DoubleArray, own: IntArray) -> tuple[DoubleArray, DoubleArray, DoubleArray]:
        """How often the best candidate is the record itself (`own`), and is of its person; and how often the best of its kept
        classes is the record itself."""
        chosen, alike = _best(scores), _best(np.where(self.kept[own, None] == self.kept, scores, -np.inf))
        person: DoubleArray = (chosen * (self.persons[own, None] == self.persons)).sum(axis=1)
        return chosen[np.arange(len(own)), own], person, alike[np.arange(len(own)), own]

    def found(self, draws: int, record: DoubleArray, person: DoubleArray, alike: DoubleArray) -> "RepeatedDraws":
        """The shares of these hits; a record that is alone in its kept classes cannot be mistaken there, and does not count."""
        everything, several = np.arange(len(self)), np.flatnonzero(self.alike > 1)
        within = self._share(alike, several) if len(several) else None
        return RepeatedDraws(draws, self._share(record, everything), self._share(person, everything), within)

    def _share(self, hits: DoubleArray, of: IntArray) -> Estimate:
        blocks, one = Blocks.of(self.blocks[of], np.zeros_like(of)), np.zeros_like(of)
        return blocks.proportion(float(hits[of].mean()), blocks.spread(blocks.centred(hits[of], one)))


def _best(scores: DoubleArray) -> DoubleArray:
    """Which candidates have the best score of their row; ties share it."""
    best = scores == scores.max(axis=1, keepdims=True)
    return np.asarray(best / best.sum(axis=1, keepdims=True))


def find_linkage(subject: Subject, depth: Depth, rng_for: Callable[..., np.random.Generator]) -> Linkage:
    """Originals found by one release and by several; and what several releases of one person reveal together."""
    test = subject.test
    rows: IntArray = np.sort(rng_for("linkage", "gallery").permutation(len(test))[: depth.gallery])
    gallery = _Gallery(rows, test.persons[rows], combinations([subject.given(roles=KEPT)[1][rows]]), test.blocks[rows])
    several = gallery.alike > 1
    shares = np.unique(gallery.persons, return_counts=True)[1] / len(gallery)
    if subject.substitution is None:
        releases = (subject.released_test, *subject.repeated_test)
        numbers = sorted({1, *(number for number in depth.draws if number <= len(releases))})
        repeated = _found_again(gallery, _nearness(subject, gallery, releases), len(releases), numbers)
        once, repeated = repeated[0], repeated if subject.repeated_test else []
    else:
        channel, drawn = subject.substitution.channel("test", rows), subject.substitution.drawn[rows]
        p = np.concatenate([block for _, block in channel.blocks(test.records.features[rows])])
        log_p = torch.from_numpy(p.T.copy()).log_().numpy()  # (pool, gallery); −∞ where a candidate cannot be
        (once,) = _found_again(gallery, lambda _, own: log_p[drawn[own]], 1, (1,))
        numbers = sorted({*depth.draws, subject.recipient.draws_per_record})
        most = numbers[-1]
        draws = inverse_cdf(p, uniform_words(rng_for("linkage", "draws"), most * len(p)).reshape(most, len(p)))
        repeated = _found_again(gallery, lambda draw, own: log_p[draws[draw, own]], most, numbers)  # likelihoods multiply
    return Linkage(
        gallery=len(gallery),
        reidentified=once.record,
        chance=1 / len(gallery),
        declared=float((1 / gallery.alike).mean()),
        alike=once.alike,
        alike_records=int(several.sum()),
        alike_chance=float((1 / gallery.alike[several]).mean()) if several.any() else 1.0,
        attack="nearest" if subject.substitution is None else "likelihood",
        person=once.person,
        person_chance=float((shares**2).sum()),
        bundles=find_bundles(subject, (*depth.bundles, subject.recipient.records_per_person), rng_for),
        judged_records=subject.recipient.records_per_person,
        judged_draws=subject.recipient.draws_per_record,
        repeated_draws=tuple(repeated),
    )


def _nearness(subject: Subject, gallery: _Gallery, releases: Sequence[FloatArray]) -> Scores:
    """Negative squared distances, up to a constant; every feature in units of its spread over the gallery."""
    flat = subject.test.records.features[gallery.rows].reshape(len(gallery), -1).astype(np.float64)
    spread = flat.std(axis=0)
    centre, scale = flat.mean(axis=0), np.where(spread > 0, spread, 1.0)
    originals = (flat - centre) / scale
    lengths = (originals**2).sum(axis=1)

    def nearness(number: int, own: IntArray) -> DoubleArray:
        released = (releases[number][gallery.rows[own]].reshape(len(own), -1) - centre) / scale
        return np.asarray(2 * released @ originals.T - lengths)

    return nearness


def _found_again(gallery: _Gallery, scores_of: Scores, draws: int, numbers: Sequence[int]) -> list[RepeatedDraws]:
    """Records and persons found again after the first `numbers` of the draws, whose scores (released, gallery) add up."""
    found = np.empty((len(numbers), 3, len(gallery)))
    at_once = max(1, SCORES_AT_ONCE // len(gallery))  # so many that their scores fit
    for own in np.split(np.arange(len(gallery)), range(at_once, len(gallery), at_once)):
        scores = np.zeros((len(own), len(gallery)))
        for number in range(draws):
            scores += scores_of(number, own)
            if number + 1 in numbers:
                found[numbers.index(number + 1), :, own] = np.stack(gallery.hits(scores, own), axis=1)
    return [gallery.found(number, *hits) for number, hits in zip(numbers, found, strict=True)]


def _checks(linkage: Linkage, thresholds: Thresholds) -> Iterator[Check]:
    limit, found = thresholds.reidentified_at_most, linkage.reidentified
    several = [one.record for one in linkage.repeated_draws if one.draws == linkage.judged_draws]
    if linkage.judged_draws > 1 and several:
        found = several[0]
    if span := 1 - linkage.declared:
        above = Estimate(*(max(0.0, end - linkage.declared) / span for end in (found.value, found.low, found.high)))
        draws = "a release is" if linkage.judged_draws == 1 else f"{linkage.judged_draws} releases of a record are"
        chance = f"chance {linkage.chance:.2%}, with the useful and general classes {linkage.declared:.2%}"
        words = (
            f"{draws} traced to the original among {linkage.gallery} in {with_interval(found)} of cases ({chance}), "
            f"at most {limit.value:.1%} of the way from the latter to certainty allowed"
        )
        yield Check.at_most("reidentified_at_most", limit, "linkage", above, words, required=False, units=linkage.gallery)
    limit = thresholds.private_nag_at_most
    for bundle in linkage.bundles:
        held = [one for one in bundle.sizes if one.records <= linkage.judged_records]
        if not held or held[-1].records < 2:
            continue
        one, span = held[-1], 1 - bundle.guess
        ends = (one.accuracy.value, one.accuracy.low, one.accuracy.high)
        share = Estimate(*(max(0.0, end - bundle.guess) / span if span else 0.0 for end in ends))
        words = (
            f"private attribute {bundle.attribute} of a person, from {one.records} released records of that person: right in "
            f"{with_interval(one.accuracy)} of cases, guessing {bundle.guess:.1%}; at most {limit.value:.1%} of the way from "
            "guessing to certainty allowed"
        )
        yield Check.at_most(
            "private_nag_at_most", limit, f"{bundle.attribute} from {one.records} records of a person", share, words,
            attribute=bundle.attribute, required=False, units=bundle.persons,
        )  # fmt: skip


def _highlights(linkage: Linkage) -> Iterator[Card]:
    meaning = f"of single releases, among {linkage.gallery} originals; by chance {linkage.chance:.2%}"
    yield Card("Traced to its original", f"{linkage.reidentified.value:.1%}", meaning)
    bundles = [(bundle, bundle.sizes[-1]) for bundle in linkage.bundles if bundle.sizes]
    if bundles:
        bundle, last = max(bundles, key=lambda pair: pair[1].accuracy.value - pair[0].guess)
        meaning = f"guessed right from {last.records} records of one person; blind guessing {bundle.guess:.1%}"
        yield Card(f"Per person: {bundle.attribute}", f"{last.accuracy.value:.1%}", meaning)


def _declared(linkage: Linkage) -> str:
    """What of this the operator declared, and what is judged."""
    if linkage.alike is None:
        return (
            "The useful and general attributes, which the release keeps on purpose, together name every original. Tracing is "
            "therefore declared, and not judged."
        )
    return (
        "Useful and general attributes are kept on purpose. Whoever is told them finds the original of "
        f"{linkage.declared:.1%} of the releases by chance; the verdict is about what is found beyond that. Of the "
        f"{linkage.alike_records} originals that share them with others, this attacker finds "
        f"{with_interval(linkage.alike)} from the releases, by chance {linkage.alike_chance:.1%}: shown, and not judged."
    )


def _section(linkage: Linkage | None) -> Iterator[Block]:
    if linkage is None:
        yield "Not analysed on these data."
        return
    how = "computes for each how likely the release replaces it" if linkage.attack == "likelihood" else "picks the nearest one"
    yield (
        "Hiding an attribute does not hide that a record was part of the data. Here an attacker holds "
        f"{linkage.gallery} originals, sees one release and {how}. Of 100 releases, the attacker traces about "
        f"{100 * linkage.reidentified.value:.0f} to their very record and {100 * linkage.person.value:.0f} to the right person."
    )
    yield (
        Card.of("The very record is found", linkage.reidentified, f"by chance {linkage.chance:.2%}"),
        Card.of("The person is right", linkage.person, f"by chance {linkage.person_chance:.2%}"),
        *(
            [Card.of("The record, among those alike", linkage.alike, f"by chance {linkage.alike_chance:.2%}")]
            if linkage.alike
            else ()
        ),
    )
    yield _declared(linkage)
    yield bundles_part(linkage.bundles)
    draws = linkage.repeated_draws
    if not draws:
        yield "Several draws of one record were not analysed: this needs the replacement probabilities."
        return
    numbers = [one.draws for one in draws]
    records = Series("record", numbers, [one.record for one in draws], linkage.chance)
    persons = Series("person", numbers, [one.person for one in draws], linkage.person_chance, style="general")
    figure = Curve(
        name="repeated_draws",
        title="Found among originals",
        unit="draws of the same record",
        series=(records, persons),
        label=f"Found among {linkage.gallery} originals",
        caption=f"How often the record, or its person, is found among {linkage.gallery} originals; dashed: chance.",
    )
    words = (
        "If the same record were released again and again, its donors would reveal it. This is why each record is drawn once, "
        "and the draw is remembered."
    )
    yield Part("Several draws of one record", (words, (figure,)))


ANALYSIS = Analysis(
    key="linkage",
    rank=10,
    title="Linking releases",
    finding=Linkage,
    find=lambda audited: find_linkage(audited.subject, audited.depth, audited.rng_for),
    checks=_checks,
    highlights=_highlights,
    section=_section,
    demands={
        "reidentified_at_most": Demand(
            "Releases are not traced to their originals", "at most {:.1%} of the way from chance to certainty"
        )
    },
)
