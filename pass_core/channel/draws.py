"""Keyed draws: the donor of a record is a function of a secret key, not of a random state.

A retry, another order or another number of workers gives the same donor, and no run draws a record a second time,
which would let an attacker average. Without the key, a draw cannot be replayed.
"""

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from pass_core.data import DoubleArray, IntArray
from pass_core.errors import ConfigError
from pass_core.randomness import framed

KEY_BYTES = 32
# Thresholds are integers of 53 bits: the largest range in which every integer is a float64, so scaling is exact.
THRESHOLD_BITS = 53
# Cumulative sums of this many cells of P at a time: they stay in the cache, and their memory is reused.
_CELLS_AT_ONCE = 2**19

WordArray = NDArray[np.uint64]


def experiment_key(seed: int) -> bytes:
    """The key of a reproducible experiment. Anyone who knows the seed has it: never for release."""
    return hashlib.blake2b(str(seed).encode(), digest_size=KEY_BYTES, person=b"pass-experiment").digest()


def key_id(key: bytes) -> str:
    """A public name for a key: a hash that does not reveal it."""
    _check_key(key)
    return hashlib.blake2b(key, digest_size=8, person=b"pass-key-id").hexdigest()


def _check_key(key: bytes) -> None:
    if len(key) != KEY_BYTES:
        raise ConfigError(
            f"draw key: expected {KEY_BYTES} bytes, found {len(key)}; make one with `secrets.token_bytes({KEY_BYTES})`"
        )


def keyed_words(key: bytes, purpose: str, scope: tuple[str, ...], record_ids: Iterable[str]) -> WordArray:
    """One 64-bit word per record id: PRF(key, purpose | scope | record id), keyed BLAKE2b."""
    _check_key(key)
    base = hashlib.blake2b(framed(purpose, *scope), key=key, digest_size=8, person=b"pass-draws")
    digests = []
    for record_id in record_ids:
        state = base.copy()
        state.update(framed(record_id))
        digests.append(state.digest())
    return np.frombuffer(b"".join(digests), dtype=">u8").astype(np.uint64)


def inverse_cdf(probabilities: NDArray[np.floating], words: WordArray) -> IntArray:
    """Donor index per row: inverse CDF in float64 over integer thresholds; a zero probability is never chosen.

    Args:
        probabilities: (n, pool), rows of non-negative numbers; each row is normalised here.
        words: (n,), or (draws, n) for several draws of every row: uniform 64-bit words, of which the upper 53 bits are used.
    """
    import torch  # heavy, and the checks before a run use this module's keys alone

    picks = (words >> np.uint64(64 - THRESHOLD_BITS)).astype(np.float64)
    donors: IntArray = np.empty(words.shape, dtype=np.int64)
    at_once = max(1, _CELLS_AT_ONCE // probabilities.shape[1])
    for start in range(0, len(probabilities), at_once):
        rows = slice(start, start + at_once)
        # Torch adds a row from left to right as numpy does, but the rows on all threads.
        cumulative = torch.cumsum(torch.from_numpy(probabilities[rows]), dim=1, dtype=torch.float64).numpy()
        donors[..., rows] = _first_above(cumulative, picks[..., rows])
    return donors


def _first_above(cumulative: DoubleArray, picks: DoubleArray) -> IntArray:
    """The first donor of every row whose threshold is above the pick, by bisection: thresholds never decrease along a row."""
    n, pool = cumulative.shape
    total = cumulative[:, -1]
    if not (np.isfinite(total).all() and (total > 0).all()):
        raise ConfigError("P(x'|x): expected rows of finite numbers with a sum above 0, found others; train the model again")
    row = np.arange(n)
    low, high = np.zeros(picks.shape, dtype=np.int64), np.full(picks.shape, pool - 1, dtype=np.int64)
    # The tail after the last donor with mass equals the total exactly, so its threshold is the full range: equal
    # neighbouring thresholds mean zero mass, and the first threshold above the word is always a donor with mass.
    for _ in range((pool - 1).bit_length()):
        middle = (low + high) // 2
        above = np.floor(cumulative[row, middle] / total * 2.0**THRESHOLD_BITS) > picks
        low, high = np.where(above, low, middle + 1), np.where(above, middle, high)
    return low


def uniform_words(rng: np.random.Generator, n: int) -> WordArray:
    """Uniform words from an experiment's random stream: for an attacker's fresh draws, never for a release."""
    return rng.integers(0, 2**64, size=n, dtype=np.uint64)
