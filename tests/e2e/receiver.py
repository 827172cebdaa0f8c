"""A receiver of notifications on this machine."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver(ThreadingHTTPServer):
    """Keeps what is posted until somebody takes it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.posted: list[dict[str, Any]] = []

    @property
    def address(self) -> str:
        """Where to post."""
        return f"http://127.0.0.1:{self.server_port}/hook"

    def take(self) -> tuple[str, ...]:
        """The kinds of trouble that were posted since the last time, in order."""
        kinds = tuple(str(one["event"]) for one in self.posted)
        self.posted.clear()
        return kinds


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        self.server.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def receiver() -> Iterator[Receiver]:
    """A receiver that runs as long as the block does."""
    with Receiver() as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()
