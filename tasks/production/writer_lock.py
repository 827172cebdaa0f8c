"""One writer at a time: a lock that ends with its process, and a record with owner, lease and a token that only grows.

The lock separates writers of one machine (and of file systems that share locks). Across machines the record does: a lease
that has not expired is respected, and a writer that comes back after its lease expired finds a larger token and stops.
"""

import contextlib
import fcntl
import os
import platform
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pass_core.errors import DataError, StorageError
from tasks.production.binding import note_decision
from tasks.storage.files import read_json, write_json

LEASE_SECONDS, LOCK = 120.0, ".lock"


@dataclass(slots=True)
class Lease:
    """The right to write, renewed while its process runs."""

    path: Path
    token: int
    owner: str
    nonce: str = field(default_factory=lambda: secrets.token_hex(4))  # no other run, of any state folder, has it

    def check(self) -> None:
        """Raises a StorageError when another writer has taken over."""
        found = _record(self.path)
        owner = found.get("owner", "unknown")
        if (found.get("token"), owner) != (self.token, self.owner):
            raise StorageError(f"{self.path}: another run ({owner}) took over, so this one published nothing; run again")

    def renew(self) -> None:
        write_json(self.path, {"owner": self.owner, "token": self.token, "until": time.time() + LEASE_SECONDS})

    def keep(self, stopped: threading.Event) -> None:
        """Renews until stopped or lost."""
        with contextlib.suppress(StorageError):
            while not stopped.wait(LEASE_SECONDS / 4):
                self.check()
                self.renew()


@contextlib.contextmanager
def only_writer_here(folder: Path) -> Iterator[None]:
    """Makes this process the only one that writes to a target in a folder, whatever state folder it uses."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(f"{folder}: another run, with another --state, is writing to this target; wait for it") from None
        yield


@contextlib.contextmanager
def only_writer(folder: Path, least_token: int, broken: str | None = None) -> Iterator[Lease]:
    """Makes this process the only writer of the target whose state is in `folder`; its token is above `least_token`.

    `broken` is the reason for ending another machine's lease before its time, which the folder keeps.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / "writer.json"
    with (folder / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _record(path).get("owner", "unknown")
            raise StorageError(f"{folder}: another run ({owner}) is writing to this target; wait for it to finish") from None
        before, host = _record(path), platform.node()
        owner, left = str(before.get("owner", "")), float(before.get("until", 0)) - time.time()
        if owner and not owner.startswith(f"{host}:") and left > 0:
            if broken is None:
                found = f"the lease of a run on another machine ({owner}) expires in {left:.0f} s"
                advice = "if that run has ended and its clock is wrong, give --break-lock 'reason'"
                raise StorageError(f"{folder}: {found}; wait, or, {advice}")
            note_decision(folder, "break-lock", broken, owner=owner)
        token = max(int(before.get("token", 0)), least_token) + 1
        lease, stopped = Lease(path, token, f"{host}:{os.getpid()}"), threading.Event()
        lease.renew()
        renewing = threading.Thread(target=lease.keep, args=(stopped,), daemon=True)
        renewing.start()
        try:
            yield lease
        finally:
            stopped.set()
            renewing.join()
            if _record(path).get("token") == token:
                write_json(path, {"token": token})


def read_lease(folder: Path) -> str | None:
    """The owner of a lease that has not expired."""
    found = _record(folder / "writer.json")
    return str(found["owner"]) if "owner" in found and float(found.get("until", 0)) > time.time() else None


def _record(path: Path) -> dict[str, Any]:
    """The last writer's record; a damaged one counts as none, since the lock decides on one machine."""
    with contextlib.suppress(DataError):
        return dict(found) if isinstance(found := read_json(path), dict) else {}
    return {}
