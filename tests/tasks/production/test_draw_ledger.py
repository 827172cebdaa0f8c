"""No record is drawn more often than the limit: across versions, targets, keys, payloads, losses, writers and upgrades."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from pass_core.channel.draws import keyed_words
from pass_core.errors import ConfigError, DataError, PassError
from tasks.production import draw_ledger
from tasks.production.draw_counts import PairArray
from tasks.production.draw_key import find_key, new_key
from tasks.production.draw_ledger import Ledger
from tasks.production.ledger_upkeep import verify
from tasks.production.manifest import load_manifest
from tasks.production.options import state_of
from tasks.production.run import plan_of
from tasks.storage.files import file_digest
from tests.tasks.production.lakes import (
    KEY,
    ledger_beside,
    make_options,
    make_table,
    protect,
    released,
    with_key,
    write_lake,
    write_params,
)

DAY = "day=2026-11-12"


def _ledger(command: str, target: Path, *more: str) -> dict[str, Any]:
    """Runs `pass-pipeline lake ledger`."""
    options = ["--dataset", KEY.dataset, "--params", str(write_params(target.parent)), "--json"]
    place = ["--set", f"protect.ledger={ledger_beside(target).parent}"]
    shown = CliRunner().invoke(app, ["lake", "ledger", command, *more, *options, *place], catch_exceptions=False)
    found: dict[str, Any] = json.loads(shown.output)
    return found


def _change(lake: Path, records: int, *, by: float = 1.0, day: str = DAY) -> None:
    """Gives the first records of a day other payloads."""
    (path,) = (lake / day).glob("*.parquet")
    table = pq.read_table(path, partitioning=None)
    vectors = np.array(table.column("vector").to_pylist(), dtype=np.float32)
    vectors[:records] += by
    column = pa.array(list(vectors), table.schema.field("vector").type)
    pq.write_table(table.set_column(table.column_names.index("vector"), "vector", column), path)


def _rows(target: Path) -> np.ndarray:
    return np.array(released(target)[DAY].column("vector").to_pylist())


def test_a_target_restored_from_a_backup_loses_no_draw(champion: Path, lake: Path, tmp_path: Path) -> None:
    target, state = tmp_path / "out", state_of(str(tmp_path / "out"))
    protect(champion, lake, target)
    for place in (target, state):
        shutil.copytree(place, tmp_path / "backup" / place.name, symlinks=True)
    write_lake(make_table(days=1, start=2600), lake)
    protect(champion, lake, target)  # version 2
    shutil.move(lake / "day=2026-11-14", tmp_path / "away")
    for place in (target, state):
        shutil.rmtree(place)
        shutil.copytree(tmp_path / "backup" / place.name, place, symlinks=True)
    write_lake(make_table(days=1, start=2800), lake)
    _, manifest = protect(champion, lake, target)  # another version 2
    assert manifest is not None
    assert manifest.version == 2
    assert _ledger("verify", target)["draws"] == 1000
    shutil.move(tmp_path / "away", lake / "day=2026-11-14")
    with pytest.raises(ConfigError, match="drawn 2 times"):  # by the first version 2, and by this
        protect(champion, lake, target, key=with_key(1), first="2026-11-14", last="2026-11-14")


def test_two_targets_count_together(champion: Path, lake: Path, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    protect(champion, lake, one)
    with pytest.raises(ConfigError, match=r"3 partition.*drawn 2 times"):
        protect(champion, lake, other, key=with_key(1))
    assert not (other / "current").exists()
    protect(champion, lake, other)  # the same donors: nothing new to average
    assert released(one) == released(other)
    assert _ledger("verify", one)["draws"] == 600


def test_a_state_folder_is_for_one_target(champion: Path, lake: Path, tmp_path: Path) -> None:
    one, other, state = tmp_path / "one", tmp_path / "other", tmp_path / "state"
    protect(champion, lake, one, state=state)
    with pytest.raises(ConfigError, match=rf"{other}: expected a state folder of its own, found {state}, which belongs to {one}"):
        protect(champion, lake, other, state=state)
    assert not (other / "current").exists()
    one.rename(moved := tmp_path / "moved")  # a target may move: its manifest names the folder
    write_lake(make_table(days=1, start=2600), lake)
    _, manifest = protect(champion, lake, moved, state=state)
    assert manifest is not None
    assert manifest.version == 2


def test_a_run_reads_every_segment_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger of a billion draws has 16 GB: reading it again after the entry was written would double the time."""
    ledger, read = Ledger(tmp_path / "ledger"), list[str]()

    def digest_of(path: Path) -> str:
        read.append(path.stem)
        return file_digest(path)

    ledger.record("first", _pairs(1000), 2, "why")
    ledger.record("second", _pairs(999), 2, "why")
    written = [path.stem for path in ledger.folder.glob("*.draws")]
    monkeypatch.setattr(draw_ledger, "file_digest", digest_of)
    ledger.record("first", _pairs(1000), 2, None)
    assert sorted(one for one in read if one in written) == sorted(written)


def test_one_run_draws_no_record_with_two_payloads(champion: Path, lake: Path, tmp_path: Path) -> None:
    shutil.copytree(lake / DAY, lake / "day=2026-12-01")
    protect(champion, lake, tmp_path / "same")  # one payload under two days is one draw
    assert _ledger("verify", tmp_path / "same")["draws"] == 600
    _change(lake, 1, day="day=2026-12-01")
    with pytest.raises(ConfigError, match=r"2 partition.*drawn 2 times"):
        protect(champion, lake, tmp_path / "new" / "out")


def test_a_changed_payload_is_another_draw_and_versions_do_not_line_up(champion: Path, lake: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    protect(champion, lake, target)
    before = _rows(target)
    _change(lake, 1, by=100.0)
    with pytest.raises(ConfigError, match=rf"1 partition.*{DAY}.*drawn 2 times.*payloads"):
        protect(champion, lake, target)
    _, manifest = protect(champion, lake, target, redraw="a corrected recording")
    assert manifest is not None
    assert {name: one.draws for name, one in manifest.partitions.items()}[DAY] == 2
    assert _ledger("verify", target)["draws"] == 601
    after = _rows(target)
    kept = sorted(map(tuple, before.tolist())), sorted(map(tuple, after.tolist()))
    assert sum(one == other for one, other in zip(*kept, strict=True)) >= 100  # most donors are those of before
    assert (before == after).all(axis=1).mean() < 0.3  # and lie elsewhere; of 200 rows in one order, 199 would be equal
    protect(champion, lake, tmp_path / "other")  # allowed for one corrected recording, which is counted by now
    _change(lake, 1, by=100.0)
    with pytest.raises(ConfigError, match="drawn 3 times"):  # and not for the next
        protect(champion, lake, target)


def test_an_approved_rotation_is_remembered(champion: Path, lake: Path, tmp_path: Path) -> None:
    target, key = tmp_path / "out", with_key(1)
    protect(champion, lake, target)
    first_days = {"first": "2026-11-11", "last": "2026-11-12"}
    protect(champion, lake, target, key=key, redraw="yearly rotation", **first_days)
    (file,) = (lake / DAY).glob("*.parquet")
    late = make_table(days=1, start=9000).drop_columns(["day"])
    pq.write_table(late, file.with_name("late.parquet"))
    plan, manifest = protect(champion, lake, target, key=key)  # a late file, and the day that was not rotated yet
    assert plan.reasons() == {"input changed": 1, "key changed": 1}
    assert manifest is not None
    assert {one.draws for one in manifest.partitions.values()} == {2}
    found = _ledger("verify", target)
    assert (found["draws"], found["reasons"]) == (1400, ["yearly rotation"])
    with pytest.raises(ConfigError, match="drawn 3 times"):
        protect(champion, lake, target, key=with_key(2))
    _change(lake, 1, day="day=2026-11-13")
    with pytest.raises(ConfigError, match="drawn 3 times"):  # nobody approved other payloads
        protect(champion, lake, target, key=key)


def test_a_higher_limit_needs_a_reason_once(champion: Path, lake: Path, tmp_path: Path) -> None:
    def rotate(number: int, limit: int, **more: Any) -> None:
        protect(champion, lake, tmp_path / "out", key=with_key(number), settings=(f"protect.draws_at_most={limit}",), **more)

    with pytest.raises(ConfigError, match="expected at most 1 as before, found 99"):
        rotate(0, 99)
    rotate(0, 1)
    with pytest.raises(ConfigError, match="expected at most 1 as before, found 2"):
        rotate(1, 2)
    rotate(1, 2, redraw="the board accepts two")
    with pytest.raises(ConfigError, match="drawn 3 times"):
        rotate(2, 2)
    with pytest.raises(ConfigError, match="expected at most 2 as before, found 3"):
        rotate(2, 3)
    assert _ledger("verify", tmp_path / "out")["reasons"] == ["the board accepts two"]
    write_lake(make_table(days=1, start=2600), lake)
    rotate(1, 2)  # and is remembered
    assert _ledger("verify", tmp_path / "out")["draws_at_most"] == 2


@pytest.fixture(scope="module")
def made(champion: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake and a target with two versions, whose ledger has two entries; and a backup of the ledger."""
    folder = tmp_path_factory.mktemp("counted")
    for table in (make_table(start=2000), make_table(days=1, start=2600)):
        write_lake(table, folder / "lake")
        protect(champion, folder / "lake", folder / "out")
    assert _ledger("backup", folder / "out", str(folder / "backup"))["draws"] == 800
    return folder


@pytest.fixture
def counted(made: Path, tmp_path: Path) -> Path:
    """A copy of that target, with all that lies beside it."""
    shutil.copytree(made, tmp_path, symlinks=True, dirs_exist_ok=True)
    return tmp_path / "out"


def _lose(ledger: Path, what: str) -> None:
    if what == "everything":
        shutil.rmtree(ledger)
        return
    first = next(path for path in ledger.glob("*.json") if not json.loads(path.read_text())["follows"])
    segment = ledger / f"{json.loads(first.read_text())['segment'][:32]}.draws"
    if what == "the last entry":
        next(path for path in ledger.glob("*.json") if path != first).unlink()
    elif what == "the first entry":
        first.unlink()
    elif what == "a segment":
        segment.unlink()
    elif what == "the key":
        (ledger / "ledger.key").unlink()
    else:
        path = segment if what == "a bit of a segment" else first
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 2] ^= 1
        path.write_bytes(raw)


LOSSES = ("everything", "the last entry", "the first entry", "a segment", "the key", "a bit of a segment", "a bit of an entry")


@pytest.mark.parametrize("what", LOSSES)
def test_what_is_lost_or_damaged_stops_runs_until_it_is_restored(
    champion: Path, counted: Path, tmp_path: Path, what: str
) -> None:
    lake = tmp_path / "lake"
    _lose(ledger_beside(counted), what)
    write_lake(make_table(days=1, start=2800), lake)
    with pytest.raises(PassError, match="lake ledger restore") as error:
        protect(champion, lake, counted)
    assert "lake ledger restart" in str(error.value)
    if what != "the last entry":  # which nothing follows: only the targets that depend on it know
        with pytest.raises(PassError):
            _ledger("verify", counted)
    assert _ledger("restore", counted, str(tmp_path / "backup"))["draws"] == 800
    with pytest.raises(ConfigError, match="drawn 2 times"):
        protect(champion, lake, counted, key=with_key(1))
    protect(champion, lake, counted)
    assert _ledger("verify", counted)["draws"] == 1000


@pytest.mark.parametrize("what", ["everything", "the first entry", "the key", "a bit of a segment"])
def test_a_fresh_start_needs_a_reason_and_keeps_what_is_whole(champion: Path, counted: Path, tmp_path: Path, what: str) -> None:
    lake = tmp_path / "lake"
    _lose(ledger_beside(counted), what)
    with pytest.raises(ConfigError, match="expected a reason"):
        _ledger("restart", counted, "--reason", " ")
    found = _ledger("restart", counted, "--reason", "the disk died")
    kept = 0 if what in {"everything", "the key"} else 200
    assert (found["draws"], found["reasons"], found["restarts"]) == (kept, ["the disk died"], 1)
    write_lake(make_table(days=1, start=2800), lake)
    protect(champion, lake, counted)
    assert _ledger("verify", counted)["draws"] == kept + 200
    _lose(ledger_beside(counted), "everything")
    with pytest.raises(DataError, match="expected the draws of what the target shows"):  # the next loss is an error, too
        plan_of(make_options(champion, lake, counted))


def test_an_outdated_backup_is_not_enough(champion: Path, counted: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    write_lake(make_table(days=1, start=2800), lake)
    protect(champion, lake, counted)
    _lose(ledger_beside(counted), "everything")
    assert _ledger("restore", counted, str(tmp_path / "backup"))["draws"] == 800
    with pytest.raises(DataError, match="expected the draws of what the target shows"):
        plan_of(make_options(champion, lake, counted))


def test_a_key_of_another_ledger_is_rejected(champion: Path, counted: Path, tmp_path: Path) -> None:
    lake, foreign = tmp_path / "lake", tmp_path / "foreign" / "out"
    protect(champion, lake, foreign)
    _ledger("backup", foreign, str(tmp_path / "theirs"))
    with pytest.raises(ConfigError, match="expected a backup under the key"):
        _ledger("restore", counted, str(tmp_path / "theirs"))
    shutil.copy(ledger_beside(foreign) / "ledger.key", ledger_beside(counted) / "ledger.key")
    write_lake(make_table(days=1, start=2800), lake)
    with pytest.raises(ConfigError, match=r"expected the ledger's key .*, found"):
        protect(champion, lake, counted)
    shutil.rmtree(ledger_beside(foreign))
    with pytest.raises(DataError, match="expected a draw ledger, found none"):
        _ledger("verify", foreign)


def _pairs(records: int) -> dict[str, PairArray]:
    rows = np.arange(1, records + 1, dtype=np.uint64)
    return {"day": np.stack([rows, rows], axis=1)}


def test_of_writers_at_once_as_many_count_as_the_limit_allows(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    ledger.key()

    def draw(number: int) -> bool:
        try:
            Ledger(tmp_path / "ledger").record(f"draw-{number}", _pairs(1000), 1, None)
        except ConfigError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(draw, range(8))) == 1
        assert all(threads.map(lambda reason: ledger.record("same", _pairs(9), 2, reason), ["why"] * 8))
    assert verify(ledger)["draws"] == 1009


def test_a_writer_that_shares_no_lock_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both count, so nothing is published twice: too high a count is safe."""
    mine, theirs = Ledger(tmp_path / "ledger"), Ledger(tmp_path / "ledger")
    mine.key()
    keep = mine.keep_segment

    def meanwhile() -> tuple[str, int]:
        kept = keep()
        monkeypatch.setattr(theirs, "lock", lambda: open("/dev/null"))  # noqa: SIM115, PTH123
        theirs.record("theirs", _pairs(5), 1, None)
        return kept

    monkeypatch.setattr(mine, "keep_segment", meanwhile)
    with pytest.raises(ConfigError, match="drawn 2 times"):
        mine.record("mine", _pairs(5), 1, None)
    assert verify(mine)["draws"] == 10


def _as_before(target: Path, lake: Path, key: Path | None = None) -> Path:
    """Makes a target one of the release before: with a ledger of its own in its state, and none noted; the ledger's key."""
    path, old = (target / "current").resolve() / "_manifest.json", state_of(str(target)) / "ledger"
    raw = json.loads(path.read_text())
    del raw["ledger"]
    path.write_text(json.dumps(raw))
    shutil.rmtree(ledger_beside(target), ignore_errors=True)
    old.mkdir()
    shutil.copy(key, old / "ledger.key") if key else new_key(old / "ledger.key")
    ids = pq.read_table(lake).column("call").to_pylist()
    hashes = np.sort(keyed_words(find_key(old / "ledger.key", {}), "ledger", (KEY.dataset,), ids)).astype("<u8")
    for draw in (load_manifest(path).partitions[DAY].pins.draw, "0123456789abcdef"):
        (old / f"{draw}-000001.u64").write_bytes(hashes.tobytes())
    (old / "0123456789abcdef-000001.json").write_text('{"redraw": "the first rotation"}')
    return old / "ledger.key"


def test_the_ledger_of_an_earlier_release_is_taken_over(champion: Path, lake: Path, tmp_path: Path) -> None:
    target, other, third = tmp_path / "out", tmp_path / "other", tmp_path / "third"
    for place in (target, other, third):
        protect(champion, lake, place)
    key = _as_before(target, lake)
    _as_before(other, lake, key)
    _as_before(third, lake)
    assert protect(champion, lake, target)[1] is None  # nothing to do, nothing written
    assert not ledger_beside(target).exists()
    write_lake(make_table(days=1, start=2600), lake)
    _, manifest = protect(champion, lake, target)
    assert manifest is not None
    found = _ledger("verify", target)
    assert (found["draws"], found["reasons"]) == (1400, ["the first rotation"])
    protect(champion, lake, other)  # the same draws under the same key count once
    assert _ledger("verify", target)["draws"] == 2600  # with repetitions, which are found when they are counted
    _, manifest = protect(champion, lake, target, key=with_key(1), redraw="another rotation")
    assert manifest is not None
    assert sorted(one.draws for one in manifest.partitions.values()) == [2, 3, 3, 3]
    _change(lake, 1)
    with pytest.raises(DataError, match=r"under another key.*lake ledger restart"):
        protect(champion, lake, third)
    _ledger("restart", third, "--reason", "the third target had a key of its own")
    _, manifest = protect(champion, lake, third)  # what was taken over counts, what was not is given up for that reason
    assert manifest is not None
    assert manifest.partitions[DAY].draws == 3


def test_a_lost_ledger_of_an_earlier_release_is_an_error(champion: Path, lake: Path, tmp_path: Path) -> None:
    protect(champion, lake, tmp_path / "out")
    _as_before(tmp_path / "out", lake)
    shutil.rmtree(state_of(str(tmp_path / "out")) / "ledger")
    with pytest.raises(DataError, match="expected the draws of what the target shows"):
        plan_of(make_options(champion, lake, tmp_path / "out"))
