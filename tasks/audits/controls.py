"""Attacks on originals, the controls, learnt once: every method of a data set is compared with the same ones.

What is kept are a control's answers, by the digest of all that they depend on: features, labels, attack, settings, random
stream, code and arithmetic. A control that is asked about other records is learnt again.
"""

import dataclasses
import functools
import hashlib
import io
import logging
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pass_core.attacks.base import Adversary, AttackTask
from pass_core.auditing.trained_attacks import NamedAttack
from pass_core.data import DoubleArray, Rng
from tasks.running.numerics import fingerprint
from tasks.storage.code_digest import code_digest
from tasks.storage.files import json_digest, write_atomically

logger = logging.getLogger(__name__)

CPU = torch.device("cpu")  # where attacks are learnt


class KeptControls:
    """Gives the controls of `attack_attribute`. Any number of processes may use one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._digests: list[tuple[np.ndarray, str]] = []  # of arrays that several attacks are asked about

    def __call__(self, named: NamedAttack, task: AttackTask, rng: Rng, learn: Callable[[], Adversary]) -> Adversary:
        recipe = {
            "attack": named.name,
            "settings": dataclasses.asdict(named.config),
            "features": self.digest(task.released_train(0)),
            "labels": self.digest(task.train_labels),
            "classes": task.n_classes,
            "random": rng.bit_generator.state,
            "code": code_digest((type(named.attack).__module__,)),
            "arithmetic": fingerprint(CPU, torch.get_num_threads()),
            "libraries": {library: version(library) for library in ("scikit-learn", "scipy")},
        }
        return _KeptControl(self, self._folder / json_digest(recipe), learn)

    def digest(self, array: np.ndarray) -> str:
        """SHA-256 of an array's values, shape and type."""
        for known, found in self._digests:
            if known is array:
                return found
        whole = hashlib.sha256(f"{array.dtype} {array.shape}\0".encode())
        whole.update(np.ascontiguousarray(array).data)
        self._digests.append((array, whole.hexdigest()))
        return whole.hexdigest()


class _KeptControl(Adversary):
    """A control that is learnt when it is first asked something that it was never asked before."""

    def __init__(self, controls: KeptControls, folder: Path, learn: Callable[[], Adversary]) -> None:
        self._controls, self._folder, self._learn = controls, folder, learn

    @functools.cached_property
    def _learnt(self) -> Adversary:
        return self._learn()

    def probabilities(self, records: Any) -> DoubleArray:
        path = self._folder / f"{self._controls.digest(records)}.answer"
        kept = _read(path)
        if kept is None:
            kept = self._learnt.probabilities(records)
            _write(path, kept)
        return kept


def _read(path: Path) -> DoubleArray | None:
    """What was written there; None where it is missing or damaged."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    length = hashlib.sha256().digest_size
    if hashlib.sha256(content[length:]).digest() != content[:length]:
        logger.warning("%s is damaged: the control is learnt again", path)
        return None
    kept: DoubleArray = np.load(io.BytesIO(content[length:]), allow_pickle=False)
    return kept


def _write(path: Path, answer: DoubleArray) -> None:
    """Its digest, then the array; complete or absent. A failing disk does not stop the audit."""
    content = io.BytesIO()
    np.save(content, answer, allow_pickle=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with write_atomically(path) as temporary:
            temporary.write_bytes(hashlib.sha256(content.getvalue()).digest() + content.getvalue())
    except OSError as error:
        logger.warning("%s: cannot keep a control (%s); the audit continues", path, error.strerror)
