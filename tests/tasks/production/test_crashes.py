"""kill -9 at every step of a run, concurrent writers, a full disk, Ctrl-C: nothing lost, doubled or half-published."""

import contextlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pass_core.errors import PassError, StorageError
from pass_core.randomness import stream
from tasks.expectations.suites import load_library
from tasks.production import crash_points
from tasks.production.draw_ledger import Ledger
from tasks.production.ledger_upkeep import verify
from tasks.production.options import state_of
from tasks.production.run import Hooks, execute
from tests.conftest import PROJECT
from tests.tasks.production.lakes import PassGate, ledger_beside, make_options, make_table, protect, published, write_lake

FORK = multiprocessing.get_context("fork")


def _die_at(step: str, *arguments: Any) -> None:
    """In a process of its own."""
    os.environ[crash_points.CRASH_AT] = step
    with contextlib.suppress(PassError):
        protect(*arguments)


def _kill_at(step: str, *arguments: Any) -> bool:
    """Whether the run came as far as the step, and died there."""
    process = FORK.Process(target=_die_at, args=(step, *arguments))
    process.start()
    process.join(120)
    assert not process.is_alive()
    return process.exitcode == -signal.SIGKILL


def _read(target: Path) -> dict[str, bytes] | None:
    """What a reader finds: a whole version whose every file can be read, or none yet."""
    if not (target / "current").exists():
        return None
    found = published(target)
    for name in found:
        pq.ParquetFile(target / "current" / name, page_checksum_verification=True).read()
    return found


@pytest.fixture(scope="module")
def versions(champion: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, bytes], dict[str, bytes]]:
    """Two lakes, the second with a day more, and what an undisturbed run publishes of each."""
    load_library()  # once, here, and not in every process that is killed
    folder = tmp_path_factory.mktemp("undisturbed")
    first, second = (
        write_lake(make_table(days=2, start=2000), folder / "first"),
        write_lake(make_table(start=2000), folder / "second"),
    )
    expected = []
    for lake in (first, second):
        protect(champion, lake, folder / f"{lake.name}-out")
        expected.append(published(folder / f"{lake.name}-out"))
    return first, second, expected[0], expected[1]


def _survives(step: str, champion: Path, versions: Any, target: Path) -> bool:
    """Kills the second of three runs; True when it died there. The first version is read until the second one is whole."""
    first, second, old, new = versions
    if not (target / "current").exists():
        protect(champion, first, target)
        # The older version's retirement is a step, too.
        assert _read(target) == old
    died = _kill_at(step, champion, second, target)
    seen = _read(target)
    assert seen in (old, new)
    protect(champion, second, target, drop_missing=True)
    assert _read(target) == new
    assert not (state_of(str(target)) / "staging").exists()
    assert verify(Ledger(ledger_beside(target)))["draws"] == 600  # each record once, whenever the run died
    return died


@pytest.mark.parametrize("step", crash_points.STEPS)
def test_killed_at_any_step_the_next_run_finishes(champion: Path, versions: Any, tmp_path: Path, step: str) -> None:
    if step == "retired one":
        first, second = versions[:2]
        target = tmp_path / "out"
        for lake in (first, second, first):
            protect(champion, lake, target, drop_missing=True)
        died = FORK.Process(target=_drop_and_die, args=(step, champion, second, target))
        died.start()
        died.join(120)
        assert died.exitcode == -signal.SIGKILL
        assert len(_read(target) or {}) == 3
        assert len(list((target / "versions").iterdir())) == 2
        return
    assert _survives(step, champion, versions, tmp_path / "out")


def _drop_and_die(step: str, champion: Path, lake: Path, target: Path) -> None:
    os.environ[crash_points.CRASH_AT] = step
    protect(champion, lake, target, drop_missing=True)


@pytest.mark.slow
def test_two_hundred_kills(champion: Path, versions: Any, tmp_path: Path) -> None:
    """Every step many times, the first, second or third time it is passed; and at instants that no step names."""
    rng, deaths = stream(5, "kills"), 0
    for round_ in range(220):
        step = crash_points.STEPS[round_ % len(crash_points.STEPS)]
        times = int(rng.integers(1, 4)) if step.startswith(("partition", "version half")) else 1
        deaths += _survives(f"{step}:{times}", champion, versions, tmp_path / str(round_))
    assert deaths >= 150
    for round_ in range(60):
        target = tmp_path / f"anywhen-{round_}"
        first, second, old, new = versions
        protect(champion, first, target)
        process = FORK.Process(target=protect, args=(champion, second, target))
        process.start()
        time.sleep(float(rng.uniform(0, 1.5)))
        process.kill()
        process.join()
        assert _read(target) in (old, new)
        protect(champion, second, target)
        assert _read(target) == new
        deaths += process.exitcode == -signal.SIGKILL
    assert deaths >= 200


def _compete(champion: Path, lake: Path, target: Path, barrier: Any, answers: Any) -> None:
    options = make_options(champion, lake, target)
    barrier.wait(60)
    try:
        done = execute(options, Hooks(gate=PassGate())).manifest
    except StorageError as error:
        answers.put(str(error))
    else:
        answers.put("published" if done else "nothing to do")  # that one planned after another had published


def test_eight_writers_one_wins(champion: Path, versions: Any, tmp_path: Path) -> None:
    _, second, _, new = versions
    target, barrier, answers = tmp_path / "out", FORK.Barrier(8), FORK.Queue()
    writers = [FORK.Process(target=_compete, args=(champion, second, target, barrier, answers)) for _ in range(8)]
    for writer in writers:
        writer.start()
    received = [answers.get(timeout=180) for _ in writers]
    for writer in writers:
        writer.join()
    assert received.count("published") == 1
    refused = [answer for answer in received if answer not in {"published", "nothing to do"}]
    assert refused
    assert all("another run" in answer for answer in refused), refused
    assert _read(target) == new
    assert [path.name for path in (target / "versions").iterdir()] == ["000001"]


def test_a_writer_that_lost_its_lease_publishes_nothing(champion: Path, versions: Any, tmp_path: Path) -> None:
    first, second, old, _ = versions
    target = tmp_path / "out"
    protect(champion, first, target)
    record = state_of(str(target)) / "writer.json"

    def losing(name: str, _title: str, body: Callable[[], Any]) -> Any:
        if name == "publish":
            record.write_text('{"owner": "elsewhere:1", "token": 99, "until": 0}')
        return body()

    with pytest.raises(StorageError, match="took over"):
        protect(champion, second, target, hooks=Hooks(gate=PassGate(), call=losing))
    assert _read(target) == old
    assert '"token": 99' in record.read_text()


def test_a_lease_of_another_machine_is_respected_until_it_ends(champion: Path, versions: Any, tmp_path: Path) -> None:
    first = versions[0]
    state = state_of(str(tmp_path / "out"))
    state.mkdir()
    record = state / "writer.json"
    record.write_text(f'{{"owner": "elsewhere:1", "token": 7, "until": {time.time() + 60}}}')
    with pytest.raises(StorageError, match="on another machine"):
        protect(champion, first, tmp_path / "out")
    record.write_text('{"owner": "elsewhere:1", "token": 7, "until": 1}')
    _, manifest = protect(champion, first, tmp_path / "out")
    assert manifest is not None
    assert manifest.token == 8
    record.write_text(f'{{"owner": "elsewhere:1", "token": 9, "until": {time.time() + 10**6}}}')  # its clock was wrong
    with pytest.raises(StorageError, match=r"expires in \d+ s; .*give --break-lock 'reason'"):
        protect(champion, versions[1], tmp_path / "out")
    _, manifest = protect(champion, versions[1], tmp_path / "out", break_lock="that machine was switched off")
    assert manifest is not None
    assert manifest.token == 10
    decision = json.loads((state / "decisions.jsonl").read_text())
    assert (decision["decision"], decision["reason"], decision["owner"]) == (
        "break-lock", "that machine was switched off", "elsewhere:1",
    )  # fmt: skip


def test_ctrl_c_keeps_what_is_staged_and_the_next_run_resumes(champion: Path, versions: Any, tmp_path: Path) -> None:
    _, second, _, new = versions
    titles: list[str] = []

    def interrupt(work: str, done: int, total: int, note: str = "") -> None:
        if 0 < done < total:
            raise KeyboardInterrupt

    def noting(_name: str, title: str, body: Callable[[], Any]) -> Any:
        titles.append(title)
        return body()

    with pytest.raises(KeyboardInterrupt):
        protect(champion, second, tmp_path / "out", hooks=Hooks(gate=PassGate(), progress=interrupt))
    protect(champion, second, tmp_path / "out", hooks=Hooks(gate=PassGate(), call=noting))
    assert titles == ["2 partition(s)", "publish calls"]
    assert _read(tmp_path / "out") == new


@contextlib.contextmanager
def _small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount a small file system (run as root)")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_full_disk_clears_staging_and_says_so(
    champion: Path, versions: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, old, new = versions
    with _small_disk(tmp_path / "disk", 8000) as disk:
        protect(champion, first, disk / "out")
        filler = disk / "filler"
        free = os.statvfs(disk)
        filler.write_bytes(bytes(free.f_bavail * free.f_bsize - 8 * 4096))
        monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 2**40})())
        with pytest.raises(StorageError, match=r"no space left.*Staging was cleared"):
            protect(champion, second, disk / "out")
        assert not (state_of(str(disk / "out")) / "staging").exists()
        assert _read(disk / "out") == old
        filler.unlink()
        protect(champion, second, disk / "out")
        assert _read(disk / "out") == new


def test_a_killed_worker_is_reported_and_the_next_run_resumes(
    champion: Path, versions: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also: two workers give the bytes that one gives, and workers do not outlive their parent."""
    _, second, _, new = versions
    monkeypatch.setenv(crash_points.CRASH_AT, "partition written")
    with pytest.raises(PassError, match="a worker died"):
        protect(champion, second, tmp_path / "out", workers=2)
    monkeypatch.delenv(crash_points.CRASH_AT)
    protect(champion, second, tmp_path / "out", workers=2)
    assert _read(tmp_path / "out") == new


def test_workers_end_with_a_parent_that_was_killed(champion: Path, versions: Any, tmp_path: Path) -> None:
    code = (
        "import os, time\n"
        "from pathlib import Path\n"
        "from tasks.production.run import Hooks\n"
        "from tests.tasks.production.lakes import PassGate, protect\n"
        "def wait(work, done, total, note=''):\n"
        "    if done:\n"
        "        print(*Path(f'/proc/self/task/{os.getpid()}/children').read_text().split(), flush=True)\n"
        "        time.sleep(60)\n"
        "if __name__ == '__main__':\n"
        f"    places = Path({str(champion)!r}), {str(versions[1])!r}, {str(tmp_path / 'out')!r}\n"
        "    protect(*places, workers=2, hooks=Hooks(gate=PassGate(), progress=wait))\n"
    )
    script = tmp_path / "parent.py"
    script.write_text(code)
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=environment)
    assert parent.stdout is not None
    workers = [int(pid) for pid in parent.stdout.readline().split()]
    assert workers
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 20
    while any(_alive(pid) for pid in workers):
        assert time.monotonic() < deadline
        time.sleep(0.2)


def _alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()
