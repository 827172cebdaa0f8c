"""After an outage of five nights, against a real Prefect server: one run is made, not five."""

import contextlib
import datetime
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.next_run import next_run
from tests.tasks.production.lakes import published
from tests.tasks.production.test_serving import (
    FINAL,
    _answers,
    _Api,
    _environment,
    _expected,
    _free_port,
    _running,
    _until,
    project,
)

__all__ = ["project"]  # a fixture
NIGHTS = 5


@contextlib.contextmanager
def _machine(folder: Path, environment: dict[str, str]) -> Iterator[Path]:
    """`lake serve` on a machine that loses its power at the end of the block; gives its log."""
    log = folder / "serve.log"
    command = [sys.executable, "-m", "flows.cli", "lake", "serve", "lake", "out", "--dataset", "calls", "--models", "root"]
    with log.open("w") as file:
        process = subprocess.Popen(
            [*command, "--workers", "1"], cwd=folder, env=environment, stdout=file, stderr=file, start_new_session=True
        )
    try:
        yield log
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def nights_pass(database: Path, deployment: str, *, days: int, most: int = -1) -> None:
    """Moves scheduled runs of a deployment (the first ones, or all) into the past, as if nobody had been there to start them."""
    with contextlib.closing(sqlite3.connect(database, timeout=60)) as connection, connection:
        wanted = "select id, state_id, expected_start_time from flow_run where deployment_id = ? and state_type = 'SCHEDULED'"
        wanted += " order by expected_start_time limit ?"
        for run, state, start in connection.execute(wanted, (deployment, most)).fetchall():
            earlier = datetime.datetime.fromisoformat(start) - datetime.timedelta(days=days)
            times = (earlier.strftime("%Y-%m-%d %H:%M:%S.%f"),) * 2
            connection.execute(
                "update flow_run set expected_start_time = ?, next_scheduled_start_time = ? where id = ?", (*times, run)
            )
            (details,) = connection.execute("select state_details from flow_run_state where id = ?", (state,)).fetchone()
            changed = json.dumps(json.loads(details) | {"scheduled_time": earlier.replace(tzinfo=datetime.UTC).isoformat()})
            connection.execute("update flow_run_state set state_details = ? where id = ?", (changed, state))


def _scheduled(api: _Api) -> tuple[str, list[Any]]:
    """The nightly deployment and its runs that wait."""
    found = api.get("/deployments/filter", {"flows": {"name": {"any_": ["pass-protect"]}}})
    runs = api.runs(found[0]["id"]) if found else []
    return (found[0]["id"] if found else ""), [run for run in runs if run["state_type"] == "SCHEDULED"]


@pytest.mark.slow
def test_one_run_is_made_after_five_nights(champion: Path, project: Path) -> None:
    port = _free_port()
    api = _Api(port)
    settings = {"PREFECT_API_URL": api.url, "PREFECT_SERVER_SERVICES_SCHEDULER_MIN_RUNS": str(NIGHTS)}
    environment = _environment(project, **settings)
    with _running(project, environment, "prefect", "server", "start", "--port", str(port)) as said:
        _until(lambda: _answers(api), said)
        with _machine(project, environment) as log:
            _until(lambda: len(_scheduled(api)[1]) >= NIGHTS, log.read_text)
            nightly, waiting = _scheduled(api)
            assert next_run(str(project / "out"), api.url) == min(run["expected_start_time"] for run in waiting)
            assert next_run(str(project / "elsewhere"), api.url) is None
        nights_pass(project / "prefect" / "prefect.db", nightly, days=NIGHTS + 1)
        missed = {run["id"] for run in waiting}
        with _machine(project, environment) as log:
            _until(lambda: all(api.state(run) in FINAL for run in missed), log.read_text)
            ended = sorted(api.state(run) for run in missed)
            assert ended == ["CANCELLED"] * (len(missed) - 1) + ["COMPLETED"], log.read_text()[-4000:]
            assert len([run for run in api.runs(nightly) if run["state_type"] == "COMPLETED"]) == 1
    assert published(project / "out") == _expected(champion, project)
