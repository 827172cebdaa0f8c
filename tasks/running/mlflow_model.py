"""How MLflow loads a logged protector: features in, ln P(x'|x) over the donors out.

The pool itself stays out of MLflow, since it holds real people's records: scores name donors by position only.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from pass_core.data import FloatArray, Records
from pass_core.methods.base import Fitted, ReleaseContext
from pass_core.storage.models import describe_model, restore_model


class ChannelModel:
    """Scores of a protector; one without a channel returns the records."""

    def __init__(self, folder: Path) -> None:
        self._fitted = load_channel(folder)

    def predict(self, model_input: FloatArray, params: dict[str, Any] | None = None) -> FloatArray:
        """ln P(x'|x), (n, pool)."""
        del params
        features = np.asarray(model_input, dtype=np.float32)
        if self._fitted.channel is None:
            return features
        probabilities = np.concatenate([p for _, p in self._fitted.channel.blocks(features)])
        scores: FloatArray = np.log(np.maximum(probabilities, np.finfo(np.float32).tiny))
        return scores


def load_channel(folder: Path) -> Fitted:
    """The protector in `folder` without its pool: enough to score P(x'|x), not to release a record."""
    description = describe_model(folder)
    blank = np.zeros((description["pool_size"], *description["feature_shape"]), dtype=np.float32)
    return restore_model(folder, ReleaseContext((), Records(blank, {}), torch.device("cpu")))


def _load_pyfunc(path: str) -> ChannelModel:
    """MLflow's entry point."""
    return ChannelModel(Path(path))
