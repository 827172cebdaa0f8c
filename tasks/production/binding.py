"""A target and the one state folder that may write to it: each knows the other's id, and the folder knows the last version.

The ids are made at the first publication and stand in every manifest. A folder that is not the target's own, or that was restored
from an older copy, would lose partitions and count draws wrongly: it is refused until somebody decides otherwise (`lake adopt`).
"""

import contextlib
import dataclasses
import datetime
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pass_core.errors import ConfigError, DataError
from tasks.production.manifest import Manifest
from tasks.storage.files import read_json, sync_file, write_json

FILE, VERSIONS, DECISIONS = "target.json", "versions.jsonl", "decisions.jsonl"  # private: published files carry no times


@dataclass(frozen=True, slots=True)
class Binding:
    """Random names of a target and of its state folder, and the place where the target was when they were made."""

    target: str
    state: str
    place: str

    def wrote(self, manifest: Manifest) -> bool:
        return (self.target, self.state) == (manifest.target_id, manifest.state_id)


def check_binding(place: str, state: Path, manifest: Manifest | None) -> None:
    """Rejects a state folder that did not write the live version of the target at `place`."""
    own, noted = _read(state), max(version_times(state), default=0)
    version = manifest.version if manifest else 0
    if manifest is None and own and own.place != place:
        expected = f"expected a state folder of its own, found {state}, which belongs to {own.place}"
        raise ConfigError(f"{place}: {expected}; give another folder with --state, or leave --state out")
    if manifest and not (own and own.wrote(manifest)):
        found = f"found {state}, which {'belongs to another target' if own else 'is new or not a state folder'}"
    elif noted < version:
        found = f"found {state} as it was after version {noted}, although version {version} is live; it is an older copy"
    elif noted > version + 1:  # the version after the live one may be a run that died
        found = f"found {state} as it was after version {noted}, although version {version} is live; the target is an older copy"
    else:
        return
    advice = "give that folder with --state, or restore it; if it is lost, `lake adopt` binds the target to a new one"
    raise ConfigError(f"{place}: expected the state folder that this target is bound to, {found}: {advice}")


def bind(place: str, state: Path, manifest: Manifest | None) -> Binding:
    """The ids for the next version: those of the live version if this folder wrote it; a new folder gets its own."""
    own = _read(state)
    if own and (manifest is None or own.wrote(manifest)):
        return own
    made = Binding(manifest.target_id if manifest else secrets.token_hex(8), secrets.token_hex(8), place)
    write_json(state / FILE, dataclasses.asdict(made))
    sync_file(state / FILE)
    return made


def note_version(state: Path, manifest: Manifest) -> None:
    """Notes the time just before a version is published; of several attempts at one version the last counts."""
    _append(state / VERSIONS, {"version": manifest.version, "published": _now()})


def version_times(state: Path) -> dict[int, str]:
    """Version -> when this folder published it; a line that was cut off by a crash is skipped."""
    found: dict[int, str] = {}
    path = state / VERSIONS
    for line in path.read_text().splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            entry = json.loads(line)
            found[int(entry["version"])] = str(entry["published"])
    return found


def note_decision(state: Path, what: str, reason: str, **more: Any) -> None:
    """Keeps why somebody overrode a refusal; free text, so it stays in the private folder."""
    if not reason.strip():
        raise ConfigError(f"{what}: expected a reason, found none; say why")
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    _append(state / DECISIONS, {"decision": what, "reason": reason, "time": _now(), **more})


def _append(path: Path, entry: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(entry) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _read(state: Path) -> Binding | None:
    path = state / FILE
    if not path.exists():
        return None
    try:
        return Binding(**read_json(path))
    except TypeError:
        raise DataError(f"{path}: expected the ids of a target and its state folder, found something else; restore it") from None
