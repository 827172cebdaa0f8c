"""The int8 network that step extract calibrates on training records: kept beside the features and the donors."""

import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pass_core.errors import DataError
from tasks.storage.parquet import QUANTISED

AGAIN = "run extract and the steps after it again"


@dataclass(frozen=True, slots=True)
class Quantised:
    """A network with int8 weights, and the ranges of its activations: OpenVINO's description and weights in one file."""

    content: bytes  # length of the description in eight bytes, the description, the weights

    @property
    def digest(self) -> str:
        """SHA-256 of the file that `save` writes."""
        return hashlib.sha256(self.content).hexdigest()

    def save(self, folder: Path) -> None:
        """Writes it beside a table."""
        (folder / QUANTISED).write_bytes(self.content)

    @classmethod
    def load(cls, folder: Path) -> "Quantised":
        """That beside a table."""
        path = folder / QUANTISED
        try:
            return cls(path.read_bytes())
        except FileNotFoundError:
            raise DataError(f"{path}: expected the int8 network that training records calibrated, found none; {AGAIN}") from None

    @classmethod
    def of(cls, model: Any) -> "Quantised":
        """An OpenVINO model as one file."""
        import openvino

        model.set_friendly_name("network")
        for number, part in enumerate(model.get_ordered_ops()):  # their own names count what this process has made so far
            part.set_friendly_name(str(number))
        with tempfile.TemporaryDirectory() as folder:
            openvino.save_model(model, Path(folder, "network.xml"), compress_to_fp16=False)
            description, weights = (Path(folder, f"network.{end}").read_bytes() for end in ("xml", "bin"))
        return cls(len(description).to_bytes(8, "little") + description + weights)

    def model(self) -> Any:
        """The OpenVINO model."""
        import openvino

        end = 8 + int.from_bytes(self.content[:8], "little")
        try:
            return openvino.Core().read_model(self.content[8:end], self.content[end:])
        except RuntimeError:
            raise DataError(f"{QUANTISED}: expected an int8 network, found a damaged file; {AGAIN}") from None
