"""Replay: draws from a seed that somebody may try are made again, draws from a key are not."""

import secrets
import time

import numpy as np
import pytest

from pass_core.auditing.analyses.seed_replay import find_replay
from pass_core.channel.draws import experiment_key, inverse_cdf, keyed_words
from pass_core.channel.substitution import draw_substitutes
from pass_core.randomness import stream
from tests.pass_core.channels import TableChannel, normalised, row_numbers

N, POOL = 300, 64
IDS = [f"record {i}" for i in range(N)]
P = normalised(stream(1, "replay").gamma(0.5, size=(N, POOL)))
SCOPE = ("motion", "model digest")


def _keyed(key: bytes, scope: tuple[str, ...] = SCOPE) -> np.ndarray:
    return inverse_cdf(P, keyed_words(key, "draw", scope, IDS))


def test_an_experiments_key_is_found() -> None:
    started = time.perf_counter()
    found = find_replay(P, IDS, _keyed(experiment_key(7)), [SCOPE], claimed_secret=True)
    assert (found.records, found.seeds, found.replayed, found.claimed_secret) == (64, 4096, True, True)
    assert time.perf_counter() - started < 5


def test_a_secret_key_is_not() -> None:
    assert not find_replay(P, IDS, _keyed(secrets.token_bytes(32)), [SCOPE], claimed_secret=False).replayed


def test_a_seed_beyond_those_tried_is_found_only_when_it_is_given() -> None:
    donors = _keyed(experiment_key(20_250_101))
    assert not find_replay(P, IDS, donors, [SCOPE], claimed_secret=False).replayed
    found = find_replay(P, IDS, donors, [SCOPE], claimed_secret=False, more_seeds=(7, 20_250_101))
    assert (found.seeds, found.replayed) == (4097, True)


def test_the_scope_must_be_among_those_tried() -> None:
    donors = _keyed(experiment_key(7), (*SCOPE, "person"))
    assert not find_replay(P, IDS, donors, [SCOPE], claimed_secret=False).replayed
    assert find_replay(P, IDS, donors, [SCOPE, (*SCOPE, "person")], claimed_secret=False).replayed


def test_numpy_draws_from_record_to_record_are_found() -> None:
    """As this project's own experiments draw, and as anybody does who calls `choice`."""
    substitutes = draw_substitutes(TableChannel(P), row_numbers(N), row_numbers(POOL), np.random.default_rng(42))
    rng = np.random.default_rng(42)
    rows = P.astype(np.float64) / P.sum(axis=1, dtype=np.float64, keepdims=True)
    chosen = np.array([rng.choice(POOL, p=row) for row in rows])
    for donors in (substitutes[:, 0].astype(np.int64), chosen):
        assert find_replay(P, IDS, donors, [], claimed_secret=False).replayed
    unseeded = draw_substitutes(TableChannel(P), row_numbers(N), row_numbers(POOL), np.random.default_rng())
    assert not find_replay(P, IDS, unseeded[:, 0].astype(np.int64), [SCOPE], claimed_secret=False).replayed


@pytest.mark.parametrize("sharpness", [0.85, 0.999])
def test_draws_that_are_nearly_certain_are_no_replay(sharpness: float) -> None:
    """Ten records at 0.85 agree with one wrong seed in five, records at 0.999 with all: no finding either way."""
    n = 10 if sharpness < 0.9 else N
    p = np.full((n, POOL), (1 - sharpness) / (POOL - 1), dtype=np.float32)
    p[:, 0] = sharpness
    found = find_replay(p, IDS[:n], np.zeros(n, dtype=np.int64), [SCOPE], claimed_secret=False)
    assert (found.records, found.replayed) == (0, False)
