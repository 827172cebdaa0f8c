"""Small increments: judged together with recent records, or published on the champion's standing, and never refused for size."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from pass_core.errors import AuditFailed
from tasks.production.options import state_of
from tasks.production.run import execute
from tasks.running.layout import Layout
from tasks.storage.files import read_json
from tests.tasks.production.lakes import KEY, PARAMS, make_options, make_table, released, with_key, write_lake

STRICT = {"audit": PARAMS["audit"] | {"thresholds": {}}, "protect": {"audit_records": 5000}}


@pytest.mark.parametrize("labels", [True, False])
def test_an_increment_of_few_records_is_never_refused_for_its_size(champion: Path, tmp_path: Path, labels: bool) -> None:
    """One, three and thirty records a day, under limits that so few records cannot decide."""
    lake, target, start = tmp_path / "lake", tmp_path / "out", 2000
    for number, rows in enumerate((1, 3, 30), start=1):
        table = make_table(days=1, per_day=rows, start=start)
        table = table.set_column(2, "day", pa.array([f"2026-12-{number:02d}"] * rows))
        write_lake(table if labels else table.drop_columns(["gender", "topic"]), lake)
        start += rows
        manifest = execute(make_options(champion, lake, target, params=dict(STRICT), key=with_key(4))).manifest
        assert manifest is not None
        audit = manifest.audit
        assert (audit["verdict"], audit["basis"]) == ("pass", "champion" if labels else "unlabelled")
        assert (audit["records"], audit["of"]) == (rows, rows)
        assert audit["details"]["recent"] == start - 2000 - rows
        assert ("too few" in audit["details"].get("note", "")) == (labels or start - 2000 < 20)
    assert {len(table) for table in released(target).values()} == {1, 3, 30}


def test_recent_records_decide_what_an_increment_cannot(champion: Path, lake: Path, tmp_path: Path) -> None:
    options = make_options(champion, lake, tmp_path / "out", key=with_key(4))
    execute(options)
    write_lake(make_table(days=1, per_day=20, start=7000), lake)
    manifest = execute(options).manifest
    assert manifest is not None
    assert manifest.audit["basis"] == "labelled"
    assert manifest.audit["records"] == 20
    assert manifest.audit["details"]["recent"] == 180  # audit_records together
    kept = list((state_of(str(tmp_path / "out")) / "audited").rglob("*.npz"))
    assert len(kept) == 2
    assert all(path.parent.stat().st_mode & 0o077 == 0 for path in kept)


def test_too_few_records_need_a_champion_that_passed(champion: Path, tmp_path: Path) -> None:
    """They decide nothing themselves, so that an audit that has expired stops them."""
    lake, root = write_lake(make_table(days=1, per_day=5, start=2000), tmp_path / "lake"), tmp_path / "own" / "root"
    shutil.copytree(champion, root)
    path = Layout(root).provenance("audit", KEY)
    path.write_text(json.dumps(read_json(path) | {"time": "2020-01-01T00:00:00+00:00"}))
    with pytest.raises(AuditFailed, match=r"day\(s\) old"):
        execute(make_options(root, lake, tmp_path / "out"))
    assert not (tmp_path / "out" / "current").exists()


def test_enough_records_that_decide_nothing_are_still_refused(champion: Path, lake: Path, tmp_path: Path) -> None:
    params = STRICT | {"protect": {"audit_records": 200}}
    with pytest.raises(AuditFailed, match="expected a passed audit before publishing"):
        execute(make_options(champion, lake, tmp_path / "out", params=dict(params), key=with_key(4)))
