"""A model that was trained once for all tests of lake protection, and a receiver of notifications."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.production.notify import ADDRESS
from tests.tasks.production.lakes import make_table, train_champion, write_lake
from tests.tasks.production.receiver import Receiver, receiving


@pytest.fixture(scope="session")
def champion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with pool, model and audit; read-only for tests."""
    return train_champion(tmp_path_factory.mktemp("champion"))


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """New calls of three days."""
    return write_lake(make_table(start=2000), tmp_path / "lake")


@pytest.fixture
def handler(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Receiver]]:
    with receiving() as (handler, address):
        monkeypatch.setenv(ADDRESS, address)
        yield handler


@pytest.fixture
def received(handler: type[Receiver]) -> list[dict[str, Any]]:
    """What was posted to PASS_WEBHOOK_URL."""
    return handler.received
