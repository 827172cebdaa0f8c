"""Trained protectors of the pipeline on disk, checked against their pool; `pass_core.storage.models` has the format."""

from pathlib import Path

import numpy as np
import torch

from pass_core.data import Records
from pass_core.errors import ChecksumMismatch
from pass_core.methods.base import Fitted, ReleaseContext
from pass_core.storage.models import describe_model, restore_model, save_model
from tasks.storage.files import digest

__all__ = ["describe_model", "load_channel", "load_model", "model_digest", "save_model"]


def load_model(folder: Path, setting: ReleaseContext, pool_digest: str) -> Fitted:
    """The protector in `folder`; rejected when it was trained for another pool, or is damaged."""
    if describe_model(folder)["pool_digest"] != pool_digest:
        raise ChecksumMismatch(f"{folder}: was trained for another pool than the one given; run train again")
    return restore_model(folder, setting)


def load_channel(folder: Path) -> Fitted:
    """The protector in `folder` without its pool: enough to score P(x'|x), not to release a record."""
    description = describe_model(folder)
    blank = np.zeros((description["pool_size"], *description["feature_shape"]), dtype=np.float32)
    return restore_model(folder, ReleaseContext((), Records(blank, {}), torch.device("cpu")))


def model_digest(folder: Path) -> str:
    """Identifies a model by its bytes; the pool's digest is among them."""
    return digest(folder)
