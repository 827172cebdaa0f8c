"""The channel P(x'|x) over a finite pool of donors (PASS, ICML 2025, eq. 2)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pass_core.data import FloatArray

# Rows are scored in padded blocks of one fixed size: the last bits of a float32 product depend on the matrix's shape,
# and a draw must not depend on how many records happen to stand beside it.
BLOCK_ROWS = 1024


def log_probabilities(embedded: Tensor, donors: Tensor, temperature: float) -> Tensor:
    """ln P(x'_d|x) = log-softmax over d of cos(f(x), g_d)/τ (eq. 2), for f (batch, dim) and g (pool, dim)."""
    cosine = F.normalize(embedded, dim=1) @ F.normalize(donors, dim=1).T  # (batch, pool)
    return F.log_softmax(cosine / temperature, dim=1)


@dataclass(frozen=True)
class SubstitutionChannel:
    """A learnt channel: encoder f in evaluation mode, one embedding g per donor, temperature τ."""

    encoder: nn.Module
    donors: Tensor  # (pool, dim)
    temperature: float

    @property
    def pool_size(self) -> int:
        return len(self.donors)

    def blocks(self, features: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
        """Yields (rows, P) with P (rows, pool) the probabilities of those rows; memory does not grow with the records."""
        device = self.donors.device
        self.encoder.eval()
        for start in range(0, len(features), BLOCK_ROWS):
            rows = slice(start, min(start + BLOCK_ROWS, len(features)))
            padded = np.zeros((BLOCK_ROWS, *features.shape[1:]), dtype=np.float32)
            padded[: rows.stop - rows.start] = features[rows]
            with torch.inference_mode():
                embedded = self.encoder(torch.from_numpy(padded).to(device))
                scores = log_probabilities(embedded, self.donors, self.temperature).exp()
            yield rows, scores[: rows.stop - rows.start].cpu().numpy()
