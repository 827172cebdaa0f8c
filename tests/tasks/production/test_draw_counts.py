"""Counting against a dictionary of sets: random segments, repeated and changed payloads, many ranges."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pass_core.randomness import stream
from tasks.production import draw_counts
from tasks.production.draw_counts import UNKNOWN, PairArray, count_draws, ledger_pairs
from tasks.release.draw import drawn_from, payload_words

SPREAD = 2**64 // 12
ROWS = st.lists(st.tuples(st.integers(0, 11), st.integers(1, 3)), max_size=14)
PARTITION = st.dictionaries(st.integers(0, 11), st.integers(1, 3), min_size=1)
SEGMENTS = st.dictionaries(st.sampled_from("abc"), st.lists(ROWS, max_size=3))


def _pairs(rows: list[tuple[int, int]]) -> PairArray:
    return np.array([(record * SPREAD, payload) for record, payload in sorted(rows)], dtype=np.uint64).reshape(-1, 2)


@settings(max_examples=200, deadline=None)
@given(staged=st.lists(PARTITION, min_size=1, max_size=3), segments=SEGMENTS, rows=st.sampled_from([3, 5, 2**22]))
def test_counts_are_those_of_a_dictionary_of_sets(
    staged: list[dict[int, int]], segments: dict[str, list[list[tuple[int, int]]]], rows: int
) -> None:
    known = {(draw, *row) for draw, parts in segments.items() for part in parts for row in part}
    drawn = {("a", *row) for part in staged for row in part.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draw_counts, "RANGE_ROWS", rows)
        held = {draw: [_pairs(part) for part in parts] for draw, parts in segments.items()}
        found = list(count_draws([_pairs(list(part.items())) for part in staged], held, "a"))
    for number, part in enumerate(staged):
        names = sorted(part)
        assert np.concatenate([one.draws[number] for one in found]).tolist() == [
            sum(record == name for _, record, _ in known | drawn) for name in names
        ]
        assert np.concatenate([one.fresh[number] for one in found]).tolist() == [
            any(record == name for _, record, _ in drawn - known) for name in names
        ]
        assert np.concatenate([one.first[number] for one in found]).tolist() == [
            not any(draw == "a" and record == name for draw, record, _ in known) for name in names
        ]
    new = [(int(record) // SPREAD, int(payload)) for one in found for record, payload in one.new]
    assert sorted(new) == sorted((record, payload) for _, record, payload in drawn - known)
    assert [record for record, _ in new] == sorted(record for record, _ in new)


def test_an_unknown_payload_is_any_one_payload() -> None:
    held = {"a": [_pairs([(1, UNKNOWN), (2, UNKNOWN)])], "b": [_pairs([(1, UNKNOWN)])]}
    (found,) = count_draws([_pairs([(1, 5), (2, 6), (3, 7)])], held, "a")
    assert found.draws[0].tolist() == [2, 1, 1]
    assert found.fresh[0].tolist() == [False, False, True]
    held["a"].append(found.new)  # from now on the payloads are known
    (found,) = count_draws([_pairs([(1, 6), (2, 6)])], held, "a")
    assert found.draws[0].tolist() == [3, 1]
    assert found.fresh[0].tolist() == [True, False]


def test_pairs_are_sorted_hashed_and_never_of_an_unknown_payload() -> None:
    records = np.array([9, 2**64 - 1, 3], dtype=np.uint64)
    one, other = (ledger_pairs(bytes(range(k, k + 32)), "calls", records, np.array([1, 2, 3], dtype=np.uint64)) for k in (0, 1))
    assert one[:, 0].tolist() == [3, 9, 2**64 - 1]
    assert not set(one[:, 1].tolist()) & {UNKNOWN, 1, 2, 3, *other[:, 1].tolist()}


def test_what_a_draw_depends_on_is_told_apart() -> None:
    vectors = np.zeros((3, 4), dtype=np.float32)
    vectors[2, 3] = 1
    words = payload_words(vectors)
    assert words[0] == words[1] != words[2]
    assert payload_words([vectors[2].tobytes()])[0] == words[2]
    units, classes = np.array([-1, -1, -1]), np.array([0, 1, 0])
    assert len(set(drawn_from(words, [units, classes]).tolist())) == 3
    assert drawn_from(words, [units, classes])[0] != drawn_from(words, [classes, units])[1]
    assert (drawn_from(words, []) == words).all()


def test_memory_does_not_grow_with_the_number_of_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """A year of nightly runs writes many segments, each shorter than a range."""
    monkeypatch.setattr(draw_counts, "RANGE_ROWS", 2**14)
    words = np.sort(stream(1, "ledger").integers(1, 2**64, (64, 2**12), dtype=np.uint64), axis=1)
    nights = [np.stack([night, night], axis=1) for night in words]

    def peak(segments: list[PairArray]) -> int:
        tracemalloc.start()
        assert sum(len(found.new) for found in count_draws([nights[0]], {"a": segments}, "a")) == 2**12
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert peak(nights[1:]) < 2 * peak(nights[1:4])
