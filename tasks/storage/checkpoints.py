"""Checkpoints of training in one file, named by all that determines the training, so that none is ever mixed up."""

import hashlib
import importlib.metadata
import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from pass_core.training.checkpoints import Checkpoints
from tasks.storage.code_digest import code_digest
from tasks.storage.files import digest, json_digest, write_atomically

logger = logging.getLogger(__name__)

SECONDS_BETWEEN = 30.0  # the most that a killed training repeats, besides its current epoch
_LIBRARIES = ("pass-pipeline", "torch", "numpy")


class FileCheckpoints(Checkpoints):
    """A digest, then safetensors; complete or absent, and ignored when damaged. Only one process may write it."""

    def __init__(self, path: Path, work: str, seconds_between: float | None = None) -> None:
        """`work` is the training's name in log lines."""
        self._work, self._last = work, time.monotonic()
        self._seconds_between = SECONDS_BETWEEN if seconds_between is None else seconds_between
        self.files = self._path, self._temporary = path, path.with_name(f"{path.name}.part")  # that may exist on disk

    def read_only(self) -> "FileCheckpoints":
        """The same checkpoint for the other processes of a training."""
        return FileCheckpoints(self._path, self._work, math.inf)

    def load(self) -> dict[str, Tensor] | None:
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return None
        length = hashlib.sha256().digest_size
        if hashlib.sha256(content[length:]).digest() != content[:length]:
            logger.warning("%s: the checkpoint %s is damaged: training starts from the beginning", self._work, self._path)
            return None
        state = safetensors.torch.load(content[length:])
        logger.info("%s: resumes after epoch %d", self._work, int(state["epochs"]))
        return state

    def offer(self, state: Mapping[str, Tensor]) -> None:
        """Saves the state when the last one is old enough; a failing disk does not stop the training."""
        if time.monotonic() - self._last < self._seconds_between:
            return
        content = safetensors.torch.save({name: tensor.cpu().contiguous() for name, tensor in state.items()})
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with write_atomically(self._path, temporary=self._temporary, sync=True) as temporary:
                temporary.write_bytes(hashlib.sha256(content).digest() + content)
        except OSError as error:
            logger.warning("%s: cannot save a checkpoint (%s); training continues without", self._work, error.strerror)
        self._last = time.monotonic()


def checkpoint_path(folder: Path, *, inputs: Mapping[str, Path], recipe: Mapping[str, Any], modules: tuple[str, ...]) -> Path:
    """The checkpoint of a training, named by its inputs, its `recipe`, the libraries and the code of `modules`.

    Half a training by one version of the code and half by another would be a model of neither.
    """
    whole = dict(recipe)
    whole |= {f"input {name}": digest(path) for name, path in inputs.items()}
    whole |= {f"version of {name}": importlib.metadata.version(name) for name in _LIBRARIES}
    return folder / f"{json_digest(whole | {'code': code_digest(modules)})}.checkpoint"
