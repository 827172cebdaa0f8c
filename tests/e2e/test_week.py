"""A week in the life: the whole stack runs, a lake lives through its nights, and after each of them everything is compared.

`make e2e` runs it. A night is a function of the world that ends with `world.check(...)`. To add one: a function, and its place in
NIGHTS.
"""

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from flows.cli.main import app
from flows.next_run import next_run
from tasks.storage.parquet import read_folder
from tests.e2e.receiver import receiver
from tests.e2e.world import World, age, die, environ_for_checks
from tests.stacks import answers
from tests.tasks.production.lakes import make_table, published, released, train_champion
from tests.tasks.production.s3 import BUCKET, objects, s3_server
from tests.tasks.production.test_outage import nights_pass
from tests.tasks.production.test_serving import FINAL

LATE_ROWS = 40
MISSED = 2  # nights without a server
SECONDS_PER_REQUEST = 0.1  # of the slow store


def first_load(world: World) -> None:
    world.check_never()
    days = [world.add_day(number) for number in range(3)]
    world.night()
    assert world.check(changed=world.expect(*days))["last_run"]["outcome"] == "published"
    world.until(lambda: next_run(str(world.target), world.api.url))  # a check does not wait long for a busy server


def new_day(world: World) -> None:
    day = world.add_day(3)
    world.night()
    world.check(changed=world.expect(day))


def late_file_into_an_old_day(world: World) -> None:
    old = next(iter(world.people))
    late = make_table(days=1, start=9000).slice(0, LATE_ROWS).drop_columns(["day"])
    pq.write_table(late, world.lake / old / "late.parquet")
    world.night()
    world.check(changed=world.expect(old))


def new_column(world: World) -> None:
    """The day with it is quarantined until somebody accepts the column, which is never published."""
    world.columns["channel"] = "phone"
    day = world.add_day(4)
    world.night("FAILED")
    world.check(16, ("failed", "quarantined"), posted=("failed", "failed", "quarantined"), shown=("Yes", "Yes", "No"))
    world.protect("--new-columns")
    world.check(changed=world.expect(day))


def run_killed(world: World) -> None:
    """SIGKILL just before readers would see the new version; they see the old one, and the next run finishes."""
    day = world.add_day(5)
    world.night("CRASHED", crash_at="pointer made")
    world.check(16, ("failed",), posted=("failed",), shown=("Yes", "Yes", "No"))
    world.night()
    world.check(changed=world.expect(day))


def audit_fails(world: World) -> None:
    """Somebody sets a limit that this model cannot meet: nothing is published until it can."""
    day, params = world.add_day(6), world.folder / "params.yaml"
    before = params.read_text()
    strict = yaml.safe_load(before)
    strict["audit"]["thresholds"]["private_nag_at_most"] = {"value": 0.0, "reason": "nothing at all may be left"}
    params.write_text(yaml.safe_dump(strict))
    world.night("FAILED")
    found = world.check(14, ("audit",), posted=("audit", "audit"), shown=("Yes", "Yes", "No"))
    assert found["last_run"]["audit"]["verdict"] in {"fail", "undecided"}
    params.write_text(before)
    world.night()
    world.check(changed=world.expect(day))


def server_down_for_two_nights(world: World) -> None:
    """A power cut; the check finds that nothing ran; afterwards exactly one run is made for all missed nights."""

    def runs(state: str) -> list[str]:
        every = sorted(world.api.runs(world.nightly), key=lambda run: run["expected_start_time"])
        return [run["id"] for run in every if run["state_type"] == state]

    world.until(lambda: len(runs("SCHEDULED")) >= MISSED)
    missed, made = runs("SCHEDULED")[:MISSED], len(runs("COMPLETED"))
    addresses = world.stack()["health"].values()
    die(world.stack()["process"])
    world.until(lambda: not world.left())
    assert not any(answers(address) for address in addresses)
    days = [world.add_day(number) for number in (7, 8)]
    nights_pass(world.folder / "prefect" / "prefect.db", world.nightly, days=MISSED + 1, most=MISSED)
    age(world.state, MISSED)
    found = world.check(18, ("late",), posted=("late",), shown=("No", "Yes", "No"))
    assert found["next_run"] is None
    world.up()
    world.until(lambda: all(world.api.state(run) in FINAL for run in missed))
    assert sorted(map(world.api.state, missed)) == ["CANCELLED"] * (MISSED - 1) + ["COMPLETED"]
    assert len(runs("COMPLETED")) == made + 1
    world.check(changed=world.expect(*days))


def donor_withdrawn(world: World) -> None:
    """The donor is seen until a run with the new pool has drawn the partitions that show them again."""
    before = world.donors()
    seen = {tuple(row) for table in released(world.target).values() for row in table["vector"].to_pylist()}
    pool = read_folder(world.folder / "data" / "pools" / "calls", ["record_id", "payload"]).to_pylist()
    donor = next(one["record_id"] for one in pool if tuple(one["payload"]) in seen)
    words = ["lake", "donors", "withdraw", donor, "--dataset", "calls", "--models", "data", "--to", "data2", "--target", "out"]
    done = world.command(*words)
    assert done.returncode == 0, done.stderr
    shown = {line.partition(": ")[2] for line in done.stdout.splitlines() if line.startswith("out: ")}
    assert shown
    world.check(12, ("withdrawn",), posted=("withdrawn",), shown=("Yes", "No", "Yes"))
    world.models, world.draws = "data2", 2
    assert len(world.donors()) == len(before) - 1
    world.protect("--redraw", "a donor has withdrawn")
    world.version += 1
    world.check(changed=shown)  # each published row is of the pool without that donor


def key_rotation(world: World) -> None:
    """Without a reason the ledger refuses it; with one every record is drawn again."""
    shutil.move(world.key, world.folder / "old.key")
    assert world.command("lake", "key", "new", str(world.key)).returncode == 0
    options = world.api.deployment("pass-protect/nightly-calls-out")["parameters"]["options"]
    world.night("FAILED", parameters={"options": options | {"models": "data2"}})
    world.check(13, ("draws",), posted=("draws", "draws"), shown=("Yes", "Yes", "No"))
    world.protect("--redraw", "the yearly rotation")
    world.version, world.draws = world.version + 1, world.draws + 1
    found = world.check(changed=set(world.people))
    assert found["live"]["keys"] == [world.command("lake", "key", "id").stdout.strip()]


def slow_store(world: World) -> None:
    """A second target, in an object store that lets every request wait: the same bytes, and no further draw."""
    with s3_server(SECONDS_PER_REQUEST) as settings, pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        place, state = f"s3://{BUCKET}/out", str(world.folder / "s3.state")
        world.protect("--state", state, target=place, **settings)
        stored = objects("out")
        manifest = json.loads(stored[json.loads(stored["current.json"])["manifest"]])
        files = {
            file["path"]: stored[f"{manifest['places'][name]}/{file['path']}"]
            for name, receipt in manifest["partitions"].items()
            for file in receipt["files"]
        }
        assert files == published(world.target)
        done = CliRunner().invoke(app, ["lake", "status", place, "--state", state, "--json", "--notify"])
        (one,) = json.loads(done.output)["targets"]
        assert (done.exit_code, one["troubles"], one["draws"]) == (0, [], world.draws)
    world.check()


def erasure(world: World) -> None:
    """All calls of a customer leave what is published, and every older version goes."""
    words = ["lake", "erase", "out", "--person", "customer-5", "--reason", "request 17", "--dataset", "calls"]
    done = world.command(*words, "--models", world.models, "--workers", "1")
    assert done.returncode == 0, done.stderr
    changed = {name for name, people in world.people.items() if "customer-5" in people}
    world.people = {name: [one for one in people if one != "customer-5"] for name, people in world.people.items()}
    world.version += 1
    world.check(changed=changed)
    assert [path.name for path in (world.target / "versions").iterdir()] == [f"{world.version:06d}"]


NIGHTS: tuple[Callable[[World], None], ...] = (
    first_load,
    new_day,
    late_file_into_an_old_day,
    new_column,
    run_killed,
    audit_fails,
    server_down_for_two_nights,
    donor_withdrawn,
    key_rotation,
    slow_store,
    erasure,
)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A trained model in MLflow, an empty lake, a key, a running stack and the deployments; no process is left after the test."""
    store = tmp_path / "mlflow"
    (tmp_path / "training").mkdir()
    champion = train_champion(tmp_path / "training", tracking={"enabled": True, "store": str(store)})
    with receiver() as posted, pytest.MonkeyPatch.context() as patch:
        made = World(tmp_path / "company", champion, store, posted)
        for name, value in environ_for_checks(made).items():
            patch.setenv(name, value)
        try:
            yield made
        finally:
            for process in made.left():
                with contextlib.suppress(ProcessLookupError):
                    die(int(process.split()[0]))


@pytest.mark.slow
def test_a_week(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    begun = time.monotonic()
    assert world.command("lake", "key", "new", str(world.key)).returncode == 0
    world.up()
    world.deploy()
    with capsys.disabled():
        print(f"\n{'up':30} {time.monotonic() - begun:5.0f} s")  # noqa: T201
    for night in NIGHTS:
        started = time.monotonic()
        night(world)
        with capsys.disabled():
            print(f"{night.__name__:30} {time.monotonic() - started:5.0f} s  version {world.version}")  # noqa: T201
    done = world.command("down")
    assert "all servers have ended" in done.stdout, done.stderr
    assert world.left() == []
    with capsys.disabled():
        print(f"{'all':30} {time.monotonic() - begun:5.0f} s")  # noqa: T201
