"""Payloads as they are: for signal windows the encoder network is part of the model."""

from dataclasses import dataclass

import numpy as np
import torch

from pass_core.data import FloatArray
from tasks.extractors.base import Extractor, Finished
from tasks.payloads.payload import Payload, Payloads


@dataclass(frozen=True, slots=True)
class IdentityConfig:
    """Nothing to choose."""


class Identity:
    """Features are the payload."""

    weights_digest = ""

    def __init__(self, _config: IdentityConfig, _device: torch.device) -> None:
        """Nothing to load."""

    def feature_shape(self, payload: Payload) -> tuple[int, ...]:
        return payload.shape

    def features(self, payloads: Payloads, _workers: int, finished: Finished) -> FloatArray:
        finished(len(payloads))
        return np.asarray(payloads, dtype=np.float32)


EXTRACTOR = Extractor(
    summary="the payload itself (signal windows, ready-made vectors)",
    config_type=IdentityConfig,
    payloads=("vector",),
    worth_caching=False,
    load=Identity,
)
