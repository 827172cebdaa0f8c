"""What every extractor keeps to."""

from typing import ClassVar, Protocol

from pass_core.data import FloatArray


class Extractor(Protocol):
    """Turns payloads into the features that channels and attacks see."""

    summary: ClassVar[str]

    def feature_shape(self, payload_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of one record's features."""

    def extract(self, payloads: FloatArray) -> FloatArray:
        """Features (n, *feature_shape) of payloads (n, *payload_shape)."""
