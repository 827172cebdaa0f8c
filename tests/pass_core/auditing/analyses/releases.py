"""Records of persons with a useful class, and releases of them: a private one, and leaks that are planted on purpose."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pass_core.auditing.exact_attacker import Audited
from pass_core.auditing.recipient import Recipient
from pass_core.auditing.subject import MadeRelease, Part, make_subject
from pass_core.auditing.thresholds import Depth
from pass_core.data import Attribute, FloatArray, IntArray, Records
from pass_core.randomness import stream

SECRET, DIGIT = Attribute("s", ("a", "b"), "private"), Attribute("u", tuple("0123"), "useful")


@dataclass(frozen=True, kw_only=True)
class World:
    """How records are made: features are the useful class, the person, and noise."""

    records: int = 2000  # of each split
    persons: int = 200  # of each split; as many as records: everybody has one
    features: int = 8
    enrolled: bool = False  # whether the test persons are those of training
    skew: float = 0.0  # how much the useful class depends on the secret
    digits: int | None = None  # decimals that values are rounded to

    def part(self, seed: int, split: str) -> Part:
        rng, n = stream(seed, "world", split), self.records
        persons = np.arange(n) // max(1, n // self.persons)
        who = stream(seed, "persons", "train" if self.enrolled else split)
        secret = who.permutation(np.arange(persons.max() + 1) % 2)[persons]
        likings = who.normal(size=(persons.max() + 1, self.features))
        useful = np.where(rng.random(n) < self.skew, secret, rng.integers(0, 4, n))
        features = likings[persons] + rng.normal(size=(n, self.features))
        features[:, 0] = 3 * useful + 0.2 * rng.normal(size=n)
        features = features if self.digits is None else features.round(self.digits)
        numbers = persons + (0 if self.enrolled or split == "train" else persons.max() + 1)
        blocks = np.arange(n) + (0 if split == "train" else n)
        return Part(Records(features.astype(np.float32), {"s": secret, "u": useful}), numbers, blocks)


Release = Callable[[Part, FloatArray, np.random.Generator], FloatArray]  # a split, donors of the same classes -> what is released


def audited(
    world: World, seed: int, leak: Release | None = None, *, times: int = 1, recipient: Recipient | None = None
) -> Audited:
    """A release by random donors of the same useful class, who are nobody's in the data; or what a leak makes of it."""
    train, test = world.part(seed, "train"), world.part(seed, "test")
    donors = World(records=1000, persons=1000, features=world.features, digits=world.digits).part(seed + 1000, "train").records

    def released(part: Part, draw: int, split: str) -> FloatArray:
        rng = stream(seed, "release", split, str(draw))
        useful = part.records.labels["u"]
        chosen = np.empty(len(part), dtype=np.int64)
        for label in range(4):
            inside = useful == label
            chosen[inside] = rng.choice(np.flatnonzero(donors.labels["u"] == label), int(inside.sum()))
        made = donors.features[chosen]
        return made if leak is None else leak(part, made, rng)

    release = MadeRelease(tuple(released(test, k, "test") for k in range(times)), lambda draw: released(train, draw, "train"))
    subject = make_subject(attributes=(SECRET, DIGIT), train=train, test=test, release=release, recipient=recipient)
    return Audited(subject=subject, depth=Depth(), rng_for=lambda *labels: stream(seed, "audit", *labels))


def verbatim(share: float, noise: float = 0.0) -> Release:
    """A share of the records is released as it is, or with a little noise."""

    def leak(part: Part, made: FloatArray, rng: np.random.Generator) -> FloatArray:
        copied = rng.random(len(part)) < share
        originals = (
            part.records.features + (noise * rng.normal(size=made.shape)).astype(np.float32) if noise else part.records.features
        )
        return np.where(copied[:, None], originals, made)

    return leak


def nearest_donor(donors: FloatArray) -> Release:
    """The donor who is most similar: what a method that keeps general features does at its best."""

    def leak(part: Part, made: FloatArray, rng: np.random.Generator) -> FloatArray:
        features = part.records.features
        return donors[((features[:, None] - donors[None]) ** 2).sum(axis=2).argmin(axis=1)]

    return leak


def split_secret(part: Part, made: FloatArray, rng: np.random.Generator) -> FloatArray:
    """A random bit in each release; of a person's two consecutive releases, the sum of the bits is the secret."""
    bits: IntArray = rng.integers(0, 2, len(part))
    bits[1::2] = bits[::2] ^ part.records.labels["s"][1::2]
    shown = made.copy()
    shown[:, 1] = 2.0 * bits - 1 + 0.3 * rng.normal(size=len(part))
    return shown
