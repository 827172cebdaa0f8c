"""Where tensors are computed."""

from typing import TYPE_CHECKING, Literal

from pass_core.errors import ConfigError

if TYPE_CHECKING:
    import torch

Device = Literal["cpu", "cuda", "mps", "auto"]


def resolve_device(device: Device) -> "torch.device":
    """The torch device for a setting; `auto` takes CUDA, then MPS, then the CPU."""
    import torch  # the setting alone must not cost its import

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available[device]:
        raise ConfigError(
            f"compute.device: expected a device of this machine, but {device} is not available here; use auto or cpu"
        )
    return torch.device(device)
