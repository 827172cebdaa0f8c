"""The keyed choices of a release: donors, order and file names.

The experiment and production use the same code; a split of the experiment is a partition. Every choice is a function of the
secret key and of names, so that a retry, another order of the input or another number of workers changes nothing.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pass_core.channel.draws import WordArray, keyed_words
from pass_core.channel.pool import Forbidden
from pass_core.channel.substitution import Channel, Exclusion, draw_donors, exclusion_among
from pass_core.data import FloatArray, IntArray
from tasks.payloads.payload import Payloads
from tasks.running.step_io import RunKey
from tasks.storage.parquet import PERSON, RECORD_ID, FeatureTable


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedRelease:
    """The choices of one data set's release with one model under one key."""

    run: RunKey
    model: str  # digest
    forbid: Forbidden
    key: bytes = field(repr=False)

    def donors(
        self, channel: Channel, features: FloatArray, record_ids: Sequence[str], finished: Callable[[int], None] = lambda _: None
    ) -> IntArray:
        """The donor of every record; calls `finished` with the number of records that are done."""
        scope = draw_scope(self.run, self.model, self.forbid)
        return draw_donors(channel, features, record_ids, key=self.key, scope=scope, finished=finished)

    def order_words(self, partition: str, record_ids: Sequence[str]) -> WordArray:
        """A word per record; records are released in the order of these words, which only the key's holder can undo."""
        # Depends on the method and the rule, too: two releases in one order would be two draws of each record side by side.
        rule = () if self.forbid == "none" else (self.forbid,)
        scope = (self.run.dataset, str(self.run.method), self.model, partition, *rule)
        return keyed_words(self.key, "order", scope, record_ids)

    def version_order(self, words: WordArray, payloads: WordArray, draw: str) -> IntArray:
        """The order of one version of a partition; another set of records, payloads or `draw` is sorted in another way.

        In one order for all versions, each row would show two draws of the same record side by side.
        """
        content = np.stack([words, payloads], axis=1)[np.argsort(words, kind="stable")]
        scope = (draw, hashlib.sha256(content.astype("<u8").tobytes()).hexdigest())
        return np.argsort(keyed_words(self.key, "version's order", scope, map(str, words.tolist())), kind="stable")

    def file_names(self, parts: Sequence[str]) -> list[str]:
        """Names of Parquet files that say nothing about their content."""
        words = keyed_words(self.key, "file name", (self.run.dataset, self.model), parts)
        return [f"part-{word:016x}.parquet" for word in words.tolist()]

    def payload_words(self, partition: str, donor_ids: Sequence[str]) -> WordArray:
        """A word per donor and partition to name payload files by; only the key's holder can find the donor by it."""
        return keyed_words(self.key, "payload file", (self.run.dataset, self.model, partition), donor_ids)


def payload_words(payloads: Payloads) -> WordArray:
    """A digest of every payload, as a word: a record with another payload is drawn anew."""
    whole = (row.tobytes() for row in payloads) if isinstance(payloads, np.ndarray) else payloads
    digests = b"".join(hashlib.blake2b(one, digest_size=8).digest() for one in whole)
    return np.frombuffer(digests, dtype=">u8").astype(np.uint64)


def drawn_from(payloads: WordArray, selectors: Iterable[IntArray]) -> WordArray:
    """Digests of payloads together with what else decides which donors a record can get: its own units, its carried classes."""
    for values in selectors:  # each step is one-to-one in the digest, and in the value
        payloads = payloads * np.uint64(0x9E3779B97F4A7C15) ^ values.astype(np.uint64)
    return payloads


def draw_scope(run: RunKey, model: str, forbid: Forbidden) -> tuple[str, ...]:
    """What the draw of a record depends on beside the secret key and the record's id."""
    return (run.dataset, model, *(() if forbid == "none" else (forbid,)))


def exclusion_of(features: FeatureTable, rows: IntArray, pool: pa.Table, forbid: Forbidden) -> Exclusion | None:
    """The donors that a rule excludes for these records; None when it excludes none."""
    if forbid == "none":
        return None
    names = features.record_ids if forbid == "self" else features.persons
    return exclusion_among([names[row] for row in rows], donor_units(pool, forbid))


def donor_units(pool: pa.Table, forbid: Forbidden) -> list[str]:
    """The donors' names that a rule compares with the records': ids or persons."""
    return list(pool.column(RECORD_ID if forbid == "self" else PERSON).to_pylist())
