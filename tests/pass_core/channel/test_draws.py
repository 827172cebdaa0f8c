"""Keyed draws: known answers, exact distribution, nothing that depends on order or grouping."""

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pass_core.channel.draws import experiment_key, inverse_cdf, key_id, keyed_words, uniform_words
from pass_core.errors import ConfigError
from pass_core.randomness import stream

KEY = bytes(range(32))
# Computed apart from the code, with hashlib alone: keyed BLAKE2b-64 of the length-prefixed parts.
KNOWN_WORDS = ["7eb31eb9572e6001", "a519b9672a59d896", "91cec664b68ca934"]
KNOWN_KEY_ID = "ec346266e2bc665e"


def test_known_answers() -> None:
    """Pinned: a change here redraws every record ever released."""
    words = keyed_words(KEY, "draw", ("motion", "digest"), ["a", "b", ""])
    assert [f"{word:016x}" for word in words] == KNOWN_WORDS
    assert key_id(KEY) == KNOWN_KEY_ID
    rows = np.array([[0.0, 0.25, 0.0, 0.75], [0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]])
    assert inverse_cdf(rows, np.array([2**62 - 1, 2**63, 2**64 - 1], dtype=np.uint64)).tolist() == [1, 1, 2]
    assert inverse_cdf(rows, np.array([2**62, 2**63 - 1, 0], dtype=np.uint64)).tolist() == [3, 0, 2]


def test_words_depend_on_every_part_and_on_nothing_else() -> None:
    ids = ["r1", "r2", "r3"]
    words = keyed_words(KEY, "draw", ("d", "m"), ids)
    assert keyed_words(KEY, "draw", ("d", "m"), ids[::-1]).tolist() == words[::-1].tolist()
    others = [
        keyed_words(bytes(32), "draw", ("d", "m"), ids),
        keyed_words(KEY, "order", ("d", "m"), ids),
        keyed_words(KEY, "draw", ("dm", ""), ids),
        keyed_words(KEY, "draw", ("d", "n"), ids),
    ]
    for other in others:
        assert not set(other.tolist()) & set(words.tolist())


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_wrong_key_length_is_refused(length: int) -> None:
    with pytest.raises(ConfigError, match=f"expected 32 bytes, found {length}"):
        keyed_words(bytes(length), "draw", (), ["a"])


def test_key_id_does_not_hold_the_key() -> None:
    assert key_id(KEY) != key_id(experiment_key(1))
    assert KEY.hex()[:8] not in key_id(KEY)


def test_draws_follow_the_probabilities() -> None:
    """Chi-square on a million keyed draws of a skewed row with zeros; false alarm 1e-6."""
    probabilities = np.array([0.0, 0.4, 0.1, 0.0, 0.25, 0.001, 0.249, 0.0])
    n = 1_000_000
    words = keyed_words(KEY, "draw", ("chi",), (str(i) for i in range(n)))
    counts = np.zeros(len(probabilities))
    for part in np.array_split(words, 20):
        counts += np.bincount(inverse_cdf(np.tile(probabilities, (len(part), 1)), part), minlength=len(probabilities))
    held = probabilities > 0
    assert counts[~held].sum() == 0
    statistic = ((counts[held] - n * probabilities[held]) ** 2 / (n * probabilities[held])).sum()
    assert statistic < 33.4  # chi-square with 4 degrees of freedom, upper 1e-6


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10_000), pool=st.integers(1, 40))
def test_zero_probability_is_never_drawn(seed: int, pool: int) -> None:
    rng = np.random.default_rng(seed)
    rows = np.exp(-rng.uniform(0, 60, (16, pool))).astype(np.float32) * (rng.random((16, pool)) < 0.5)
    rows[np.arange(16), rng.integers(0, pool, 16)] += 1e-6
    extremes = rng.choice(np.array([0, 1, 2**63, 2**64 - 2**11, 2**64 - 1], dtype=np.uint64), 16)
    for words in (extremes, uniform_words(rng, 16)):
        assert (rows[np.arange(16), inverse_cdf(rows, words)] > 0).all()


def _thresholds(row: np.ndarray) -> list[int]:
    """A row's thresholds one after the other: the definition, in the arithmetic of plain Python."""
    sums = list(accumulate(row.tolist()))
    return [int(part / sums[-1] * 2**53) for part in sums]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 400),
    pool=st.sampled_from([1, 2, 3, 63, 64, 65, 3000]),  # the largest takes the rows in several parts
    spread=st.sampled_from([0, 5, 80]),
    kind=st.sampled_from([np.float32, np.float64]),
)
def test_the_donor_is_the_first_whose_threshold_is_above_the_word(
    seed: int, n: int, pool: int, spread: float, kind: type[np.floating]
) -> None:
    """On the very thresholds and right below them, too, and for one draw as for several at once."""
    rng = np.random.default_rng(seed)
    rows = np.exp(-rng.uniform(0, spread, (n, pool))).astype(kind) * (rng.random((n, pool)) < 0.7)
    rows[np.arange(n), rng.integers(0, pool, n)] += 1e-3
    thresholds = [_thresholds(row) for row in rows]
    edges = [t[d] for t, d in zip(thresholds, rng.integers(0, pool, n), strict=True)]
    picks = [[min(edge, 2**53 - 1) for edge in edges], [max(edge - 1, 0) for edge in edges]]
    words = np.concatenate([np.array(picks, dtype=np.uint64) << np.uint64(11), [uniform_words(rng, n)]])
    expected = [
        [next(d for d, threshold in enumerate(t) if threshold > word >> 11) for t, word in zip(thresholds, draw, strict=True)]
        for draw in words.tolist()
    ]
    assert inverse_cdf(rows, words).tolist() == expected
    assert inverse_cdf(rows, words[0]).tolist() == expected[0]


@pytest.mark.parametrize("row", [[0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0]])
def test_unusable_row_is_refused(row: list[float]) -> None:
    with pytest.raises(ConfigError, match="expected rows of finite numbers"):
        inverse_cdf(np.array([row]), np.array([1], dtype=np.uint64))


def test_order_is_a_permutation_unrelated_to_the_input() -> None:
    order = np.argsort(keyed_words(KEY, "order", ("d",), [str(i) for i in range(5000)]), kind="stable")
    assert sorted(order.tolist()) == list(range(5000))
    # Rank correlation of 5,000 unrelated ranks has standard deviation 0.014; six of them.
    assert abs(np.corrcoef(order, np.arange(5000))[0, 1]) < 0.085


def test_streams_differ_by_label_and_repeat() -> None:
    assert stream(1, "a", "b").integers(2**62) == stream(1, "a", "b").integers(2**62)
    draws = {int(stream(seed, *labels).integers(2**62)) for seed, labels in [(1, ("a", "b")), (1, ("ab",)), (2, ("a", "b"))]}
    assert len(draws) == 3
