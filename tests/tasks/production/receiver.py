"""A receiver of notifications on this machine."""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar


class Receiver(BaseHTTPRequestHandler):
    """Keeps what is posted."""

    received: ClassVar[list[dict[str, Any]]]
    drip = False

    def do_POST(self) -> None:
        self.received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        if self.drip:  # a byte a second: no single step ever times out
            self.wfile.write(b"HTTP/1.0 200 OK\r\n")
            for _ in range(30):
                self.wfile.write(b"X")
                time.sleep(1)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def receiving() -> Iterator[tuple[type[Receiver], str]]:
    """A receiver of its own, and its address."""

    class Handler(Receiver):
        received: ClassVar[list[dict[str, Any]]] = []

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield Handler, f"http://127.0.0.1:{server.server_port}/hook/secret-path"
    finally:
        server.shutdown()
        server.server_close()
