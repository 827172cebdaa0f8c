"""The tables' own dvc.yaml: a stage for every table, and one that is really reproduced."""

import shutil
from pathlib import Path
from typing import Any

import yaml

from tasks.paper_tables.definition import load_table, table_names
from tests.conftest import PROJECT
from tests.flows.test_dvc import _run
from tests.tasks.paper_tables.tiny import TABLE, write_project, write_table

STAGES = PROJECT / "benchmarks" / "tables" / "dvc.yaml"


def test_every_table_has_a_stage_with_its_data() -> None:
    content: dict[str, Any] = yaml.safe_load(STAGES.read_text())
    datasets = {name: load_table(name).the_setup().dataset for name in table_names() if name != "demo"}
    assert content["vars"] == [{"tables": datasets}]
    assert set(content["stages"]) == {"demo", "quick", "full"}
    for name, stage in content["stages"].items():
        described = stage.get("do", stage)
        assert {"pass_core", "tasks", "flows/cli/bench.py"} <= set(described["deps"])  # all code that a table can come from
        assert ("--quick" in described["cmd"]) == (name != "full")


def test_stage_is_reproduced_and_cells_outlive_a_change_of_words(tmp_path: Path) -> None:
    for name in ("pass_core", "tasks", "flows", ".dvc"):
        shutil.copytree(PROJECT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "cache", "tmp"))
    (tmp_path / "benchmarks" / "tables").mkdir(parents=True)
    shutil.copy(STAGES, tmp_path / "benchmarks" / "tables")
    shutil.copy(PROJECT / ".dvcignore", tmp_path)
    write_project(tmp_path)
    definitions = tmp_path / "tasks" / "paper_tables" / "definitions"
    write_table(definitions, "demo", rows=TABLE["rows"][:1])  # type: ignore[index]
    _run(tmp_path, "git", "init", "--quiet", "--initial-branch=main")
    stage = "benchmarks/tables/dvc.yaml:demo"
    _run(tmp_path, "dvc", "repro", stage)
    table, cells = tmp_path / "data" / "tables" / "demo-quick.md", tmp_path / "data" / "bench"
    before = {path: path.stat().st_mtime_ns for path in cells.glob("c*/*.json")}
    assert "| Nothing |" in table.read_text()
    assert len([path for path in before if path.parent.name == "cells" and ".note" not in path.name]) == 1
    assert "Running stage" not in _run(tmp_path, "dvc", "repro", stage)
    write_table(definitions, "demo", rows=TABLE["rows"][:1], note="Said better.")  # type: ignore[index]
    assert "Running stage" in _run(tmp_path, "dvc", "repro", stage)
    assert "Said better." in table.read_text()
    assert {path: path.stat().st_mtime_ns for path in cells.glob("c*/*.json")} == before
    printed = _run(tmp_path, "dvc", "repro", "benchmarks/tables/dvc.yaml:quick@T8", code=255)
    assert "data/raw/motionsense" in printed
