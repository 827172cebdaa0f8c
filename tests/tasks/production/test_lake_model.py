"""Random sequences of everything that happens to a lake, against a model in memory (lake_model.py).

After each step the readers' rows are those that the model expects, each a donor's record, none twice and none lost; the same
draw met the same donor in all versions and targets; and the ledger counts each record's draws as the model does.
"""

import logging
import multiprocessing
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from pass_core.channel.draws import keyed_words
from pass_core.errors import ConfigError, DataError, DrawsRefused, PassError
from pass_core.randomness import stream
from tasks.expectations.suites import load_library
from tasks.production import crash_points
from tasks.production.draw_ledger import Ledger, heads
from tasks.production.erased import Erasures
from tasks.production.erasure import erase
from tasks.production.history import open_target, roll_back
from tasks.production.ledger_upkeep import back_up, restore, verify
from tasks.production.options import ProtectOptions, state_of
from tasks.production.run import Hooks, Outcome, execute, plan_of
from tasks.production.withdrawal import withdraw
from tasks.running.layout import Layout
from tasks.storage.parquet import read_folder
from tests.tasks.production.lake_model import Draw, Drawn, Expected, Model, Rows
from tests.tasks.production.lakes import KEY, SECTION, WIDTH, PassGate, make_options, with_key

logger = logging.getLogger(__name__)
FORK = multiprocessing.get_context("fork")
SETTINGS: dict[str, Any] = {
    "dataset": {"calls": SECTION | {"pass_through": ["day", "ticket"]}},
    "protect": {"audit_records": 200, "keep_versions": 3},
}
DAYS, DONORS_AT_MOST, KEYS_AT_MOST = [f"2026-11-{day:02d}" for day in range(1, 6)], 3, 4
places = st.integers(0, 1)
days, counts, reasons = st.sampled_from(DAYS), st.integers(1, 4), st.booleans()


class LakeMachine(RuleBasedStateMachine):
    """A lake, two targets of it, one ledger, and all that can happen to them."""

    champion: Path  # set by the tests
    seen: Counter[str]  # what happened, over all sequences: the tests require that it was enough

    def __init__(self) -> None:
        super().__init__()
        self.seen["sequences"] += 1
        self.folder = Path(tempfile.mkdtemp(prefix="lake-model-"))
        self.lake, self.roots = self.folder / "lake", [self.champion]
        self.ledger = Ledger(self.folder / "ledger" / KEY.dataset)
        self.model, self.tickets, self.files, self.payloads = Model(), 0, 0, 0
        self.pools = [_pool(self.champion)]

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    # The source

    @initialize()
    def first_day(self) -> None:
        self._add_file(DAYS[0], 3)

    @rule(day=days, count=counts)
    def records_arrive(self, day: str, count: int) -> None:
        """A new partition, or a late file."""
        self._add_file(day, count)

    @precondition(lambda self: self.model.source)
    @rule(data=st.data(), change=st.booleans())
    def rows_change(self, data: st.DataObject, change: bool) -> None:
        """Some records of a file get another payload, or are deleted from it."""
        day = data.draw(st.sampled_from(sorted(self.model.source)), label="day")
        name = data.draw(st.sampled_from(sorted(self.model.source[day])), label="file")
        rows = self.model.source[day][name]
        if not rows:
            return
        chosen = data.draw(st.sets(st.sampled_from(sorted(rows)), min_size=1), label="records")
        self.payloads += 1
        kept = {ticket: payload for ticket, payload in rows.items() if change or ticket not in chosen}
        self._write(day, name, {ticket: self.payloads if ticket in chosen else payload for ticket, payload in kept.items()})

    @precondition(lambda self: len(self.model.source) > 1)
    @rule(data=st.data())
    def a_partition_is_deleted(self, data: st.DataObject) -> None:
        day = data.draw(st.sampled_from(sorted(self.model.source)), label="day")
        shutil.rmtree(self.lake / f"day={day}")
        del self.model.source[day]

    # Runs

    @rule(place=places, reason=reasons, drop_missing=st.booleans())
    def a_run(self, place: int, reason: bool, drop_missing: bool) -> None:
        self._run(place, reason=reason, drop_missing=drop_missing)

    @rule(place=places, step=st.sampled_from(crash_points.STEPS), reason=reasons, drop_missing=st.booleans())
    def a_run_is_killed(self, place: int, step: str, reason: bool, drop_missing: bool) -> None:
        target, expected = self.model.targets[place], self._expect(place, reason=reason, drop_missing=drop_missing)
        self.model.apply(target, expected, self._killed(step, self._options(place, reason=reason, drop_missing=drop_missing)))

    @precondition(lambda self: self.model.now.key < KEYS_AT_MOST)
    @rule(place=places)
    def the_key_is_rotated(self, place: int) -> None:
        self.model.now = Draw(self.model.now.key + 1, self.model.now.pool)
        self._run(place, reason=True, drop_missing=True)

    @precondition(lambda self: self.model.now.pool < DONORS_AT_MOST and any(target.live for target in self.model.targets))
    @rule(data=st.data(), place=places, reason=reasons)
    def a_donor_withdraws(self, data: st.DataObject, place: int, reason: bool) -> None:
        """One that readers can see, if there is one."""
        pool, shown = self.pools[-1], set()
        for part in (part for target in self.model.targets for part in target.live.values()):
            shown |= {self.model.donors[one] for one in part.draws()}
        donor = data.draw(st.sampled_from(sorted(shown & set(pool.values())) or sorted(pool.values())), label="donor")
        table = read_folder(self.champion / "pools" / KEY.dataset)
        after = self.folder / f"models-{len(self.roots)}"
        section = self._options(place).load_config().dataset[KEY.dataset]
        ids = [table.column("record_id")[donor].as_py()]
        withdraw(Layout(self.roots[-1]), Layout(after), KEY.dataset, section, ids, by="record")
        self.roots.append(after)
        self.pools.append({vector: number for vector, number in pool.items() if number != donor})
        self.model.now = Draw(self.model.now.key, self.model.now.pool + 1)
        self.model.withdrawn[self.model.now.pool] = donor
        self._run(place, reason=reason, drop_missing=False)

    # Versions and erasures

    @precondition(lambda self: any(target.live for target in self.model.targets))
    @rule(data=st.data(), place=places, step=st.sampled_from((None, None, *crash_points.STEPS)), reason=reasons)
    def records_are_erased(self, data: st.DataObject, place: int, step: str | None, reason: bool) -> None:
        target = self.model.targets[place]
        if not target.live:
            return
        known = {ticket for day in self.model.source for ticket in self.model.records(day, target)}
        known |= {ticket for part in target.live.values() for ticket in part.rows}
        if not known:
            return
        tickets = data.draw(st.sets(st.sampled_from(sorted(known)), min_size=1, max_size=2), label="erased")
        self.model.erase(target, tickets)
        ended: list[str | None] = []

        def run(options: ProtectOptions) -> None:
            if step is None:
                self._run(place, reason=reason, drop_missing=False)
            else:
                expected = self._expect(place, reason=reason, drop_missing=False)
                self.model.apply(target, expected, self._killed(step, options))
            ended.append(step)

        erase(self._options(place, reason=reason), sorted(map(_record, tickets)), (), "asked for it", run=run)
        assert ended
        self.seen["erasure"] += 1

    @precondition(lambda self: any(len(target.versions) > 1 for target in self.model.targets))
    @rule(data=st.data(), place=places)
    def an_older_version_is_restored(self, data: st.DataObject, place: int) -> None:
        opened, target = open_target(str(self._target(place))), self.model.targets[place]
        older = sorted(set(opened.manifests()) - {len(target.versions)})
        if older:
            number = data.draw(st.sampled_from(older), label="version")
            roll_back(opened, number)
            self.seen["rollback"] += 1
            self.model.roll_back(target, number)

    # The ledger

    @precondition(lambda self: self.model.drawn)
    @rule(data=st.data(), everything=st.booleans())
    def the_ledger_is_lost_and_restored(self, data: st.DataObject, everything: bool) -> None:
        back_up(self.ledger, self.folder / "backup")
        last = heads(self.ledger.entries())
        kept = [path for path in sorted(self.ledger.folder.iterdir()) if path.suffix in {".json", ".draws", ".key"}]
        number = data.draw(st.integers(0, len(kept) - 1), label="file")
        lost = kept if everything else kept[number : number + 1]
        for path in lost:
            path.unlink()
        if [path.stem for path in lost] != [*last]:  # no other entry names the last one
            with pytest.raises((DataError, ConfigError)):
                verify(self.ledger)
        for place in range(2):
            live = open_target(str(self._target(place))).current()
            if live and live.ledger and live.ledger["entry"] in {path.stem for path in lost}:
                with pytest.raises((DataError, ConfigError)):
                    plan_of(self._options(place))
        restore(self.ledger, self.folder / "backup")

    # What must hold

    @invariant()
    def readers_find_what_the_model_expects(self) -> None:
        self.seen["steps"] += 1
        for place, target in enumerate(self.model.targets):
            folder, live = self._target(place), len(target.versions)
            assert (folder / "current").exists() == (live > 0)
            found = [int(path.name) for path in (folder / "versions").glob("*")]
            found = [number for number in found if number <= live]  # a later one was not published: its run was killed
            assert live in found or not live
            for number in found:
                self._compare(folder / "versions" / f"{number:06d}", target.versions[number - 1])
            if live:
                assert (folder / "current").resolve().name == f"{live:06d}"
            unfinished = Erasures(state_of(str(folder))).unfinished()
            if target.erased and not unfinished:
                shown = {ticket for n in found for part in target.versions[n - 1].values() for ticket in part.rows}
                assert not shown & target.erased

    @invariant()
    def the_ledger_counts_every_draw_once(self) -> None:
        entries = self.ledger.entries() if self.ledger.folder.exists() else {}
        held: dict[int, list[tuple[str, int]]] = {}
        for entry in (one for one in entries.values() if one.rows):
            for record, payload in np.fromfile(self.ledger.segment_path(entry), "<u8").reshape(-1, 2).tolist():
                held.setdefault(record, []).append((entry.draw, payload))
        tickets = sorted({one.ticket for one in self.model.drawn})
        words = keyed_words(self.ledger.key(), "ledger", (KEY.dataset,), map(_record, tickets)).tolist() if tickets else []
        assert set(held) == set(words)
        for ticket, word in zip(tickets, words, strict=True):
            expected = [one for one in self.model.drawn if one.ticket == ticket]
            assert len(held[word]) == len(set(held[word])) == len(expected)  # draws, none counted twice
            assert len({payload for _, payload in held[word]}) == len({one.payload for one in expected})
            assert len({draw for draw, _ in held[word]}) == len({one.draw for one in expected})

    # Helpers

    def _add_file(self, day: str, count: int) -> None:
        rows = {f"{self.tickets + number:06d}": 0 for number in range(count)}
        self.tickets, self.files = self.tickets + count, self.files + 1
        self._write(day, f"part-{self.files}.parquet", rows)

    def _write(self, day: str, name: str, rows: Rows) -> None:
        path = self.lake / f"day={day}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(_table(rows), path)
        self.model.source.setdefault(day, {})[name] = rows

    def _target(self, place: int) -> Path:
        return self.folder / f"out-{place}"

    def _options(self, place: int, *, reason: bool = False, drop_missing: bool = False) -> ProtectOptions:
        more = {"redraw": "approved by the model" if reason else None, "drop_missing": drop_missing}
        key = with_key(self.model.now.key)
        return make_options(self.roots[-1], self.lake, self._target(place), params=SETTINGS, key=key, **more)

    def _expect(self, place: int, *, reason: bool, drop_missing: bool) -> Expected:
        return self.model.run(self.model.targets[place], reason=reason, drop_missing=drop_missing)

    def _run(self, place: int, *, reason: bool, drop_missing: bool) -> None:
        """A run, with the ending that the model expects."""
        expected = self._expect(place, reason=reason, drop_missing=drop_missing)
        options = self._options(place, reason=reason, drop_missing=drop_missing)
        refusals: dict[str, type[PassError]] = {"early": DrawsRefused, "late": DrawsRefused, "missing": DataError}
        if expected.ending in refusals:
            with pytest.raises(refusals[expected.ending]):
                execute(options, Hooks(gate=PassGate()))
        else:
            done: Outcome = execute(options, Hooks(gate=PassGate()))
            assert (done.manifest is None) == (expected.version is None)
        target = self.model.targets[place]
        self.seen[f"run: {expected.ending}"] += 1
        self.model.apply(target, expected)
        if expected.ending in ("published", "unchanged"):  # whatever happened before
            assert {day: part.rows for day, part in target.live.items()} == {
                day: self.model.records(day, target) for day in self.model.source
            }
            assert not Erasures(state_of(str(self._target(place)))).unfinished()

    def _killed(self, step: str, options: ProtectOptions) -> str | None:
        """The step where the run died; None where it did not come so far, and ended by itself."""
        process = FORK.Process(target=_die_at, args=(step, options))
        process.start()
        process.join(120)
        assert process.exitcode in (0, -signal.SIGKILL)
        self.seen[f"killed: {step}"] += bool(process.exitcode)
        return step if process.exitcode else None

    def _compare(self, version: Path, expected: dict[str, Any]) -> None:
        found = {}
        for path in sorted(version.glob("*/*.parquet")):
            assert path.parent.name not in found
            found[path.parent.name] = pq.read_table(path, partitioning=None)
        assert set(found) == {f"day={day}" for day in expected}
        for day, part in expected.items():
            table = found[f"day={day}"]
            tickets = table.column("ticket").to_pylist()
            assert sorted(tickets) == sorted(part.rows)
            for ticket, vector in zip(tickets, table.column("vector").to_pylist(), strict=True):
                drawn = Drawn(ticket, part.rows[ticket], part.draw)
                donor = self.pools[part.draw.pool][_bytes(vector)]  # a KeyError: nobody's record, or one of who withdrew
                assert self.model.donors.setdefault(drawn, donor) == donor


def _die_at(step: str, options: ProtectOptions) -> None:
    """In a process of its own: exit code 0 also where the run is refused."""
    os.environ[crash_points.CRASH_AT] = step
    try:
        execute(options, Hooks(gate=PassGate()))
    except PassError:
        os._exit(0)
    os._exit(0)


def _record(ticket: str) -> str:
    return f"call-{ticket}"


def _table(rows: Rows) -> pa.Table:
    """Records whose values follow from ticket and payload."""
    vectors = [stream(17, ticket, str(payload)).normal(size=WIDTH).astype(np.float32) for ticket, payload in rows.items()]
    flat = np.concatenate(vectors) if vectors else np.zeros(0, dtype=np.float32)
    text = {
        "call": [_record(ticket) for ticket in rows],
        "customer": [f"customer-{int(ticket) % 5}" for ticket in rows],
        "gender": ["fm"[int(ticket) % 2] for ticket in rows],
        "topic": [f"t{int(ticket) % 3}" for ticket in rows],
        "ticket": list(rows),
    }
    columns = {name: pa.array(values, pa.string()) for name, values in text.items()}
    return pa.table(columns | {"vector": pa.FixedSizeListArray.from_arrays(pa.array(flat), WIDTH)})


def _bytes(vector: list[float]) -> bytes:
    return np.asarray(vector, dtype=np.float32).tobytes()


def _pool(root: Path) -> dict[bytes, int]:
    """Payload -> number of its donor."""
    vectors = read_folder(root / "pools" / KEY.dataset).column("payload").to_pylist()
    found = {_bytes(vector): number for number, vector in enumerate(vectors)}
    assert len(found) == len(vectors)
    return found


@pytest.fixture
def machine(champion: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], Counter[str]]:
    """Runs so many sequences of so many steps, the same ones each time, and counts what happened."""
    load_library()  # once, here, and not in every process that is killed
    # Half of a small run is the pages of Great Expectations; tests beside look at them.
    monkeypatch.setattr("tasks.production.protection.check_partitions", lambda *_: None)
    monkeypatch.setattr(LakeMachine, "champion", champion, raising=False)
    monkeypatch.setattr(LakeMachine, "seen", Counter(), raising=False)

    def run(sequences: int, steps: int) -> Counter[str]:
        profile = settings(
            max_examples=sequences,
            stateful_step_count=steps,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink],
        )
        run_state_machine_as_test(LakeMachine, settings=profile)
        logger.warning("%s", dict(sorted(LakeMachine.seen.items())))  # shown with pytest -rA
        return LakeMachine.seen

    return run


def test_a_few_random_sequences_agree_with_the_model(machine: Callable[[int, int], Counter[str]]) -> None:
    seen = machine(4, 12)
    assert seen["steps"] >= 30
    assert seen["run: published"] >= 3


@pytest.mark.slow
def test_many_random_sequences_agree_with_the_model(machine: Callable[[int, int], Counter[str]]) -> None:
    """Ten minutes and more; each step of a run is a place to die, and each ending is reached."""
    seen = machine(60, 40)
    endings = [f"run: {ending}" for ending in ("published", "unchanged", "missing", "early", "late")]
    assert not [name for name in (*endings, "rollback", "erasure") if not seen[name]]
    assert sum(seen[f"killed: {step}"] > 0 for step in crash_points.STEPS) >= 15
