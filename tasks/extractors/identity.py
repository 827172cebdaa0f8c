"""Payloads as they are: for signal windows the encoder network is part of the model."""

import numpy as np
import torch

from pass_core.checks import NoSettings
from pass_core.data import FloatArray
from tasks.extractors.base import Extractor, Finished
from tasks.payloads.payload import Payload, Payloads


class Identity:
    """Features are the payload."""

    weights_digest = ""

    def __init__(self, _config: NoSettings, _device: torch.device) -> None:
        """Nothing to load."""

    def feature_shape(self, payload: Payload) -> tuple[int, ...]:
        return payload.shape

    def features(self, payloads: Payloads, _workers: int, finished: Finished) -> FloatArray:
        finished(len(payloads))
        return np.asarray(payloads, dtype=np.float32)


EXTRACTOR = Extractor(
    summary="the payload itself (signal windows, ready-made vectors)",
    config_type=NoSettings,
    payloads=("vector",),
    worth_caching=False,
    load=Identity,
)
