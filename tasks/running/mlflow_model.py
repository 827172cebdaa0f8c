"""How MLflow loads a logged protector: features in, ln P(x'|x) over the donors out.

The pool itself stays out of MLflow, since it holds real people's records: scores name donors by position only.
"""

from pathlib import Path
from typing import Any

import numpy as np

from pass_core.data import FloatArray
from tasks.storage.models import load_channel


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


def _load_pyfunc(path: str) -> ChannelModel:
    """MLflow's entry point."""
    return ChannelModel(Path(path))
