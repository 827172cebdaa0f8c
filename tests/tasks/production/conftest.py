"""A model that was trained once for all tests of lake protection."""

from pathlib import Path

import pytest

from tests.tasks.production.lakes import make_table, train_champion, write_lake


@pytest.fixture(scope="session")
def champion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with pool, model and audit; read-only for tests."""
    return train_champion(tmp_path_factory.mktemp("champion"))


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """New calls of three days."""
    return write_lake(make_table(start=2000), tmp_path / "lake")
