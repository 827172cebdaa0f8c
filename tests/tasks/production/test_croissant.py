"""The description of a published version: valid by its own validator, readable with it, and without anything that is private."""

import json
import logging
import re
from pathlib import Path
from typing import Any

import mlcroissant
import numpy as np
import pyarrow.dataset as ds
import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from pass_core.errors import ChecksumMismatch
from tasks.production.history import open_target, roll_back
from tasks.production.run import Hooks
from tests.tasks.production.lakes import files_of, make_table, protect, released, write_lake
from tests.tasks.production.s3 import objects, s3_server

# Columns and values of the source that are not published.
PRIVATE = ("gender", "customer", '"secret"', '"call"', "call-", "note-")


def _described(target: Path) -> Path:
    """The description of the live version."""
    manifest = open_target(str(target)).current()
    assert manifest is not None
    assert manifest.croissant is not None
    return target / manifest.croissant.path


def _validated(path: Path, caplog: pytest.LogCaptureFixture) -> mlcroissant.Dataset:
    """The data set, which the validator accepts as version 1.1; it only misses what a run cannot know."""
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        dataset = mlcroissant.Dataset(jsonld=str(path))
    assert dataset.metadata.ctx.is_v1_1()
    assert not dataset.metadata.ctx.issues.errors
    missing = {re.findall(r'Property "([^"]+)" is recommended', line)[0] for line in dataset.metadata.ctx.issues.warnings}
    assert missing <= {"http://mlcommons.org/croissant/citeAs", "https://schema.org/datePublished", "https://schema.org/license"}
    assert "not standard" not in caplog.text
    assert json.loads(path.read_text())["conformsTo"] == [
        "http://mlcommons.org/croissant/1.1",
        "http://mlcommons.org/croissant/RAI/1.0",
    ]
    return dataset


def test_the_validator_reads_what_was_published(
    champion: Path, lake: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    protect(champion, lake, tmp_path / "out")
    path = _described(tmp_path / "out")
    assert path.name == "_croissant.json"
    dataset = _validated(path, caplog)
    metadata = dataset.metadata
    assert (metadata.name, metadata.version) == ("calls", "1.0.0")
    expected = [
        (f"2026-11-{name[-2:]}", row["topic"], row["vector"])
        for name, table in released(tmp_path / "out").items()
        for row in table.to_pylist()
    ]
    found = [
        (row["records/day"].decode(), row["records/topic"].decode(), [float(value) for value in row["records/vector"]])
        for row in dataset.records("records")
    ]
    assert len(found) == 600
    assert sorted(found) == sorted(expected)
    assert np.isfinite([row[2] for row in found]).all()


def test_it_says_what_the_audit_found_and_names_nothing_private(champion: Path, lake: Path, tmp_path: Path) -> None:
    protect(champion, lake, tmp_path / "out", hooks=Hooks())  # the real gate
    text = _described(tmp_path / "out").read_text()
    document = json.loads(text)
    sensitive = " ".join(document["rai:personalSensitiveInformation"])
    assert re.search(r"Audit before publishing: pass, 20[01] of 600 new records \((labelled|champion)\)\.", sensitive), sensitive
    assert re.search(r"worst of 1 private attribute\(s\), attackers keep \d+\.\d % .*interval \d+\.\d % to \d+\.\d %", sensitive)
    assert "0 of 600 source records" in document["rai:dataCollectionMissingData"]
    assert not [word for word in PRIVATE if word in text]
    manifest = (tmp_path / "out" / "current" / "_manifest.json").read_text()
    assert "gender" in manifest  # the control: what it is made from does name it
    fields = [field["name"] for field in document["recordSet"][0]["field"]]
    assert sorted(fields) == ["day", "topic", "vector"]


def test_readers_of_the_lake_skip_it_and_bytes_are_the_same_again(champion: Path, lake: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        protect(champion, lake, tmp_path / name)
    one, two = (_described(tmp_path / name) for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    assert one.stat().st_mtime == 0
    assert ds.dataset(tmp_path / "one" / "current", partitioning="hive").count_rows() == 600


def test_every_version_has_its_own_also_after_a_rollback(champion: Path, lake: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    protect(champion, lake, target)
    write_lake(make_table(days=1, start=2600), lake)
    protect(champion, lake, target)
    roll_back(open_target(str(target)))
    found = [json.loads(path.read_text()) for path in sorted(target.glob("versions/*/_croissant.json"))]
    assert [one["version"] for one in found] == ["1.0.0", "2.0.0", "3.0.0"]
    assert [len(one["distribution"][0]["includes"]) for one in found] == [3, 4, 3]


def test_a_delta_table_has_one_per_version_that_is_kept(
    champion: Path, lake: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = tmp_path / "table"
    for start in (2600, 2800, 3000):
        protect(champion, lake, target, target_format="delta")
        write_lake(make_table(days=1, start=start), lake)
    protect(champion, lake, target, target_format="delta")
    names = sorted(path.name for path in target.glob("_croissant-*.json"))
    assert [name[: -len("-01234567.json")] for name in names] == ["_croissant-000003", "_croissant-000004"]
    dataset = _validated(_described(target), caplog)
    assert len(list(dataset.records("records"))) == 6 * 200


def test_an_object_store_has_one_per_version_that_is_kept(
    champion: Path, lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("moto.server", reason="needs a server for S3's protocol: pip install '.[dev]'")
    with s3_server() as settings:
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        for start in (2600, 2800, 3000):
            protect(champion, lake, "s3://lakes/described/out", state=tmp_path / "state")
            write_lake(make_table(days=1, start=start), lake)
        found = objects("described/out")
    names = sorted(name for name in found if name.startswith("_croissant-"))
    assert [name[: len("_croissant-000002")] for name in names] == ["_croissant-000002", "_croissant-000003"]
    for name, data in found.items():  # a copy of the whole target, as `aws s3 sync` makes one
        path = tmp_path / "copy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    dataset = _validated(tmp_path / "copy" / names[-1], caplog)
    assert len(list(dataset.records("records"))) == 5 * 200


@pytest.mark.parametrize("target_format", ["parquet", "delta"])
@pytest.mark.parametrize("damage", ["changed", "deleted"])
def test_verify_finds_a_damaged_one_and_repair_makes_it_again(
    champion: Path, lake: Path, tmp_path: Path, *, target_format: Any, damage: str
) -> None:
    target = tmp_path / "out"
    protect(champion, lake, target, target_format=target_format)
    path = _described(target)
    before = path.read_bytes()
    if damage == "changed":
        path.write_bytes(before.replace(b"calls", b"falls"))
    else:
        path.unlink()
    done = CliRunner().invoke(app, ["lake", "verify", str(target)])
    assert isinstance(done.exception, ChecksumMismatch)
    assert "found others or none in croissant.json; run it again with --repair" in str(done.exception)
    done = CliRunner().invoke(app, ["lake", "verify", str(target), "--repair"])
    assert done.exit_code == 0, done.exception
    assert "croissant.json: " in done.output
    assert path.read_bytes() == before
    assert path.stat().st_mtime == 0 or target_format == "delta"
    assert not list(files_of(target, lambda one: one.name.startswith("._")))
