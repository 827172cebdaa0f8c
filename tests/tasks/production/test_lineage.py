"""OpenLineage events, received over HTTP and in a file: what they say, and that no receiver stops or delays a run."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pass_core.errors import AuditFailed, DataError
from tasks.production.run import Hooks
from tasks.running.lineage import Lineage, LineageDataset
from tasks.sections.running import LineageConfig
from tests.tasks.production.lakes import FailGate, protect

pytest.importorskip("openlineage.client", reason="needs the extra `lineage`: pip install '.[dev]'")
VALUES = ("2026-11", "call-0", "customer-", "note-")  # partitions, ids, persons, values of other columns


class _Handler(BaseHTTPRequestHandler):
    received: ClassVar[list[dict[str, Any]]]
    slow = False

    def do_POST(self) -> None:
        assert self.path == "/api/v1/lineage"
        self.received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        if self.slow:
            time.sleep(20)
        self.send_response(201)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The client sets variables of its own, too: those go with the test."""
    for name in ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT__TYPE", "OPENLINEAGE_NAMESPACE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    alias = "OPENLINEAGE__TRANSPORT__TRANSPORTS__DEFAULT_HTTP__"
    for name in ("TYPE", "URL"):
        monkeypatch.setenv(alias + name, "")
        monkeypatch.delenv(alias + name)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def handler(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[_Handler]]:
    class Handler(_Handler):
        received: ClassVar[list[dict[str, Any]]] = []

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{server.server_port}")
    yield Handler
    server.shutdown()
    server.server_close()


def _types(events: list[dict[str, Any]]) -> list[str]:
    return [one["eventType"] for one in events]


def test_a_protect_run_names_source_model_and_the_version_it_made(
    champion: Path, lake: Path, tmp_path: Path, handler: type[_Handler]
) -> None:
    protect(champion, lake, tmp_path / "out", hooks=Hooks())
    assert _types(handler.received) == ["START", "COMPLETE"]
    start, end = handler.received
    assert start["run"]["runId"] == end["run"]["runId"]
    assert start["job"] == end["job"] | {"facets": start["job"]["facets"]}
    assert (end["job"]["namespace"], end["job"]["name"][: len("protect-calls-")]) == ("pass-pipeline", "protect-calls-")
    source, model, pool = end["inputs"]
    assert (source["namespace"], source["name"]) == ("file", str(lake))
    assert {one["name"]: one["type"] for one in source["facets"]["schema"]["fields"]}["gender"] == "string"
    assert [one["name"] for one in (model, pool)] == [
        str(champion / "models" / "calls" / "pass_substitution"),
        str(champion / "pools" / "calls"),
    ]
    assert len(model["facets"]["version"]["datasetVersion"]) == 64
    (out,) = end["outputs"]
    assert out["name"] == str(tmp_path / "out")
    assert out["facets"]["version"]["datasetVersion"] == "1"
    assert {one["name"] for one in out["facets"]["schema"]["fields"]} == {"vector", "topic", "day"}
    counts = out["outputFacets"]["outputStatistics"]
    assert (counts["rowCount"], counts["fileCount"]) == (600, 3)
    assert not [value for value in VALUES if value in json.dumps([one | {"eventTime": ""} for one in handler.received])]


def test_runs_that_fail_or_change_nothing(champion: Path, lake: Path, tmp_path: Path, handler: type[_Handler]) -> None:
    with pytest.raises(AuditFailed):
        protect(champion, lake, tmp_path / "out", hooks=Hooks(gate=FailGate()))
    assert _types(handler.received) == ["START", "FAIL"]
    message = handler.received[1]["run"]["facets"]["errorMessage"]["message"]
    assert message == "the audit did not pass; nothing was published"
    handler.received.clear()
    for version in ("1", None):  # the second run finds nothing to do
        protect(champion, lake, tmp_path / "out")
        assert _types(handler.received) == ["START", "COMPLETE"]
        (out,) = handler.received[1]["outputs"]
        assert out["facets"].get("version", {}).get("datasetVersion") == version
        handler.received.clear()

    def interrupted(_name: str, _title: str, _body: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        protect(champion, lake, tmp_path / "other", hooks=Hooks(call=interrupted))
    assert _types(handler.received) == ["START", "ABORT"]


def test_a_file_gets_one_line_per_event_and_takes_precedence(
    champion: Path, lake: Path, tmp_path: Path, handler: type[_Handler], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "prod")
    file = tmp_path / "events.jsonl"
    protect(champion, lake, tmp_path / "out", settings=(f"lineage.file={file}",))
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert _types(events) == ["START", "COMPLETE"]
    assert {one["job"]["namespace"] for one in events} == {"prod"}
    assert handler.received == []


def test_secrets_in_addresses_of_stores_are_left_out(lake: Path, tmp_path: Path, handler: type[_Handler]) -> None:
    with pytest.raises(DataError):
        protect(tmp_path / "no-models", "s3://KEY:SECRET@lakes/calls?secret=y", tmp_path / "out")
    source = handler.received[1]["inputs"][0]
    assert (source["namespace"], source["name"]) == ("s3://lakes", "calls")
    assert "SECRET" not in json.dumps(handler.received)


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/secret-path", "no address secret-path"])
def test_a_receiver_that_is_down_costs_one_warning(
    champion: Path, lake: Path, tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", address)
    _, manifest = protect(champion, lake, tmp_path / "out", params={"lineage": {"seconds": 0.5}})
    assert manifest is not None
    assert manifest.version == 1
    assert [one.getMessage()[:21] for one in caplog.records if one.levelname in ("WARNING", "ERROR")] == ["lineage: the receiver"]
    assert "secret-path" not in caplog.text


def test_a_slow_receiver_costs_its_time_limit(handler: type[_Handler], caplog: pytest.LogCaptureFixture) -> None:
    handler.slow = True
    lineage, started = Lineage("job", LineageConfig(seconds=0.5), Path()), time.monotonic()
    lineage.send("START", [], [])
    lineage.send("COMPLETE", [], [LineageDataset(place="/out")])
    assert 1 <= time.monotonic() - started < 4
    assert caplog.text.count("no answer within 0.5 s") == 1


def test_without_settings_nothing_is_sent_or_loaded(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    assert not Lineage("job", LineageConfig(), Path()).enabled
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9")
    assert Lineage("job", LineageConfig(), Path()).enabled
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    assert not Lineage("job", LineageConfig(), Path()).enabled
    monkeypatch.delenv("OPENLINEAGE_DISABLED")
    monkeypatch.delenv("OPENLINEAGE_URL")
    monkeypatch.setenv("OPENLINEAGE_CONFIG", "/nowhere/openlineage.yml")  # named, and not there
    Lineage("job", LineageConfig(), Path()).send("START", [], [])
    assert "did not accept an event (LookupError)" in caplog.text
