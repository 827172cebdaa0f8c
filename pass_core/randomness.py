"""Random streams named by labels, so that no code shares or touches a global random state."""

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def framed(*parts: str) -> bytes:
    """The parts with their lengths, so that different tuples never give the same bytes: ("ab", "c") is not ("a", "bc")."""
    return b"".join(len(encoded).to_bytes(8, "big") + encoded for encoded in map(str.encode, parts))


def stream(seed: int, *labels: str) -> np.random.Generator:
    """A generator that depends on nothing but the seed and the labels."""
    digest = hashlib.blake2b(framed(str(seed), *labels), digest_size=32, person=b"pass-stream").digest()
    return np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))


def torch_generator(rng: np.random.Generator) -> "torch.Generator":
    """A CPU torch generator seeded by the next draw of `rng`."""
    import torch  # streams alone must not cost its import

    generator = torch.Generator(device="cpu")
    generator.manual_seed(int(rng.integers(2**63)))
    return generator
