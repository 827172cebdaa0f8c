"""Payloads as they are: for signal windows the encoder network is part of the model."""

from typing import ClassVar

from pass_core.data import FloatArray


class IdentityExtractor:
    """Features are the payload."""

    summary: ClassVar[str] = "the payload itself (signal windows, ready-made vectors)"

    def feature_shape(self, payload_shape: tuple[int, ...]) -> tuple[int, ...]:
        return payload_shape

    def extract(self, payloads: FloatArray) -> FloatArray:
        return payloads


EXTRACTOR = IdentityExtractor()
