from pathlib import Path

from tests.protecting.lakes import protect, released


def test_first(champion: Path, lake: Path, tmp_path: Path) -> None:
    plan, manifest = protect(champion, lake, tmp_path / "out")
    print(plan.reasons(), manifest)
    print(released(tmp_path / "out"))
    plan, manifest = protect(champion, lake, tmp_path / "out")
    assert manifest is None
