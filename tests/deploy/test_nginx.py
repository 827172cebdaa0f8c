"""The proxy's configuration, run by a real nginx before two servers that stand for Prefect and MLflow."""

import contextlib
import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from flows.next_run import next_run
from tests.conftest import PROJECT

PASSWORD = "an example's password"  # noqa: S105 (of the test's own file)
HOSTS = {"prefect": "prefect.example.com", "mlflow": "mlflow.example.com"}


class _Upstream(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        found = {name.lower(): value for name, value in self.headers.items()}
        self._answer({"port": self.server.server_address[1], "path": self.path, "headers": found})

    def do_POST(self) -> None:
        """A search for runs."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer([{"parameters": {"options": {"target": "/out"}}, "expected_start_time": "2026-11-20T02:00:00Z"}])

    def _answer(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def _upstream() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Upstream)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def _tls(folder: Path) -> None:
    """Certificate and passwords, by the commands of docs/deployment.md."""
    folder.mkdir()
    names = ",".join(f"DNS:{host}" for host in (*HOSTS.values(), "console.example.com"))
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    files = ["-keyout", str(folder / "server.key"), "-out", str(folder / "server.crt")]
    subprocess.run([*new, *files, "-subj", "/CN=pass", "-addext", f"subjectAltName={names}"], check=True, capture_output=True)
    made = subprocess.run(["openssl", "passwd", "-apr1", PASSWORD], check=True, capture_output=True, text=True)
    (folder / "htpasswd").write_text(f"ops:{made.stdout}")


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, dict[str, int], Path]]:
    """Its port, the ports of both servers, and the folder of its files."""
    if not shutil.which("nginx"):
        if os.environ.get("CI"):
            pytest.fail("nginx is missing; .ci/run installs it")
        pytest.skip("needs nginx: apt-get install nginx-light")
    folder = tmp_path_factory.mktemp("nginx")
    folder.chmod(0o755)
    _tls(folder / "tls")
    (folder / "console").mkdir()
    (folder / "console" / "index.html").write_text("<title>console</title>")
    port = _free_port()
    with _upstream() as prefect, _upstream() as mlflow:
        text = (PROJECT / "docs" / "deploy" / "nginx.conf").read_text()
        replaced = {
            " /tmp/": f" {folder}/",
            "listen 8443": f"listen 127.0.0.1:{port}",
            "http://prefect:4200": f"http://127.0.0.1:{prefect}",
            "http://mlflow:5000": f"http://127.0.0.1:{mlflow}",
            "/srv/www/pass": str(folder / "console"),
        }
        for old, new in replaced.items():
            assert old in text
            text = text.replace(old, new)
        # As root, nginx would read the files as another user than the one who owns the test's folder.
        (folder / "nginx.conf").write_text(("user root;\n" if os.geteuid() == 0 else "") + text)
        command = ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr", "-g", "daemon off;"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE)
        try:
            _wait_for(port, process)
            yield port, {"prefect": prefect, "mlflow": mlflow}, folder
        finally:
            process.terminate()
            process.wait(timeout=30)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        assert process.poll() is None, process.stderr and process.stderr.read()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise AssertionError("nginx does not answer")


def _get(
    proxy: tuple[int, dict[str, int], Path], host: str, password: str | None, path: str = "/api/x", **headers: str
) -> tuple[int, str, dict[str, str]]:
    """Asks by the host's name, and checks the certificate for it."""
    port, _, folder = proxy
    context = ssl.create_default_context(cafile=folder / "tls" / "server.crt")
    with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
        connection = http.client.HTTPConnection(host, port)
        connection.sock = context.wrap_socket(plain, server_hostname=host)
        given = {"Host": host, **headers}
        if password is not None:
            given["Authorization"] = "Basic " + b64encode(f"ops:{password}".encode()).decode()
        connection.request("GET", path, headers=given)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), {name.lower(): value for name, value in answer.getheaders()}


@pytest.mark.parametrize("name", HOSTS)
def test_only_who_knows_the_password_gets_through(proxy: Any, name: str) -> None:
    for password in (None, "wrong"):
        status, body, headers = _get(proxy, HOSTS[name], password)
        assert status == 401
        assert "port" not in body
        assert headers["www-authenticate"].startswith("Basic")
    status, body, headers = _get(proxy, HOSTS[name], PASSWORD)
    found = json.loads(body)
    assert (status, found["port"], found["path"]) == (200, proxy[1][name], "/api/x")
    assert "strict-transport-security" in headers
    # The server behind sees the name that was asked for, and no password.
    assert found["headers"]["host"] == HOSTS[name]
    assert "authorization" not in found["headers"]


def test_websockets_get_through(proxy: Any) -> None:
    _, body, _ = _get(proxy, HOSTS["prefect"], PASSWORD, Connection="Upgrade", Upgrade="websocket")
    found = json.loads(body)["headers"]
    assert (found["upgrade"], found["connection"]) == ("websocket", "upgrade")
    _, body, _ = _get(proxy, HOSTS["prefect"], PASSWORD)
    assert "upgrade" not in json.loads(body)["headers"]


def test_the_check_logs_in(proxy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    port, _, folder = proxy
    here = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda _host, *more, **names: here("127.0.0.1", *more, **names))
    monkeypatch.setenv("PREFECT_API_SSL_CERT_FILE", str(folder / "tls" / "server.crt"))
    address = f"https://{HOSTS['prefect']}:{port}/api"
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "ops:wrong")
    assert next_run("/out", address) is None
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", f"ops:{PASSWORD}")
    assert next_run("/out", address) == "2026-11-20T02:00:00Z"


def test_the_console_has_a_password_too(proxy: Any) -> None:
    assert _get(proxy, "console.example.com", None, "/")[0] == 401
    status, body, headers = _get(proxy, "console.example.com", PASSWORD, "/")
    assert (status, body, headers["content-type"]) == (200, "<title>console</title>", "text/html")


def test_other_names_and_plain_http_get_nothing(proxy: Any) -> None:
    with socket.create_connection(("127.0.0.1", proxy[0]), timeout=10) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: prefect.example.com\r\n\r\n")
        assert b" 400 " in plain.recv(200)
    context = ssl._create_unverified_context()  # noqa: S323 (the answer is what is tested)
    with socket.create_connection(("127.0.0.1", proxy[0]), timeout=10) as plain:
        wrapped = context.wrap_socket(plain, server_hostname="other.example.com")
        wrapped.sendall(b"GET / HTTP/1.1\r\nHost: other.example.com\r\n\r\n")
        assert wrapped.recv(200) == b""
