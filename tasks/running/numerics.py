"""The same arithmetic in the same order in each run."""

import contextlib
import os
from collections.abc import Iterator
from importlib.metadata import version

import torch
from threadpoolctl import threadpool_limits


@contextlib.contextmanager
def fixed_numerics(threads: int) -> Iterator[None]:
    """Deterministic algorithms with a fixed number of threads, for torch, BLAS and OpenMP alike."""
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it CUDA has no deterministic matrix product
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    try:
        with threadpool_limits(threads):
            yield
    finally:
        torch.set_num_threads(before[0])
        torch.use_deterministic_algorithms(before[1])


def fingerprint(device: torch.device, threads: int) -> dict[str, str | int]:
    """What the last bits of a result depend on; with another fingerprint, a record near a threshold could get another donor."""
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "dtype": "float32",
        "threads": threads,
        "processor": torch.backends.cpu.get_cpu_capability(),
        **{library: version(library) for library in ("torch", "numpy")},
    }
