"""What a run leaves as figures: one line of JSON, and text that Prometheus and OpenMetrics parsers read."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as older_format

from pass_core.errors import AuditFailed, DrawsRefused, PartitionsQuarantined
from tasks.production import crash_points
from tasks.production.metrics import as_text
from tasks.production.options import state_of
from tasks.production.run import Hooks, execute
from tasks.production.run_log import read_runs
from tests.tasks.production.lakes import FailGate, make_options, make_table, protect, with_key, write_lake


def _samples(path: Path) -> dict[tuple[str, ...], float]:
    """Name and the values of the labels beside data set and target -> value; the same from both parsers."""
    text = path.read_text()
    found: list[dict[tuple[str, ...], float]] = []
    for parse in (open_metrics, older_format):
        samples = [sample for family in parse(text) for sample in family.samples]
        assert len({sample.labels["target"] for sample in samples}) == 1
        found.append({
            (s.name.removeprefix("pass_lake_"), *(v for k, v in s.labels.items() if k not in ("dataset", "target"))): s.value
            for s in samples
        })  # fmt: skip
        assert len(found[-1]) == len(samples)
    assert found[0] == found[1]
    return found[0]


def test_every_run_leaves_a_line_and_metrics(
    champion: Path, lake: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target, state = tmp_path / "out", state_of(str(tmp_path / "out"))
    with caplog.at_level(logging.INFO, "tasks.production.run_log"):
        execute(make_options(champion, lake, target))  # with the real audit
    logged = json.loads(next(r.getMessage() for r in caplog.records if r.getMessage().startswith("run: ")).removeprefix("run: "))
    (run,) = read_runs(state)
    size = sum(path.stat().st_size for path in (target / "current").rglob("*.parquet"))
    assert (run.partitions, run.rows, run.bytes, run.draws, run.retries, run.refused) == (3, 600, size, 600, 0, {})
    assert run.seconds > 0
    assert run.rows_per_s == pytest.approx(600 / run.seconds, rel=0.01)
    assert {name: logged[name] for name in ("rows", "bytes", "draws")} == {"rows": 600, "bytes": size, "draws": 600}
    found = _samples(state / "metrics.prom")
    assert found["run_rows",] == found["published_rows",] == found["run_draws",] == 600
    assert (found["run_partitions",], found["version",], found["run_bytes",]) == (3, 1, size)
    assert found["run_rows_per_second",] == run.rows_per_s
    assert (found["run_success",], found["run_outcome", "published"], found["run_outcome", "failed"]) == (1, 1, 0)
    assert (found["audit_passed",], found["audit_records",]) == (1, run.audit["records"])
    nag = run.audit["details"]["attributes"]["gender"]
    bounds = {bound: found["audit_nag", "gender", "private", "labelled", bound] for bound in ("nag", "low", "high")}
    assert bounds == {bound: nag[bound] for bound in bounds}

    protect(champion, lake, target)  # nothing to do
    found = _samples(state / "metrics.prom")
    assert (found["run_outcome", "unchanged"], found["run_success",], found["run_rows",]) == (1, 1, 0)
    text = (state / "metrics.prom").read_text() + (state / "runs.jsonl").read_text() + caplog.text
    assert not [value for value in ("day=", "call-00", "customer-") if value in text]  # no partition and no value


def test_refusals_are_counted_by_kind(champion: Path, lake: Path, tmp_path: Path) -> None:
    target, state, folder = tmp_path / "out", state_of(str(tmp_path / "out")), tmp_path / "collector"
    with pytest.raises(AuditFailed):
        protect(champion, lake, target, hooks=Hooks(gate=FailGate()))
    found = _samples(state / "metrics.prom")
    assert (found["run_success",], found["run_trouble", "audit"], found["run_trouble", "draws"], found["audit_passed",]) == (
        0,
        1,
        0,
        0,
    )

    damaged = next((lake / "day=2026-11-12").glob("*.parquet"))
    damaged.write_bytes(b"damaged")
    with pytest.raises(PartitionsQuarantined):
        protect(champion, lake, target, metrics=folder)
    options = make_options(champion, lake, target)
    path = folder / f"pass_{options.lake_name}.prom"
    found = _samples(path)
    assert path.stat().st_mode & 0o777 == 0o644
    assert (found["run_trouble", "quarantined"], found["run_partitions_refused", "DataError"], found["run_rows",]) == (1, 1, 400)
    assert read_runs(state)[-1].refused == {"DataError": 1}
    damaged.unlink()
    damaged.parent.rmdir()
    with pytest.raises(DrawsRefused):
        protect(champion, lake, target, key=with_key(5), metrics=folder)
    assert _samples(path)["run_trouble", "draws"] == 1
    assert [path.name for path in folder.iterdir()] == [path.name]


def test_partitions_that_are_tried_again_are_counted(champion: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, target = write_lake(make_table(days=3, per_day=10, start=100), tmp_path / "lake"), tmp_path / "out"
    monkeypatch.setenv(crash_points.CRASH_AT, "partition started@day=2026-11-11")
    with pytest.raises(PartitionsQuarantined):
        protect(champion, lake, target, workers=1)
    monkeypatch.delenv(crash_points.CRASH_AT)
    run = read_runs(state_of(str(target)))[-1]
    assert run.refused == {"WorkerDied": 1}
    assert run.retries >= 2  # twice for the partition; others may have been in work beside it
    assert _samples(state_of(str(target)) / "metrics.prom")["run_retries",] == run.retries


def test_metrics_that_cannot_be_written_stop_no_run(champion: Path, lake: Path, tmp_path: Path, caplog: Any) -> None:
    (tmp_path / "file").touch()
    assert protect(champion, lake, tmp_path / "out", metrics=tmp_path / "file" / "below")[1] is not None
    assert "metrics could not be written" in caplog.text


def test_labels_are_escaped() -> None:
    entry: dict[str, Any] = {"ended": "2026-11-19T20:00:00+00:00", "outcome": "unchanged", "audit": {}, "refused": {}}
    entry |= dict.fromkeys(("seconds", "partitions", "rows", "rows_per_s", "bytes", "draws", "retries"), 0)
    place = '/lakes/a "quoted"\\place\nof two lines'
    families = list(open_metrics(as_text({"target": place}, entry)))
    assert {sample.labels["target"] for family in families for sample in family.samples} == {place}
    assert len(families) > 5
