"""What is audited: originals, what was released for them, and the means to ask for more releases."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pass_core.attacks.base import Adversary
from pass_core.data import Attribute, FloatArray, IntArray, Records
from pass_core.exact import ChannelLaw
from pass_core.substitution import Channel

Split = Literal["train", "test"]


@dataclass(frozen=True, slots=True)
class Part:
    """Records of a split, with what depends on what. Persons have the same numbers in both splits."""

    records: Records
    persons: IntArray  # (n,)
    blocks: IntArray  # (n,) records with one number depend on each other

    def __len__(self) -> int:
        return len(self.records)


@dataclass(frozen=True, slots=True)
class Substitution:
    """What is known of a release that was drawn from a pool of donors."""

    channel: Callable[[Split, IntArray], Channel]  # P(x'|x) for these rows of a split, as it was used for the release
    donor_features: FloatArray  # (pool, *shape)
    donor_persons: IntArray  # (pool,) numbers as of the records; a person who is in neither split has another number
    donor_rows: IntArray  # (pool,) the training record that a donor is, or -1
    train_law: ChannelLaw  # with the draws that attackers learn from
    drawn: IntArray  # (m,) donors released for the test records


@dataclass(frozen=True, slots=True)
class Subject:
    """Everything an audit needs to know."""

    attributes: tuple[Attribute, ...]
    train: Part
    test: Part
    released_test: FloatArray  # (m, *shape), row i released for test record i
    released_train: Callable[[int], FloatArray]  # draw number -> (n, *shape)
    substitution: Substitution | None  # None for methods without a pool, and for other people's releases
    learnt_from: IntArray | None = None  # rows of train that the protector learnt from; None: unknown
    own_adversaries: dict[str, Adversary] | None = None  # attribute -> the adversary that a protector was trained against
