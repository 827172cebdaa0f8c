"""The channel P(x'|x) over a finite pool of donors (PASS, ICML 2025, eq. 2)."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pass_core.channel.draws import inverse_cdf, keyed_words, uniform_words
from pass_core.data import Attribute, FloatArray, IntArray
from pass_core.errors import MethodError

# Rows are scored in padded blocks of one fixed size: the last bits of a float32 product depend on the matrix's shape,
# and a draw must not depend on the number of records beside it.
BLOCK_ROWS = 1024


class Channel(Protocol):
    """P(x'|x) over a pool of donors, however it was learnt."""

    @property
    def pool_size(self) -> int:
        """Number of donors."""

    def blocks(self, features: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
        """Yields (rows, P) with P (rows, pool), which the caller may change; memory does not grow with the records."""


class BlockChannel(ABC):
    """A channel that computes P from tensors, in blocks of `BLOCK_ROWS` records, the last ones followed by zeros."""

    donors: Tensor  # (pool, …) what it knows of each donor

    @property
    def pool_size(self) -> int:
        return len(self.donors)

    def blocks(self, features: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
        for start in range(0, len(features), BLOCK_ROWS):
            rows = slice(start, min(start + BLOCK_ROWS, len(features)))
            padded = np.zeros((BLOCK_ROWS, *features.shape[1:]), dtype=np.float32)
            padded[: rows.stop - rows.start] = features[rows]
            with torch.inference_mode():
                found = self.probabilities_at(rows, torch.from_numpy(padded).to(self.donors.device))
            yield rows, found[: rows.stop - rows.start].cpu().numpy()

    def probabilities_at(self, rows: slice, records: Tensor) -> Tensor:  # noqa: ARG002 (for channels that know more of them)
        """P (records, pool) of the records at these positions, and of the padding after them."""
        return self.probabilities(records)

    @abstractmethod
    def probabilities(self, records: Tensor) -> Tensor:
        """P (records, pool)."""


@dataclass(frozen=True)
class SubstitutionChannel(BlockChannel):
    """PASS's channel: encoder f in evaluation mode, one embedding g per donor, temperature τ."""

    encoder: nn.Module
    donors: Tensor  # (pool, dim)
    temperature: float

    @functools.cached_property
    def _scaled(self) -> Tensor:
        """(dim, pool) directions of the donors over τ; cached, since a lake calls `blocks` for a few records at a time."""
        return F.normalize(self.donors, dim=1).T / self.temperature

    def probabilities(self, records: Tensor) -> Tensor:
        scores = F.normalize(self.encoder.eval()(records), dim=1) @ self._scaled
        return torch.softmax(scores, dim=1, out=scores)  # in place: fresh memory costs more than the arithmetic


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Excluded donors: those of the same unit as the record, where a unit is a record or a person."""

    record_units: IntArray  # (n,)
    donor_units: IntArray  # (pool,)

    def subset(self, rows: IntArray) -> "Exclusion":
        """The exclusion of some of the records."""
        return Exclusion(self.record_units[rows], self.donor_units)


@dataclass(frozen=True)
class ExcludingChannel:
    """A channel in which some donors are excluded for some records."""

    channel: Channel
    exclusion: Exclusion  # of the records, in the order of the features given to `blocks`

    @property
    def pool_size(self) -> int:
        return self.channel.pool_size

    def blocks(self, features: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
        """The remaining donors' probabilities, scaled to sum to one; a record without any donor left is a MethodError."""
        for rows, allowed in self.channel.blocks(features):
            allowed[self.exclusion.record_units[rows, None] == self.exclusion.donor_units] = 0
            totals = allowed.sum(axis=1, keepdims=True)
            if (totals <= 0).any():
                found = f"expected a donor for every record, found {int((totals <= 0).sum())} record(s) without"
                raise MethodError(f"pool.forbid: {found}; raise pool.donors, or forbid less")
            np.divide(allowed, totals, out=allowed)
            yield rows, allowed


@runtime_checkable
class Selecting(Protocol):
    """A channel that depends on classes that records carry beside their features."""

    @property
    def carried(self) -> tuple[Attribute, ...]:
        """Attributes whose class every record has to carry at release."""

    def knowing(self, labels: Mapping[str, IntArray]) -> Channel:
        """The channel of records with these classes, in the order of the features given to `blocks`."""


def carried_attributes(channel: Channel | None) -> tuple[Attribute, ...]:
    """Attributes whose class every record has to carry at release; none for most channels."""
    return channel.carried if isinstance(channel, Selecting) else ()


def channel_of_records(channel: Channel, labels: Mapping[str, IntArray], exclusion: Exclusion | None) -> Channel:
    """The channel as these records are released: with the classes that they carry, without the donors excluded for them."""
    if isinstance(channel, Selecting):
        channel = channel.knowing(labels)
    return channel if exclusion is None else ExcludingChannel(channel, exclusion)


def exclusion_among(names: Sequence[str], donors: Sequence[str]) -> Exclusion:
    """Excludes donors that have the same name as the record."""
    number = {name: k for k, name in enumerate(dict.fromkeys(donors))}
    record_units = np.array([number.get(name, -1) for name in names], dtype=np.int64)  # -1: no donor has this name
    return Exclusion(record_units, np.array([number[name] for name in donors], dtype=np.int64))


def draw_donors(
    channel: Channel,
    features: FloatArray,
    record_ids: Sequence[str],
    *,
    key: bytes,
    scope: tuple[str, ...],
    finished: Callable[[int], None] = lambda _: None,
) -> IntArray:
    """The donor of every record: a keyed function of its id and the scope; `finished` is called with how many are drawn."""
    donors: IntArray = np.empty(len(features), dtype=np.int64)
    for rows, probabilities in channel.blocks(features):
        donors[rows] = inverse_cdf(probabilities, keyed_words(key, "draw", scope, record_ids[rows]))
        finished(rows.stop)
    return donors


def draw_substitutes(channel: Channel, features: FloatArray, donor_features: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Features of a freshly drawn donor for every record (experiments and attacks only: releases draw by key)."""
    donors = [inverse_cdf(p, uniform_words(rng, len(p))) for _, p in channel.blocks(features)]
    return donor_features[np.concatenate(donors)] if donors else features
