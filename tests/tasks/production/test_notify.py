"""Notifications, posted to a receiver on this machine: what each says, and that none of them stops or delays a run."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from flows.audit import audit as audit_flow
from flows.cli.main import app
from pass_core.errors import AuditFailed, ConfigError, DataError, DriftFound
from tasks.production.notify import ADDRESS, Notice, body_of, notify
from tasks.production.options import state_of
from tasks.production.run import Hooks, execute
from tasks.production.troubles import Trouble, audit_trouble, public_place
from tasks.sections.running import NotifyConfig
from tests.tasks.production.lakes import (
    FailGate,
    PassGate,
    make_options,
    make_table,
    protect,
    with_key,
    write_lake,
    write_params,
)
from tests.tasks.production.receiver import Receiver

FIELDS = {"event", "dataset", "target", "reason", "next", "time"}


def _only(received: list[dict[str, Any]], event: str) -> dict[str, Any]:
    (found,) = received
    assert set(found) == FIELDS
    assert found["event"] == event
    assert found["next"].startswith("pass-pipeline ")
    for value in ("2026-11", "call-0", "customer-", "note-"):  # partitions, ids, persons, columns that nobody may see
        assert value not in json.dumps({name: text for name, text in found.items() if name != "time"})
    received.clear()
    return found


def test_a_run_that_ends_well_says_nothing(champion: Path, lake: Path, tmp_path: Path, received: list[Any]) -> None:
    protect(champion, lake, tmp_path / "out")
    protect(champion, lake, tmp_path / "out")  # nothing to do
    assert received == []


def test_failed_run_audit_and_ledger(champion: Path, lake: Path, tmp_path: Path, received: list[Any]) -> None:
    target = tmp_path / "out"
    with pytest.raises(AuditFailed):
        protect(champion, lake, target, hooks=Hooks(gate=FailGate()))
    found = _only(received, "audit")
    assert (found["dataset"], found["target"]) == ("calls", str(target))
    protect(champion, lake, target)
    with pytest.raises(ConfigError):
        protect(champion, lake, target, key=with_key(9))
    assert "--redraw" in _only(received, "draws")["next"]
    file = next((lake / "day=2026-11-12").glob("*"))
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(DataError, match="2026-11-12"):  # the log names the partition, the notification does not
        protect(champion, lake, target)
    assert f"lake protect {lake} {target} --dataset calls" in _only(received, "failed")["next"]
    with pytest.raises(DataError):
        protect(tmp_path / "no-models", lake, target)
    _only(received, "failed")


def test_drift(champion: Path, tmp_path: Path, received: list[Any]) -> None:
    moved = make_table(start=9000).drop_columns(["gender", "topic"])
    vectors = (2.0 * np.array(moved.column("vector").to_pylist()) + 1).astype(np.float32)
    place = moved.column_names.index("vector")
    lake = write_lake(
        moved.set_column(place, "vector", pa.array(list(vectors), moved.schema.field("vector").type)), tmp_path / "l"
    )
    with pytest.raises(DriftFound):
        # A key whose sample of 37 people is large enough to show it.
        execute(make_options(champion, lake, tmp_path / "out", key=with_key(4)))
    _only(received, "drift")


def test_a_run_that_checks_reject_and_a_missing_secret(champion: Path, lake: Path, tmp_path: Path, received: list[Any]) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("sed: 1\n")
    places = [str(lake), str(tmp_path / "out"), "--dataset", "calls", "--models", str(champion), "--params", str(wrong)]
    assert CliRunner().invoke(app, ["lake", "protect", *places]).exit_code == 2
    _only(received, "failed")

    def nowhere() -> str:
        raise ConfigError("no such block")

    with pytest.raises(ConfigError):
        execute(make_options(champion, lake, tmp_path / "out"), Hooks(gate=PassGate(), secret=nowhere))
    _only(received, "failed")


def test_scheduled_audit(tmp_path: Path, received: list[Any]) -> None:
    """The body of the flow, which needs no server up to here."""
    with pytest.raises(ConfigError):
        audit_flow.fn("texts", root=str(tmp_path / "none"), params=str(write_params(tmp_path)))
    assert "audit release --dataset texts" in _only(received, "failed")["next"]
    assert audit_trouble(AuditFailed("NAG of gender"), "pass-pipeline audit release").kind == "audit"


def test_the_check_reports_each_trouble_once_a_day(champion: Path, lake: Path, tmp_path: Path, received: list[Any]) -> None:
    target, command = tmp_path / "out", ["lake", "status", str(tmp_path / "out"), "--notify", "--stale-after"]
    protect(champion, lake, target)
    state = state_of(str(target))
    for name in ("versions.jsonl", "runs.jsonl"):
        (state / name).write_text((state / name).read_text().replace("2026-", "2025-"))
    assert [CliRunner().invoke(app, [*command, span]).exit_code for span in ("9999d", "1d", "1d")] == [0, 18, 18]
    assert "lake protect" in _only(received, "late")["next"]  # once
    reported = state / "reported.json"
    reported.write_text(reported.read_text().replace("2026-", "2025-"))
    CliRunner().invoke(app, [*command, "1d"])
    _only(received, "late")  # a day later again
    protect(champion, lake, target)  # a run that finds nothing to do
    assert CliRunner().invoke(app, [*command, "1d"]).exit_code == 19
    assert "lake plan" in _only(received, "stale")["next"]


def test_a_receiver_that_is_down_changes_nothing(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for address in ("http://127.0.0.1:9/secret-path", "ftp://127.0.0.1/secret-path", "http://[secret-path"):
        monkeypatch.setenv(ADDRESS, address)
        with pytest.raises(DataError, match="trained model"):
            protect(tmp_path / "no-models", lake, tmp_path / "out")
    assert caplog.text.count("WARNING") == 3
    assert "secret-path" not in caplog.text


def test_a_slow_receiver_delays_a_run_by_its_time_limit_only(
    lake: Path, tmp_path: Path, handler: type[Receiver], caplog: pytest.LogCaptureFixture
) -> None:
    handler.drip = True
    params: dict[str, Any] = {"notify": {"seconds": 1.0}}
    started = time.monotonic()
    with pytest.raises(DataError, match="trained model"):
        protect(tmp_path / "no-models", lake, tmp_path / "out", params=params)
    assert 1 <= time.monotonic() - started < 5
    assert "no answer within 1 s" in caplog.text
    assert len(handler.received) == 1


@pytest.mark.parametrize("form", ["json", "slack", "teams"])
def test_bodies(form: Any, received: list[Any]) -> None:
    trouble = Trouble("late", "no run has succeeded for 30 h", "pass-pipeline lake protect a b")
    assert notify(Notice("calls", "/out", trouble), NotifyConfig(format=form))
    (body,) = received
    if form == "slack":
        title, target = "*pass-pipeline: calls: late*", "Target: /out"
        assert body["text"].splitlines() == [title, trouble.reason, target, "Next: `pass-pipeline lake protect a b`"]
    elif form == "teams":
        (attached,) = body["attachments"]
        assert attached["contentType"] == "application/vnd.microsoft.card.adaptive"
        assert [line["text"] for line in attached["content"]["body"]][1] == trouble.reason
    else:
        assert set(body) == FIELDS


def test_slack_reads_no_markup_in_names() -> None:
    body = body_of(Notice("a<b>&c", "/out", Trouble("late", "r", "n")), NotifyConfig(format="slack"))
    assert "a&lt;b&gt;&amp;c" in body["text"]


def test_secrets_in_addresses_of_stores_are_left_out(lake: Path, tmp_path: Path, received: list[Any]) -> None:
    assert public_place("s3://KEY:SECRET@lakes/calls?endpoint_override=x&secret=y") == "s3://lakes/calls"
    source = "s3://KEY:SECRET@lakes/calls"
    with pytest.raises(DataError):
        protect(tmp_path / "no-models", source, tmp_path / "out")
    assert "s3://lakes/calls" in received[0]["next"]
    assert "SECRET" not in json.dumps(received)


def test_without_an_address_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ADDRESS, raising=False)
    assert not notify(Notice("calls", "/out", Trouble("late", "r", "n")), NotifyConfig())
