"""The channel P(x'|x) over a finite pool of donors (PASS, ICML 2025, eq. 2)."""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from pass_core.channel.draws import inverse_cdf, keyed_words, uniform_words
from pass_core.data import FloatArray, IntArray
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


def padded_blocks(features: FloatArray, device: torch.device) -> Iterator[tuple[slice, Tensor]]:
    """Yields (rows, block): `BLOCK_ROWS` records each, the last ones followed by zeros."""
    for start in range(0, len(features), BLOCK_ROWS):
        rows = slice(start, min(start + BLOCK_ROWS, len(features)))
        padded = np.zeros((BLOCK_ROWS, *features.shape[1:]), dtype=np.float32)
        padded[: rows.stop - rows.start] = features[rows]
        yield rows, torch.from_numpy(padded).to(device)


@dataclass(frozen=True)
class SubstitutionChannel:
    """PASS's channel: encoder f in evaluation mode, one embedding g per donor, temperature τ."""

    encoder: nn.Module
    donors: Tensor  # (pool, dim)
    temperature: float

    @property
    def pool_size(self) -> int:
        return len(self.donors)

    @functools.cached_property
    def _scaled(self) -> Tensor:
        """(dim, pool) directions of the donors over τ; cached, since a lake calls `blocks` for a few records at a time."""
        return F.normalize(self.donors, dim=1).T / self.temperature

    def blocks(self, features: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
        self.encoder.eval()
        for rows, block in padded_blocks(features, self.donors.device):
            with torch.inference_mode():
                scores = F.normalize(self.encoder(block), dim=1) @ self._scaled
                torch.softmax(scores, dim=1, out=scores)  # in place: fresh memory costs more than the arithmetic
            yield rows, scores[: rows.stop - rows.start].cpu().numpy()


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Excluded donors: those of the same unit as the record, where a unit is a record or a person."""

    record_units: IntArray  # (n,)
    donor_units: IntArray  # (pool,)

    def of(self, rows: slice | IntArray) -> NDArray[np.bool_]:
        """(rows, pool) True where a donor is excluded for a record."""
        return np.asarray(self.record_units[rows, None] == self.donor_units)

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
            allowed[self.exclusion.of(rows)] = 0
            totals = allowed.sum(axis=1, keepdims=True)
            if (totals <= 0).any():
                left = f"pool.forbid leaves {int((totals <= 0).sum())} record(s) without any donor"
                raise MethodError(f"{left}: raise pool.donors, or forbid less")
            np.divide(allowed, totals, out=allowed)
            yield rows, allowed


def exclusion_among(names: Sequence[str], donors: Sequence[str]) -> Exclusion:
    """Records and donors of one name may not meet."""
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
