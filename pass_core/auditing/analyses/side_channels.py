"""What a release reveals beside the meaning of its payloads: row order, keys, form of text, low bits, files, missing rows."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pass_core.auditing.analyses._side_channel_attacker import Attacker, learn
from pass_core.auditing.analyses.base import Analysis
from pass_core.auditing.exact_attacker import Audited
from pass_core.auditing.findings import Evidence
from pass_core.auditing.section import Block, Table
from pass_core.auditing.subject import Received, Subject
from pass_core.data import Attribute, DoubleArray, with_role
from pass_core.statistics.nag import label_entropy
from pass_core.statistics.score_test import baseline_shares, hedged, score_test

TITLE = "Beside the payload: order, keys, form and files"
PAYLOAD = "payload"  # the group of the payload's form and of what it reveals
LOCATED = 0.01  # a probability by chance below which the place of a leak is sought
MOST_TRIED = 40  # numbers of a group that are tried one by one
MUCH = 0.5  # of the gain: a group that holds so much is named


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A group of numbers that a recipient receives."""

    group: str
    alone: float  # nats per record gained where all other groups are scrambled
    lost: float  # nats per record lost where this group is scrambled


@dataclass(frozen=True, slots=True, kw_only=True)
class SideChannel:
    """A private attribute, guessed from all that is received."""

    evidence: Evidence
    places: tuple[Place, ...]  # where the gain comes from, largest first; empty where there is none
    number: str | None  # the one that matters most


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Whether the records that a release leaves out are those of a class."""

    evidence: Evidence
    shares: tuple[float, ...]  # of every class of the attribute, how much is left out


@dataclass(frozen=True, slots=True, kw_only=True)
class SideChannels:
    """What a release reveals beside the meaning of its payloads."""

    numbers: int  # per record that were read
    groups: tuple[str, ...]
    attributes: tuple[SideChannel, ...]
    left_out: tuple[LeftOut, ...]
    missing_rows: int  # records without a released row
    extra_rows: int  # released rows without a record


def find_side_channels(audited: Audited) -> SideChannels | None:
    """Every private attribute; None where only payloads are known."""
    subject, received = audited.subject, audited.subject.received
    if received is None:
        return None
    groups = tuple(dict.fromkeys(name.split(":")[0] for name in received.names))
    found = [
        _attribute(audited, received, attribute)
        for attribute in with_role(subject.attributes, "private")
        if min(len(np.unique(subject.labels(split, attribute.name))) for split in ("train", "test")) > 1
    ]
    missing = 0 if received.left_out is None else int(sum(part.sum() for part in received.left_out))
    return SideChannels(
        numbers=len(received.names),
        groups=groups,
        attributes=tuple(found),
        left_out=tuple(_left_out(audited, received)),
        missing_rows=missing,
        extra_rows=received.extra_rows,
    )


def _attribute(audited: Audited, received: Received, attribute: Attribute) -> SideChannel:
    subject, labels = audited.subject, audited.subject.labels("test", attribute.name)
    attacker = learn(subject, received, attribute, audited.rng_for("side channels", attribute.name))
    view = _View(subject, received, attribute, attacker)
    scores = view.scores(received.test, scramble_payload=None)
    rng = audited.rng_for("chance side channels", attribute.name)
    test = score_test(scores, labels, subject.dealing(attribute), rng)
    places, number = view.places(rng) if test.p_value < LOCATED and test.gain > 0 else ((), None)
    about = f"{attribute.name} from order, keys, form of text, low bits and files"
    if places:
        most = max(max(place.alone, place.lost) for place in places)
        named = [place.group for place in places if max(place.alone, place.lost) >= MUCH * most]
        about += f" (found in: {' and '.join(named)}; above all {number})"
    evidence = Evidence(
        attribute=attribute.name, about=about, population=subject.population, test=test, entropy=label_entropy(labels)
    )
    return SideChannel(evidence=evidence, places=places, number=number)


@dataclass(frozen=True, slots=True)
class _View:
    """An attacker on the test records, of which some numbers may be scrambled."""

    subject: Subject
    received: Received
    attribute: Attribute
    attacker: Attacker

    def scores(self, numbers: DoubleArray, scramble_payload: np.random.Generator | None) -> DoubleArray:
        payloads = self.received.payloads[1]
        if scramble_payload is not None:
            payloads = payloads[scramble_payload.permutation(len(payloads))]
        baseline = self.subject.baseline(self.attribute)
        return hedged(self.attacker.probabilities(numbers, payloads, baseline), baseline)

    def gain(self, scrambled: list[int], rng: np.random.Generator, *, payload: bool) -> float:
        """Nats per record above chance where these numbers, and the payload, are those of other records."""
        labels, numbers = self.subject.labels("test", self.attribute.name), self.received.test.copy()
        numbers[:, scrambled] = numbers[rng.permutation(len(numbers))][:, scrambled]
        scores = self.scores(numbers, rng if payload else None)
        shares = np.bincount(labels, minlength=scores.shape[1]) / len(labels)
        return float((scores[np.arange(len(labels)), labels] - scores @ shares).mean())

    def places(self, rng: np.random.Generator) -> tuple[tuple[Place, ...], str | None]:
        """Groups by what they hold, and the number that matters most in the first of them."""
        groups: dict[str, list[int]] = {PAYLOAD: []}
        for k, name in enumerate(self.received.names):
            groups.setdefault(name.split(":")[0], []).append(k)
        whole, every, found = self.gain([], rng, payload=False), range(len(self.received.names)), []
        for group, own in groups.items():
            others = sorted(set(every) - set(own))
            found.append(
                Place(
                    group=group,
                    alone=self.gain(others, rng, payload=group != PAYLOAD),
                    lost=whole - self.gain(own, rng, payload=group == PAYLOAD),
                )
            )
        found.sort(key=lambda place: -max(place.alone, place.lost))
        labels = self.subject.labels("train", self.attribute.name)
        tried = sorted(groups[found[0].group], key=lambda k: -_separation(self.received.train[:, k], labels))[:MOST_TRIED]
        lost = {k: whole - self.gain([k], rng, payload=False) for k in tried}
        strongest = max(lost, key=lambda k: lost[k], default=None)
        return tuple(found), "the payload in some rows" if strongest is None else self.received.names[strongest]


def _separation(values: DoubleArray, labels: np.ndarray) -> float:
    """How far apart the classes' means are, in deviations of the values."""
    means = np.bincount(labels, weights=values) / np.maximum(np.bincount(labels), 1)
    return float(means[labels].std() / max(values.std(), 1e-12))


def _left_out(audited: Audited, received: Received) -> Iterator[LeftOut]:
    """Tests of an attacker who knows who is missing; what there is to reveal is the class of the missing ones."""
    if received.everyone is None or received.left_out is None:
        return
    train, test = received.left_out
    whole = dataclasses.replace(audited.subject, train=received.everyone[0], test=received.everyone[1])
    for attribute in whole.single("private"):
        labels = whole.labels("test", attribute.name)
        if not test.any() or len(np.unique(labels)) < 2:
            continue
        given = [2 * of + missing for of, missing in zip(whole.given(attribute), (train, test), strict=True)]
        learnt = baseline_shares(whole.labels("train", attribute.name), attribute.n_classes, *given)
        scores, rng = hedged(learnt, whole.baseline(attribute)), audited.rng_for("chance left out", attribute.name)
        counts = np.bincount(labels, minlength=attribute.n_classes)
        yield LeftOut(
            evidence=Evidence(
                attribute=attribute.name,
                about=f"{attribute.name} of the records that the release leaves out",
                population=whole.population,
                test=score_test(scores, labels, whole.dealing(attribute), rng),
                entropy=label_entropy(labels) * float(test.mean()),
            ),
            shares=tuple((np.bincount(labels, weights=test, minlength=len(counts)) / np.maximum(counts, 1)).tolist()),
        )


def _evidence(found: SideChannels) -> Iterator[Evidence]:
    yield from (one.evidence for one in found.attributes)
    yield from (one.evidence for one in found.left_out)


def _section(found: SideChannels | None) -> Iterator[Block]:
    if found is None:
        yield "Not analysed: only payloads are known to this audit, not the files that a recipient gets."
        return
    yield (
        f"One attacker reads everything that a recipient receives beside the meaning of payloads: {found.numbers} numbers per "
        f"record from {', '.join(found.groups)}. The attacker learns from the training records which of them, alone or together, "
        "depend on a private attribute. Shuffle rows, and use fresh random keys, before you publish."
    )
    rows = [
        (
            one.evidence.attribute,
            f"{one.evidence.test.gain / one.evidence.entropy:.2%}" if one.evidence.entropy else None,
            f"{one.evidence.test.p_value:.2g}",
            ", ".join(f"{place.group} ({max(place.alone, place.lost):.3f} nats)" for place in one.places[:3]) or "nowhere",
            one.number,
        )
        for one in found.attributes
    ]
    caption = "How much of a private attribute the attacker learns per record, and where it is found."
    yield Table(TITLE, caption, ("Attribute", "Revealed", "Probability by chance", "Found in", "Above all"), rows)
    if not found.missing_rows and not found.extra_rows:
        return
    yield (
        f"{found.missing_rows} records have no released row, and {found.extra_rows} released rows replace no record. The other "
        "figures on this page are about the records that were released."
    )
    missing = [
        (one.evidence.attribute, f"{min(one.shares):.2%} to {max(one.shares):.2%}", f"{one.evidence.test.p_value:.2g}")
        for one in found.left_out
    ]
    if missing:
        caption = "Whether records of some classes are left out more often than others."
        yield Table("Records left out", caption, ("Attribute", "Left out, by class", "Probability by chance"), missing)


ANALYSIS = Analysis(
    key="side_channels",
    rank=35,
    title=TITLE,
    finding=SideChannels,
    quick=False,
    find=find_side_channels,
    evidence=_evidence,
    section=_section,
)
