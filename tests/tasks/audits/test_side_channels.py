"""Secrets beside the payload, planted in files that a user audits: each is shown; a private release shows none."""

from pathlib import Path

import pytest

from tests.tasks.audits import releases
from tests.tasks.audits.releases import PLANTED, FilesRelease, N, Spoil, leaks_of

QUICK = {releases.parity, releases.runs, releases.two_columns, releases.spaces, releases.low_bit, releases.missing}


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
    release.files, release.group_rows = rng.integers(0, 3, N), 100
    release.kept = rng.random(N) > 0.05
    return leaks_of(release.audit())


def test_private_release_shows_nothing(tmp_path: Path) -> None:
    assert [_private(tmp_path / str(seed), seed) for seed in range(2)] == [[]] * 2


@pytest.mark.slow
def test_private_releases_show_nothing_in_twenty_seeds(tmp_path: Path) -> None:
    assert [_private(tmp_path / str(seed), seed) for seed in range(100, 120)] == [[]] * 20
