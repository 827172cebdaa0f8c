"""An object store for tests: a server on this machine that speaks S3's protocol."""

import contextlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow.fs as pafs

BUCKET = "lakes"
SECONDS = 120.0


def _settings(port: int) -> dict[str, str]:
    """What Arrow and Delta read from the environment."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextlib.contextmanager
def s3_server(delay: float = 0.0) -> Iterator[dict[str, str]]:
    """The server with an empty bucket; gives the environment that leads there. Each request waits for `delay` seconds."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = int(found.getsockname()[1])
    command = [sys.executable, str(Path(__file__)), str(port), str(delay)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + SECONDS
        while not _made(port):
            assert process.poll() is None, "the server stopped"
            assert time.monotonic() < deadline
            time.sleep(0.2)
        yield _settings(port)
    finally:
        process.terminate()
        process.wait()


def _made(port: int) -> bool:
    """Whether the bucket could be made."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT")
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def objects(prefix: str) -> dict[str, bytes]:
    """Every object below a prefix."""
    filesystem, _ = pafs.FileSystem.from_uri(f"s3://{BUCKET}")
    found = filesystem.get_file_info(pafs.FileSelector(f"{BUCKET}/{prefix}", recursive=True, allow_not_found=True))
    contents = {}
    for info in found:
        if info.type == pafs.FileType.File:
            with filesystem.open_input_stream(info.path) as stream:
                contents[info.path.removeprefix(f"{BUCKET}/{prefix}/")] = stream.read()
    return contents


def _serve(port: int, delay: float) -> None:
    """moto, one request after the other: it compares tags and writes in two steps, where a real store makes one."""
    from moto.server import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import run_simple

    application, one = DomainDispatcherApplication(create_backend_app), Lock()

    def in_turn(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        time.sleep(delay)
        with one:
            return list(application(environ, start))

    run_simple("127.0.0.1", port, in_turn, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), float(sys.argv[2]))
