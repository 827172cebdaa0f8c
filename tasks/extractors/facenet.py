"""FaceNet (InceptionResnetV1): 512 numbers per face, of unit length.

Weights come from a local safetensors file whose SHA-256 is pinned, or from facenet-pytorch's own download.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load_file

from pass_core.checks import check_range
from pass_core.data import FloatArray
from pass_core.errors import ChecksumMismatch, ConfigError, DataError
from tasks.extractors.base import Extractor, Finished, autocast, in_order
from tasks.payloads.images import decode_image
from tasks.payloads.payload import Payload, Payloads
from tasks.payloads.torch_repair import repair
from tasks.storage.files import file_digest

SIDE = 160
EMBEDDING = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class FaceNetConfig:
    """Which weights, and which part of an image."""

    weights: str | None = None  # a safetensors file; default: facenet-pytorch's own download of `pretrained`
    digest: str | None = None  # SHA-256 of that file, required; or of the downloaded tensors, optional
    pretrained: Literal["vggface2", "casia-webface"] = "vggface2"
    crop: int | None = SIDE  # pixels around the centre, scaled to 160×160; null: the largest square
    batch_size: int = 32

    def __post_init__(self) -> None:
        check_range(self, "crop", at_least=16)
        check_range(self, "batch_size", at_least=1)

    def check_files(self) -> None:
        """Raises a PassError when the weights file is missing or another one than pinned; called before a run."""
        if self.weights is not None:
            _checked_digest(Path(self.weights), self.digest)


class FaceNet:
    """The network."""

    def __init__(self, config: FaceNetConfig, device: torch.device) -> None:
        self._config, self._device = config, device
        model, self.weights_digest = _load_model(config)
        self.model = model.to(device).eval()

    def feature_shape(self, _payload: Payload) -> tuple[int, ...]:
        return (EMBEDDING,)

    def features(self, payloads: Payloads, workers: int, finished: Finished) -> FloatArray:
        step = self._config.batch_size
        batches = [payloads[start : start + step] for start in range(0, len(payloads), step)]
        parts = []
        for pixels in in_order(batches, self._decode, workers):
            parts.append(self._embed(pixels))
            finished(len(pixels))
        return np.concatenate(parts)

    def _decode(self, encoded: Any) -> NDArray[np.uint8]:
        return np.stack([centre_crop(decode_image(data), self._config.crop) for data in encoded])

    @torch.inference_mode()
    def _embed(self, pixels: NDArray[np.uint8]) -> FloatArray:
        batch = (torch.from_numpy(pixels).to(self._device).permute(0, 3, 1, 2).float() - 127.5) / 128.0
        with autocast(self._device):
            embedded: FloatArray = self.model(batch).float().cpu().numpy()
        return embedded


def centre_crop(pixels: NDArray[np.uint8], crop: int | None) -> NDArray[np.uint8]:
    """The square around the centre, scaled to 160×160."""
    height, width = pixels.shape[:2]
    side = min(height, width) if crop is None else crop
    if side > min(height, width):
        raise DataError(
            f"an image has {width}×{height} pixels, fewer than the crop of {side}: "
            "set extractor.facenet.crop to a smaller number, or to null for the largest square"
        )
    top, left = (height - side) // 2, (width - side) // 2
    cut = pixels[top : top + side, left : left + side]
    if side == SIDE:
        return cut.copy()  # a view would keep the whole image in memory
    return np.asarray(Image.fromarray(cut).resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def _load_model(config: FaceNetConfig) -> tuple[torch.nn.Module, str]:
    repair()
    from facenet_pytorch import InceptionResnetV1

    if config.weights is None:
        return _download(InceptionResnetV1, config)
    path = Path(config.weights)
    digest = _checked_digest(path, config.digest)
    with torch.device("meta"):  # no memory and no random numbers for weights that are replaced at once
        model: torch.nn.Module = InceptionResnetV1(classify=False)
    try:
        model.load_state_dict(load_file(path), strict=True, assign=True)
    except SafetensorError:
        raise DataError(f"{path}: is damaged or no safetensors file; other formats can run code and are not read") from None
    except RuntimeError:
        raise DataError(f"{path}: holds other tensors than InceptionResnetV1's; get the right file") from None
    return model, digest


def _checked_digest(path: Path, pinned: str | None) -> str:
    if not path.is_file():
        raise DataError(f"{path}: expected file is missing; correct extractor.facenet.weights")
    digest = file_digest(path)
    if pinned is None:
        raise ConfigError(f"extractor.facenet.digest: is missing; if you trust {path}, it is {digest}")
    if digest != pinned:
        raise ChecksumMismatch(f"{path}: expected SHA-256 {pinned}, found {digest}; get the right file or correct the digest")
    return digest


def _download(network: Any, config: FaceNetConfig) -> tuple[torch.nn.Module, str]:
    name = config.pretrained
    try:
        with torch.random.fork_rng():  # building the network draws weights that the download replaces
            model: torch.nn.Module = network(pretrained=name, classify=False)
    except Exception as error:  # noqa: BLE001
        # Whether the network, the proxy or the cache failed, the advice is the same.
        raise DataError(
            f"FaceNet's weights {name!r} are not on this machine and cannot be downloaded ({type(error).__name__}). Where there "
            f"is internet, run `python -c \"from facenet_pytorch import InceptionResnetV1 as N; N(pretrained='{name}')\"` and "
            "bring ~/.cache/torch/checkpoints here; or set extractor.facenet.weights and .digest to a safetensors file"
        ) from None
    found = state_digest(model.state_dict())
    if config.digest not in (None, found):
        raise ChecksumMismatch(f"FaceNet's weights {name!r}: expected SHA-256 {config.digest} of the tensors, found {found}")
    return model, found


def state_digest(state: Mapping[str, torch.Tensor]) -> str:
    """SHA-256 over names and values of tensors."""
    whole = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        whole.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\0".encode())
        whole.update(tensor.contiguous().numpy().tobytes())
    return whole.hexdigest()


EXTRACTOR = Extractor(
    summary="images: FaceNet embedding of a face (512 numbers; weights downloaded or from a local file)",
    config_type=FaceNetConfig,
    payloads=("image",),
    load=FaceNet,
)
