"""Channels given as tables, and subjects made of them: a test writes down P(x'|x) and knows what an audit must find."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from pass_core.audit.subject import Part, Split, Subject, Substitution
from pass_core.data import Attribute, FloatArray, IntArray, Records
from pass_core.draws import inverse_cdf, uniform_words
from pass_core.exact import channel_law
from pass_core.randomness import stream
from pass_core.substitution import Channel


@dataclass(frozen=True)
class TableChannel:
    """P(x'|x) looked up: the first feature of a record is its row in the table."""

    table: FloatArray  # (n, pool)
    rows_at_once: int = 100

    @property
    def pool_size(self) -> int:
        return self.table.shape[1]

    def blocks(self, features: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
        numbers = features.reshape(len(features), -1)[:, 0].astype(np.int64)
        for start in range(0, len(numbers), self.rows_at_once):
            rows = slice(start, min(start + self.rows_at_once, len(numbers)))
            yield rows, self.table[numbers[rows]]


def row_numbers(n: int) -> FloatArray:
    """(n, 1) features for a `TableChannel`."""
    return np.arange(n, dtype=np.float32)[:, None]


def part_of(labels: Mapping[str, IntArray], persons: IntArray, blocks: IntArray | None = None) -> Part:
    """Records that are their row numbers; every record is a block of its own unless said otherwise."""
    n = len(persons)
    return Part(Records(row_numbers(n), dict(labels)), persons, np.arange(n) if blocks is None else blocks)


def subject_of(
    attributes: tuple[Attribute, ...],
    parts: tuple[Part, Part],
    tables: tuple[FloatArray, FloatArray],
    donor_rows: IntArray | None = None,
    donor_persons: IntArray | None = None,
    learnt_from: IntArray | None = None,
    seed: int = 0,
) -> Subject:
    """Train and test, with P(.|x) of their records; donors are strangers unless said otherwise."""
    train, test = parts
    pool = tables[0].shape[1]
    channels = {"train": TableChannel(tables[0]), "test": TableChannel(tables[1])}

    def channel(split: Split, rows: IntArray) -> Channel:
        return channels[split]

    law = channel_law(channels["train"], train.records.features, train.records.labels, attributes, stream(seed, "law"), n_draws=1)
    drawn = inverse_cdf(tables[1], uniform_words(stream(seed, "drawn"), len(test)))
    donor_features = row_numbers(pool)
    substitution = Substitution(
        channel,
        donor_features,
        np.full(pool, -1) if donor_persons is None else donor_persons,
        np.full(pool, -1) if donor_rows is None else donor_rows,
        law,
        drawn,
        law.draws[0],
    )
    return Subject(
        attributes, train, test, donor_features[drawn], lambda _: donor_features[law.draws[0]], substitution, learnt_from
    )


def normalised(table: np.ndarray) -> FloatArray:
    """Rows that sum to one."""
    rows: FloatArray = (table / table.sum(axis=1, keepdims=True)).astype(np.float32)
    return rows
