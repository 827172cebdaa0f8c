"""Channels given as tables, and subjects made of them: a test writes down P(x'|x) and knows what an audit must find."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from pass_core.auditing.subject import DrawnRelease, Part, Split, Subject, make_subject
from pass_core.channel.draws import inverse_cdf, uniform_words
from pass_core.channel.joint_law import channel_law
from pass_core.channel.substitution import Channel
from pass_core.data import Attribute, FloatArray, IntArray, Records
from pass_core.randomness import stream


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
    channels = {"train": TableChannel(tables[0]), "test": TableChannel(tables[1])}

    def channel(split: Split, rows: IntArray) -> Channel:
        return channels[split]

    pool = tables[0].shape[1]
    return make_subject(
        attributes=attributes,
        train=train,
        test=test,
        release=DrawnRelease(
            channel=channel,
            donor_features=row_numbers(pool),
            drawn_test=inverse_cdf(tables[1], uniform_words(stream(seed, "drawn"), len(test))),
            donor_persons=np.full(pool, -1) if donor_persons is None else donor_persons,
            donor_rows=donor_rows,
            fresh_draws=1,
            rng=stream(seed, "law"),
        ),
        learnt_from=learnt_from,
        combine_private=False,
    )


def normalised(table: np.ndarray) -> FloatArray:
    """Rows that sum to one."""
    rows: FloatArray = (table / table.sum(axis=1, keepdims=True)).astype(np.float32)
    return rows


def readable(labels: IntArray, kinds: IntArray, rng: np.random.Generator) -> FloatArray:
    """Features of records with these classes (n, attributes): the kind, for a `TableChannel`, and noisy classes for attackers."""
    noise = rng.normal(0, 0.2, labels.shape)
    return np.concatenate([kinds[:, None], labels + noise], axis=1).astype(np.float32)


def part_of_kinds(
    attributes: tuple[Attribute, ...],
    labels: IntArray,
    kinds: IntArray,
    persons: IntArray,
    blocks: IntArray,
    rng: np.random.Generator,
) -> Part:
    """Readable records of these classes (n, attributes)."""
    named = {a.name: labels[:, k].astype(np.int64) for k, a in enumerate(attributes)}
    return Part(Records(readable(labels, kinds, rng), named), persons, blocks)


def subject_of_kinds(
    attributes: tuple[Attribute, ...],
    parts: tuple[Part, Part],
    table: FloatArray,
    donor_labels: IntArray,
    donor_kinds: IntArray,
    seed: int = 0,
) -> Subject:
    """Readable records whose donors are drawn by P(.|kind), with the combination of their private attributes."""
    channel = TableChannel(table, rows_at_once=1024)
    train, test = parts
    features, labels = test.records.features, test.records.labels
    return make_subject(
        attributes=attributes,
        train=train,
        test=test,
        release=DrawnRelease(
            channel=lambda _split, _rows: channel,
            donor_features=readable(donor_labels, donor_kinds, stream(seed, "donors")),
            drawn_test=channel_law(channel, features, labels, attributes, rng=stream(seed, "draws", "test"), n_draws=1).draws[0],
            donor_persons=np.full(len(donor_kinds), -1),
            fresh_draws=2,
            rng=stream(seed, "draws", "train"),
        ),
    )
