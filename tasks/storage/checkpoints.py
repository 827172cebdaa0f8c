"""Checkpoints of training in one file, named by all that determines the training: one of other parameters is never met."""

import contextlib
import hashlib
import importlib.metadata
import json
import logging
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

import pass_core
from tasks.storage.files import digest

logger = logging.getLogger(__name__)

SECONDS_BETWEEN = 30.0  # what a killed training repeats at most, beside the epoch it was in
_LIBRARIES = ("pass-pipeline", "torch", "numpy")


class FileCheckpoints:
    """A digest, then safetensors; whole or absent, and ignored when damaged. One process at a time may write it."""

    def __init__(self, path: Path, work: str, seconds_between: float | None = None) -> None:
        """`work` is what log lines call the training."""
        self._path = path
        self._temporary = path.with_name(f"{path.name}.part")
        self._work = work
        self._seconds_between = SECONDS_BETWEEN if seconds_between is None else seconds_between
        self._last = time.monotonic()

    @property
    def files(self) -> tuple[Path, ...]:
        """What may be left on the disk."""
        return self._path, self._temporary

    def read_only(self) -> "FileCheckpoints":
        """The same for a process that trains together with the one that writes."""
        return FileCheckpoints(self._path, self._work, math.inf)

    def load(self) -> dict[str, Tensor] | None:
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return None
        length = hashlib.sha256().digest_size
        if hashlib.sha256(content[length:]).digest() != content[:length]:
            logger.warning("%s: the checkpoint %s is damaged: starts from the beginning", self._work, self._path)
            return None
        state = safetensors.torch.load(content[length:])
        logger.info("%s: goes on after epoch %d, where it was stopped", self._work, int(state["epochs"]))
        return state

    def offer(self, state: Mapping[str, Tensor]) -> None:
        """Keeps the state when the last one is old enough; a disk that does not take it stops no training."""
        if time.monotonic() - self._last < self._seconds_between:
            return
        content = safetensors.torch.save({name: tensor.cpu().contiguous() for name, tensor in state.items()})
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._temporary.open("wb") as file:
                file.write(hashlib.sha256(content).digest())
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            self._temporary.replace(self._path)
        except OSError as error:
            logger.warning("%s: cannot keep a checkpoint (%s); training goes on without", self._work, error.strerror)
            with contextlib.suppress(OSError):
                self._temporary.unlink()
        self._last = time.monotonic()


def checkpoint_path(folder: Path, inputs: Mapping[str, Path], recipe: Mapping[str, Any]) -> Path:
    """Where a training is kept that depends on these inputs, on `recipe`, and on the code that computes."""
    whole = dict(recipe)
    whole |= {f"input {name}": digest(path) for name, path in inputs.items()}
    whole |= {f"version of {name}": importlib.metadata.version(name) for name in _LIBRARIES}
    whole |= {"code": _code_digest()}
    return folder / f"{hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()}.checkpoint"


def _code_digest() -> str:
    """Half a training by one version of the code and half by another would be a model of neither."""
    whole = hashlib.sha256()
    for folder in pass_core.__path__:
        for file in sorted(Path(folder).rglob("*.py")):
            whole.update(f"{file.relative_to(folder).as_posix()}\0{digest(file)}\n".encode())
    return whole.hexdigest()
