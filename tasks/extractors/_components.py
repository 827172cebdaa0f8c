"""Principal components of an extractor's outputs: learnt on training records once, applied to every record alike.

They are a part of the extractor's learnt state: saved beside the features and the donors, and named by their digest.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from pass_core.data import FloatArray
from pass_core.errors import ConfigError, DataError
from pass_core.randomness import stream
from tasks.storage.parquet import COMPONENTS

AT_ONCE = 1024  # records whose outputs are in memory before they are reduced
OVERSAMPLED, ROUNDS = 32, 4  # of the randomised decomposition (Halko, Martinsson and Tropp, 2011)


@dataclass(frozen=True, slots=True)
class Components:
    """An affine map of outputs to fewer numbers."""

    mean: torch.Tensor  # (outputs,)
    axes: torch.Tensor  # (outputs, components)

    @property
    def digest(self) -> str:
        """SHA-256 of the file that `save` writes."""
        return hashlib.sha256(self._bytes()).hexdigest()

    def __len__(self) -> int:
        return self.axes.shape[1]

    @torch.inference_mode()
    def of(self, outputs: FloatArray) -> FloatArray:
        """The components (n, components) of outputs (n, outputs)."""
        starts, mean = range(0, len(outputs), AT_ONCE), self.mean.numpy()
        parts = [torch.from_numpy(outputs[start : start + AT_ONCE] - mean) @ self.axes for start in starts]
        reduced: FloatArray = torch.cat(parts).numpy()
        return reduced

    def save(self, folder: Path) -> None:
        """Writes them beside a table."""
        (folder / COMPONENTS).write_bytes(self._bytes())

    @classmethod
    def load(cls, folder: Path) -> "Components":
        """Those beside a table."""
        path = folder / COMPONENTS
        again = "run extract and the steps after it again"
        try:
            tensors = load(path.read_bytes())
            return cls(tensors["mean"], tensors["axes"])
        except FileNotFoundError:
            raise DataError(f"{path}: expected the components that training learnt, found none; {again}") from None
        except (SafetensorError, KeyError):
            raise DataError(f"{path}: expected the tensors mean and axes, found a damaged file; {again}") from None

    def _bytes(self) -> bytes:
        return save({"mean": self.mean, "axes": self.axes})


def check_components(wanted: int, outputs: int, setting: str, records: int | None = None) -> None:
    """Rejects more components than outputs or training records allow; `setting` is the path of the number in params.yaml."""
    if wanted > outputs:
        raise ConfigError(f"{setting}: expected at most {outputs} (the extractor's outputs), found {wanted}; reduce it")
    if records is not None and wanted >= records:  # n records lie in a space of n - 1 dimensions around their mean
        advice = f"set it to at most {max(0, records - 1)}, or to 0 for the outputs as they are"
        raise ConfigError(f"{setting}: expected fewer than the {records} training records, found {wanted}; {advice}")


@torch.inference_mode()
def learn_components(outputs: FloatArray, wanted: int, setting: str) -> Components:
    """The first `wanted` principal components of outputs (n, outputs) of training records, which are overwritten.

    One factor scales them all to a mean variance of 1, so that networks learn at their usual rate.
    """
    rows, numbers = outputs.shape
    check_components(wanted, numbers, setting, rows)
    mean = outputs.mean(axis=0, dtype=np.float64).astype(np.float32)
    outputs -= mean
    centred, width = torch.from_numpy(outputs), min(wanted + OVERSAMPLED, rows, numbers)
    span = torch.from_numpy(stream(0, "components").normal(size=(numbers, width)).astype(np.float32))
    for _ in range(ROUNDS):
        span = torch.linalg.qr(centred.T @ torch.linalg.qr(centred @ span)[0])[0]
    _, lengths, turned = torch.linalg.svd(centred @ span, full_matrices=False)
    axes = (turned[:wanted] @ span.T).T
    largest = axes[axes.abs().argmax(dim=0), torch.arange(wanted)]  # a sign is arbitrary: the largest entry is positive
    scale = (rows * wanted / lengths[:wanted].double().square().sum()).sqrt().float()
    return Components(torch.from_numpy(mean), (axes * largest.sign() * scale).contiguous())
