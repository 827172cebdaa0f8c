"""Secrets beside the payload, planted in files that a user audits: each is shown; a private release shows none."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pass_core.errors import SchemaMismatch
from tasks.audits.received import received_rows
from tests.tasks.audits import releases
from tests.tasks.audits.releases import PLANTED, FilesRelease, N, Spoil, leaks_of

QUICK = {
    releases.parity, releases.runs, releases.in_turn, releases.three_columns, releases.spaces, releases.synonyms,
    releases.low_bit, releases.missing,
}  # fmt: skip


@pytest.mark.parametrize(
    ("spoil", "where"),
    [
        pytest.param(spoil, where, id=spoil.__name__, marks=[] if spoil in QUICK else [pytest.mark.slow])
        for spoil, where in PLANTED.items()
    ],
)
def test_planted_secret_is_shown_and_located(tmp_path: Path, spoil: Spoil, where: str) -> None:
    release = FilesRelease(tmp_path, seed=1)
    spoil(release)
    shown = [sentence for sentence in leaks_of(release.audit()) if where in sentence]
    assert shown, f"expected a leak in {where}"


def _private(folder: Path, seed: int) -> list[str]:
    """Leaks shown by an audit of a private release with noise in all places."""
    folder.mkdir()
    release = FilesRelease(folder, seed)
    rng = release.rng
    release.extra = {"a": rng.integers(0, 5, N), "note": [f"{k:x}".title() + " " * (k % 2) for k in rng.integers(0, 99, N)]}
    release.extra["at"] = pa.array(rng.integers(0, 10**9, N), pa.timestamp("s"))
    release.extra["words"] = [" ".join(np.array(["red", "green", "blue"])[rng.permutation(3)]) + f" {k:x}" for k in range(N)]
    release.files, release.group_rows = rng.integers(0, 3, N), 100
    release.kept = rng.random(N) > 0.05
    return leaks_of(release.audit())


def test_private_release_shows_nothing(tmp_path: Path) -> None:
    assert [_private(tmp_path / str(seed), seed) for seed in range(2)] == [[]] * 2


@pytest.mark.slow
def test_private_releases_show_nothing_in_twenty_seeds(tmp_path: Path) -> None:
    assert [_private(tmp_path / str(seed), seed) for seed in range(100, 120)] == [[]] * 20


def test_nested_column_is_refused_with_a_sentence(tmp_path: Path) -> None:
    release = FilesRelease(tmp_path, seed=1, n=100)
    release.extra = {"notes": pa.array([[1, 2]] * 100)}
    with pytest.raises(SchemaMismatch, match="expected text, numbers or dates beside the payload"):
        release.audit()


def test_remark_in_an_encoded_file_is_read() -> None:
    """The header, and what is appended, are numbers of the attacker; the lengths are the same."""
    files = [b"\x89PNG" + remark + bytes(400) + end for remark, end in ((b"a", b"xy"), (b"b", b"xy"), (b"a", b"zy"))]
    rows = received_rows(
        [pa.record_batch({"payload": pa.array(files, pa.large_binary())})], [[3]], payload=("payload",), key=None
    )
    values = dict(zip(rows.names, rows.values.T.tolist(), strict=True))
    assert values["payload: byte 5"] == [97, 98, 97]
    assert values["payload: byte 2 from the end"] == [120, 120, 122]
