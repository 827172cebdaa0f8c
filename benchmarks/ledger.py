"""Size and speed of the draw ledger: bytes per draw, seconds to verify it, look-ups per second of a run, and their memory.

python benchmarks/ledger.py [draws] [segments]: 10,000,000 records, drawn once each by 20 runs, whose pairs are made as workers
make them and written by `Ledger.record`. Then runs of 100,000, of 1,000,000 and of as many records as the ledger holds look
themselves up: half of them are in it (or all of it), the others are new and are appended, as when late files arrive. What
counts is all of `Ledger.record`: reading the ledger and comparing its digests, counting, writing and syncing; `counted` is
counting alone. Before verifying and before each `record` the ledger is dropped from the page cache; counting alone finds it
there. Each run has a process of its own. Its memory is what that process alone holds at its peak; pages of mapped files, which
the system takes back when it needs them, are shown apart. A ledger of a tenth of the draws in as many segments is for comparison.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from pass_core.channel.draws import keyed_words
from tasks.production.draw_counts import PairArray, count_draws, ledger_pairs
from tasks.production.draw_ledger import Ledger
from tasks.production.ledger_upkeep import verify

DATASET, DRAW, PARTITIONS, LOOK_UPS = "calls", "0123456789abcdef", 10, (100_000, 1_000_000)


def staged(key: bytes, records: range) -> dict[str, PairArray]:
    """What workers stage for the ledger: sorted pairs of hashes, for each of several partitions."""
    parts = {f"day={number:03d}": records[number::PARTITIONS] for number in range(PARTITIONS)}
    payloads = {name: np.array(part, dtype=np.uint64) for name, part in parts.items()}
    hashes = {name: keyed_words(key, "ledger", (DATASET,), (f"call-{k:010d}" for k in part)) for name, part in parts.items()}
    return {name: ledger_pairs(key, DATASET, hashes[name], payloads[name]) for name in parts}


def write_ledger(folder: Path, draws: int, segments: int) -> list[float]:
    """Seconds of each run's `record`."""
    ledger, seconds = Ledger(folder), []
    key = ledger.key()
    for number in range(segments):
        pairs = staged(key, range(draws * number // segments, draws * (number + 1) // segments))
        started = time.perf_counter()
        ledger.record(DRAW, pairs, 1, None)
        seconds.append(time.perf_counter() - started)
    return seconds


def forget(folder: Path) -> None:
    """Drops the ledger from the page cache."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def memory(name: str) -> float:
    """MB of this process."""
    found = re.search(rf"{name}:\s*(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else float("nan")


def look_up(folder: Path, draws: int, records: int) -> None:
    """Records a run in this process, and prints what it took."""
    ledger = Ledger(folder)
    held = min(records // 2, draws)
    known, new = (staged(ledger.key(), rows) for rows in (range(held), range(draws, draws + records - held)))
    pairs = {f"{name}/{kind}": part for kind, parts in (("known", known), ("new", new)) for name, part in parts.items()}
    del known, new
    kept = [np.memmap(ledger.segment_path(one), "<u8", "r", shape=(one.rows, 2)) for one in ledger.entries().values()]
    before, own, over = memory("RssAnon"), [0.0], threading.Event()

    def watch() -> None:
        while not over.wait(0.01):
            own.append(memory("RssAnon"))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    started = time.perf_counter()
    found = sum(len(one.new) for one in count_draws(list(pairs.values()), {DRAW: kept}, DRAW))
    counting = time.perf_counter() - started
    del kept
    forget(folder)
    started = time.perf_counter()
    counts, _ = ledger.record(DRAW, pairs, 1, None)
    seconds = time.perf_counter() - started
    over.set()
    watcher.join()
    assert found == records - held  # noqa: S101
    assert set(counts.values()) == {1}  # noqa: S101
    own_mb = {"own_mb": max(own) - before, "mapped_mb": memory("VmHWM") - max(own)}
    print(json.dumps({"seconds": seconds, "counting": counting, **own_mb}))


def measure_look_up(folder: Path, draws: int, records: int) -> dict[str, float]:
    """Looks up in a copy of the ledger, by a process of its own."""
    copy = shutil.copytree(folder, folder.with_name("copy"))
    os.sync()  # only what is on the disk can be dropped from the page cache
    command = [sys.executable, __file__, "--look-up", str(copy), str(draws), str(records)]
    found: dict[str, float] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    shutil.rmtree(copy)
    return found


def main() -> None:
    """Measures and prints the RESULT line."""
    if sys.argv[1:2] == ["--look-up"]:
        look_up(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
        return
    draws, segments = (int(sys.argv[k]) if len(sys.argv) > k else default for k, default in ((1, 10_000_000), (2, 20)))
    folder = Path(tempfile.mkdtemp(prefix="ledger-", dir=os.environ.get("TMPDIR")))
    try:
        write_ledger(folder / "small", draws // 10, segments)
        written = write_ledger(folder / "large", draws, segments)
        size = sum(path.stat().st_size for path in (folder / "large").iterdir())
        forget(folder / "large")
        started = time.perf_counter()
        assert verify(Ledger(folder / "large"))["draws"] == draws  # noqa: S101
        verifying = time.perf_counter() - started
        looked = {records: measure_look_up(folder / "large", draws, records) for records in sorted({*LOOK_UPS, draws})}
        small = measure_look_up(folder / "small", draws // 10, LOOK_UPS[0])
    finally:
        shutil.rmtree(folder)
    print(
        f"{draws} draws in {segments} segments: {size / draws:.3f} bytes per draw; the last run recorded in {written[-1]:.2f} s"
    )
    print(f"to verify it: {verifying:.2f} s, {size / verifying / 1e6:.0f} MB/s")
    for records, found in looked.items():
        print(f"a run of {records} records: {found['seconds']:.2f} s (counting alone, cached: {found['counting']:.2f} s);")
        print(f"  {found['own_mb']:.0f} MB of its own, {found['mapped_mb']:.0f} MB of mapped files")
    result = {f"look_ups_per_second_{records}": round(records / found["seconds"]) for records, found in looked.items()}
    result |= {f"counted_per_second_{records}": round(records / found["counting"]) for records, found in looked.items()}
    more = {
        "bytes_per_draw": round(size / draws, 3),
        "verify_s": round(verifying, 3),
        "own_mb": {records: round(found["own_mb"]) for records, found in looked.items()},
        "memory_10x": round(looked[LOOK_UPS[0]]["own_mb"] / small["own_mb"], 3),
        "draws": draws,
        "segments": segments,
    }
    print("RESULT " + json.dumps(result | more))


if __name__ == "__main__":
    main()
