"""Records held out from training: how they are chosen, and the channel's figures on them after each epoch."""

from dataclasses import dataclass, replace

import numpy as np

from pass_core.channel.joint_law import channel_law, mutual_information
from pass_core.channel.substitution import Channel
from pass_core.data import Attribute, IntArray, Records, Rng, with_role
from pass_core.errors import DataError

MOST_RECORDS = 2048  # of those held out that are looked at: what an epoch's figures may cost
PERMUTATIONS = 4
TOTAL = "held_out_total"


def hold_out(blocks: IntArray, share: float, rng: Rng) -> IntArray:
    """Sorted positions of about `share` of the records, in whole blocks: dependent records stay on one side.

    Raises DataError when all records belong to one block.
    """
    if share == 0:
        return np.empty(0, dtype=np.int64)
    names, counts = np.unique(blocks, return_counts=True)
    if len(names) < 2:
        raise DataError(
            "expected training records of at least two blocks, found one, which cannot be split: set train.validation_share "
            "to 0 and train.share to 1"
        )
    chosen, room = [], share * len(blocks)
    for k in rng.permutation(len(names)):
        if counts[k] <= room:
            chosen.append(names[k])
            room -= counts[k]
    return np.flatnonzero(np.isin(blocks, chosen or [names[counts.argmin()]])).astype(np.int64)


def learnt_from(train: IntArray, blocks: IntArray, share: float, rng: Rng) -> IntArray:
    """Those of the training records (positions `train`, with their blocks) that a protector learns from: a share, in blocks."""
    return train if share == 1 else np.delete(train, hold_out(blocks, 1 - share, rng))


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Held-out records with true and permuted labels: the same in each epoch, so that only learning changes the figures."""

    records: Records
    attributes: tuple[Attribute, ...]

    @classmethod
    def choose(cls, records: Records, attributes: tuple[Attribute, ...], rng: Rng) -> "HeldOut":
        """At most `MOST_RECORDS` of them, at random."""
        chosen = records.subset(np.sort(rng.permutation(len(records))[:MOST_RECORDS]))
        labels = dict(chosen.labels)
        for k in range(PERMUTATIONS):
            order = rng.permutation(len(chosen))
            labels |= {_permuted(a, k).name: chosen.labels[a.name][order] for a in attributes}
        return cls(Records(chosen.features, labels), attributes)

    def figures(self, channel: Channel, useful_weight: float, general_weight: float) -> dict[str, float]:
        """Σ I(X';S) − λ Σ I(X';U) − μ I(X';X) (eq. 1) on these records, exact, and every one of its terms, in nats.

        Information on few records is biased upwards. `chance` is the same figure with permuted labels, and the total is computed
        from the differences.
        """
        permuted = tuple(_permuted(a, k) for a in self.attributes for k in range(PERMUTATIONS))
        law = channel_law(channel, self.records.features, self.records.labels, self.attributes + permuted)
        information = {a.name: mutual_information(law.joint[a.name]) for a in self.attributes}
        shuffled = {a.name: [law.joint[_permuted(a, k).name] for k in range(PERMUTATIONS)] for a in self.attributes}
        chance = {name: float(np.mean([mutual_information(joint) for joint in joints])) for name, joints in shuffled.items()}
        private = sum(information[a.name] - chance[a.name] for a in with_role(self.attributes, "private"))
        useful = sum(information[a.name] - chance[a.name] for a in with_role(self.attributes, "useful"))
        return {
            TOTAL: private - useful_weight * useful - general_weight * law.record_information,
            **{f"held_out_information_{name}": value for name, value in information.items()},
            **{f"held_out_chance_{name}": value for name, value in chance.items()},
            "held_out_general": law.record_information,
        }


def _permuted(attribute: Attribute, k: int) -> Attribute:
    return replace(attribute, name=f"{attribute.name}, permuted {k}")
