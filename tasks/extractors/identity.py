"""Payloads as they are: for signal windows the encoder network is part of the model."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from pass_core.data import FloatArray
from tasks.extractors.base import Finished
from tasks.payloads.payload import Payload, PayloadKind, Payloads


@dataclass(frozen=True, slots=True)
class IdentityConfig:
    """Nothing to choose."""


class IdentityExtractor:
    """Features are the payload."""

    summary: ClassVar[str] = "the payload itself (signal windows, ready-made vectors)"
    config_type: ClassVar[type[IdentityConfig]] = IdentityConfig
    payloads: ClassVar[tuple[PayloadKind, ...]] = ("vector",)
    worth_caching: ClassVar[bool] = False
    weights_digest = ""

    def load(self, config: IdentityConfig, device: torch.device) -> "IdentityExtractor":
        del config, device
        return self

    def feature_shape(self, payload: Payload) -> tuple[int, ...]:
        return payload.shape

    def features(self, payloads: Payloads, workers: int, finished: Finished) -> FloatArray:
        del workers
        finished(len(payloads))
        return np.asarray(payloads, dtype=np.float32)


EXTRACTOR = IdentityExtractor()
