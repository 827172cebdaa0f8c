"""A tiny table from raw files to pages, through the command line; stopped in the middle, and gone on with."""

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from pass_core.errors import ConfigError, DataError, StageFailed
from tasks.storage.code_digest import PROJECT
from tests.tasks.paper_tables.tiny import TABLE, write_project, write_table

ONE_ROW = {"rows": [TABLE["rows"][0]]}  # type: ignore[index]


def _bench(folder: Path, *arguments: str, workers: int = 1) -> str:
    command = ["bench", *arguments, "--root", str(folder / "root"), "--params", str(folder / "params.yaml")]
    result = CliRunner().invoke(app, [*command, "--workers", str(workers), "--quiet"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose tiny table is computed, two seeds, by two workers."""
    folder = tmp_path_factory.mktemp("bench")
    write_project(folder)
    _bench(folder, str(write_table(folder)), workers=2)
    return folder


def _with_features(finished: Path, folder: Path) -> None:
    """Another project with the same data, features extracted but nothing computed."""
    write_project(folder)
    shutil.copytree(finished / "root" / "data", folder / "root" / "data")


def _csv(folder: Path, name: str = "tiny") -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((folder / "root" / "tables" / f"{name}.csv").read_text())))


def _cells(folder: Path) -> list[Path]:
    return [path for path in sorted((folder / "root").glob("c*/*.json")) if not path.name.endswith(".note.json")]


def test_attack_succeeds_without_protection_and_less_with_it(finished: Path) -> None:
    """The control of every table: `identity` leaves the attacker where originals put him."""
    nag = {(row["row"], row["column"]): row["nag"] for row in _csv(finished)}
    assert float(nag["Nothing", "gender"]) > 80
    assert float(nag["Nothing", "activity"]) > 80
    assert float(nag["PASS", "gender"]) < float(nag["Nothing", "gender"]) - 30
    assert nag["Too large", "gender"] == ""
    assert nag["PASS", "id, protector"] == ""  # it was trained against nobody


def test_impossible_row_is_told_and_the_rest_is_there(finished: Path) -> None:
    text = (finished / "root" / "tables" / "tiny.md").read_text()
    assert "No figures for Too large: pool.donors" in text
    assert "2 seeds" not in text
    assert "seeds: 2" in text


def test_markdown_csv_and_page_agree(finished: Path) -> None:
    tables = finished / "root" / "tables"
    text, page = (tables / "tiny.md").read_text(), (tables / "tiny.html").read_text()
    lines: dict[str, list[str]] = {}
    for line in text.splitlines():
        label, *shown = line.strip("| ").split(" | ")
        lines.setdefault(label, shown)  # the table comes first, what accuracy cannot see after it
    cells: dict[str, list[str]] = {}
    for row in re.finditer(r'<tr><th scope="row">([^<]*)</th>(<td.*?)</tr>', page):
        cells.setdefault(row[1], re.findall(r"<td[^>]*>(.*?)</td>", row[2]))
    columns = TABLE["columns"]
    compared = 0
    kept = ("nag", "deviation", "accuracy", "paper_nag", "paper_deviation", "paper_accuracy", "difference")
    for entry in _csv(finished):
        place = columns.index(entry["column"])  # type: ignore[attr-defined]
        expected = [float(entry[name]) for name in kept if entry[name]]
        for text in (lines[entry["row"]][place], re.sub("<[^>]*>", " ", cells[entry["row"]][place])):
            numbers = [float(n) for n in re.findall(r"-?\d+\.\d", text.replace("−", "-"))]
            assert numbers == pytest.approx(expected, abs=0.0501), (entry, text)  # one digit of them
            compared += len(expected)
    assert compared > 60


def test_difference_is_ours_less_the_papers(finished: Path) -> None:
    row = next(row for row in _csv(finished) if (row["row"], row["column"]) == ("PASS", "activity"))
    assert float(row["difference"]) == pytest.approx(float(row["nag"]) - 98.1, abs=0.06)


def test_page_needs_nothing_from_elsewhere(finished: Path) -> None:
    page = (finished / "root" / "tables" / "tiny.html").read_text()
    assert "<svg" in page
    assert not re.search(r'(src|href)="(?!#)', page)
    assert "<script" not in page


def test_every_cell_has_an_mlflow_run(finished: Path) -> None:
    import sqlite3

    notes = [json.loads(path.read_text()) for path in (finished / "root").glob("c*/*.note.json")]
    runs = {note["mlflow_run"] for note in notes}
    assert len(notes) == len(_cells(finished)) == len(runs) == 2 * (3 + 3)
    with sqlite3.connect(finished / "mlflow" / "mlflow.db") as store:
        kept = dict(store.execute("select run_uuid, status from runs"))
        metrics = {name for (name,) in store.execute("select distinct key from metrics")}
    assert {kept[run] for run in runs} == {"FINISHED"}
    assert {"gender.attacker", "activity.unfinetuned", "total", "seconds"} <= metrics


def test_second_run_computes_nothing_and_gives_the_same_files(finished: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in _cells(finished)}
    tables = {path: path.read_bytes() for path in (finished / "root" / "tables").iterdir()}
    _bench(finished, str(finished / "tiny.yaml"))
    assert {path: path.stat().st_mtime_ns for path in _cells(finished)} == before
    assert {path: path.read_bytes() for path in (finished / "root" / "tables").iterdir()} == tables


def test_result_is_the_same_on_any_number_of_workers(finished: Path, tmp_path: Path) -> None:
    """One worker computes here, two in processes of their own; quick's one seed is the first of full's two."""
    _with_features(finished, tmp_path)
    _bench(tmp_path, str(write_table(tmp_path, **ONE_ROW)), "--quick")
    names = {path.name for path in _cells(tmp_path)}
    assert len(names) == 4
    for path in _cells(tmp_path):
        other = finished / "root" / path.relative_to(tmp_path / "root")
        assert other.read_bytes() == path.read_bytes()
    assert (tmp_path / "root" / "tables" / "tiny-quick.md").exists()


def test_unknown_setting_is_told_before_anything_is_computed(finished: Path, tmp_path: Path) -> None:
    rows = [{"label": "PASS", "method": "pass_substitution", "settings": {"temprature": 1}}]
    path = write_table(tmp_path, rows=rows)
    with pytest.raises(ConfigError, match=r"row 'PASS', settings: unknown temprature: expected some of preset, temperature"):
        _bench(finished, str(path))


def test_unknown_method_is_a_row_without_figures(finished: Path, tmp_path: Path) -> None:
    path = write_table(tmp_path, "only", rows=[{"label": "X", "method": "magic"}])
    with pytest.raises(StageFailed, match="magic"):
        _bench(finished, str(path))


def test_tables_are_listed() -> None:
    output = CliRunner().invoke(app, ["bench"]).output
    assert [line.split()[0] for line in output.splitlines()] == [*(f"T{n}" for n in range(1, 14)), "demo"]


def test_missing_data_says_which_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project(tmp_path)
    monkeypatch.setenv("PASS_RAW_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(
        DataError, match=rf"motionsense: expected its published files in {tmp_path}/nowhere/motionsense.*PASS_RAW_DATA"
    ):
        _bench(tmp_path, "T8", "--quick")


def _started(folder: Path, table: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "flows.cli", "bench", str(table), "--root", str(folder / "root"), "--workers", "2"]
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    return subprocess.Popen(
        [*command, "--params", str(folder / "params.yaml"), "--quiet"], env=environment, start_new_session=True
    )


def _group(leader: int) -> Iterator[int]:
    """Processes of a session that still run."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            yield int(stat.parent.name)


def _wait_until(condition: object, seconds: float = 300) -> None:
    until = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.05)


def test_killed_bench_goes_on_where_it_was(finished: Path, tmp_path: Path) -> None:
    _with_features(finished, tmp_path)
    table = write_table(tmp_path)
    process = _started(tmp_path, table)
    _wait_until(lambda: list((tmp_path / "root").glob("cells/*.json")))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    _wait_until(lambda: not list(_group(process.pid)), 30)  # workers end with their parent
    assert not (tmp_path / "root" / "tables").exists()
    before = {path: path.stat().st_mtime_ns for path in _cells(tmp_path)}
    assert before
    _bench(tmp_path, str(table))
    after = {path: path.stat().st_mtime_ns for path in _cells(tmp_path)}
    assert len(after) == 12 > len(before)
    assert {path: after[path] for path in before} == before
    assert len(_csv(tmp_path)) == 18
    notes = [json.loads(path.read_text()) for path in (tmp_path / "root").glob("c*/*.note.json")]
    assert len([note for note in notes if note["mlflow_run"]]) == 12  # also of cells that the killed one could not log
