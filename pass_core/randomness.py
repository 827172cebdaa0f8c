"""Random streams named by labels, so that no code shares or touches a global random state."""

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def _label_digest(seed: int, labels: tuple[str, ...]) -> bytes:
    digest = hashlib.blake2b(digest_size=32, person=b"pass-stream")
    for part in (str(seed), *labels):
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(8, "big") + encoded)  # length prefix: ("ab","c") is not ("a","bc")
    return digest.digest()


def stream(seed: int, *labels: str) -> np.random.Generator:
    """A generator that depends on nothing but the seed and the labels."""
    return np.random.default_rng(np.frombuffer(_label_digest(seed, labels), dtype=np.uint32))


def torch_generator(rng: np.random.Generator) -> "torch.Generator":
    """A CPU torch generator seeded by the next draw of `rng`."""
    import torch  # streams alone must not cost its import

    generator = torch.Generator(device="cpu")
    generator.manual_seed(int(rng.integers(2**63)))
    return generator
