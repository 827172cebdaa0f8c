"""A result is named by the code it owes to: what changes behaviour counts, what only reads better does not."""

from pathlib import Path

import pytest

from tasks.storage import code_digest


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of three files, of which `method` imports `loss` inside a function."""
    folder = tmp_path / "pass_core"
    folder.mkdir()
    (folder / "method.py").write_text("import json\n\ndef fit():\n    from pass_core.loss import loss\n    return loss(1)\n")
    (folder / "loss.py").write_text('"""A loss."""\n\ndef loss(x):\n    return x + 1\n')
    (folder / "other.py").write_text("x = 1\n")
    monkeypatch.setattr(code_digest, "PROJECT", tmp_path)
    return folder


def _digest() -> str:
    for cached in (code_digest.code_digest, code_digest._parsed):
        cached.cache_clear()
    return code_digest.code_digest(("pass_core.method",))


def test_files_are_followed_through_imports(project: Path) -> None:
    assert code_digest.imported_files(["pass_core.method"]) == (project / "loss.py", project / "method.py")


def test_only_behaviour_changes_the_digest(project: Path) -> None:
    before = _digest()
    (project / "loss.py").write_text('"""Said better."""\n\ndef loss(x):\n    # why\n    return (x +\n            1)\n')
    (project / "other.py").write_text("x = 2\n")
    assert _digest() == before
    (project / "loss.py").write_text('"""A loss."""\n\ndef loss(x):\n    return x + 2\n')
    assert _digest() != before


def test_a_cells_code_is_what_computes_it() -> None:
    """Neither words nor command lines are among it, so that a better caption computes nothing anew."""
    modules = ["tasks.paper_tables.compute", "pass_core.methods.pass_substitution"]
    files = {path.relative_to(code_digest.PROJECT).as_posix() for path in code_digest.imported_files(modules)}
    assert {
        "tasks/paper_tables/measure.py",
        "pass_core/attacks/network.py",
        "pass_core/training/loop.py",
        "tasks/steps/sample_pool.py",
    } <= files
    words = {f"tasks/paper_tables/{name}.py" for name in ("definition", "words", "render", "run")}
    assert not files & (words | {"tasks/running/tracking.py", "pass_core/methods/transport_substitution.py"})
