"""FaceNet (InceptionResnetV1): the outputs of a layer, averaged over a grid and reduced to principal components.

The embedding, the last layer, is trained to tell people apart and to ignore expression; the middle of the network still has both.
Weights come from a local safetensors file whose SHA-256 is pinned, or from facenet-pytorch's own download.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch.nn import functional as F

from pass_core.checks import check_range, ranged
from pass_core.data import FloatArray
from pass_core.errors import ChecksumMismatch, ConfigError, DataError
from tasks.extractors.base import Extractor, Finished
from tasks.extractors.engines.base import NetworkConfig, make_engine
from tasks.extractors.engines.quantised import Quantised
from tasks.payloads.images import decode_image
from tasks.payloads.payload import Payload, Payloads
from tasks.payloads.torch_repair import repair
from tasks.storage.files import file_digest

SIDE = 160
EMBEDDING = 512
STEM = ("conv2d_1a", "conv2d_2a", "conv2d_2b", "maxpool_3a", "conv2d_3b", "conv2d_4a", "conv2d_4b")
LAYERS = {  # after the stem, in order: channels, and the side of their outputs for an image of 160×160
    "repeat_1": (256, 17), "mixed_6a": (896, 8), "repeat_2": (896, 8),
    "mixed_7a": (1792, 3), "repeat_3": (1792, 3), "block8": (1792, 3),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class FaceNetConfig(NetworkConfig):
    """Which weights, which part of an image, and which layer."""

    weights: str | None = None  # a safetensors file; default: facenet-pytorch's own download of `pretrained`
    digest: str | None = None  # SHA-256 of that file, required; or of the downloaded tensors, optional
    pretrained: Literal["vggface2", "casia-webface"] = "vggface2"
    crop: int | None = ranged(SIDE, at_least=16)  # pixels around the centre, scaled to 160×160; null: the largest square
    layer: Literal["embedding", "block8", "repeat_3", "mixed_7a", "repeat_2", "mixed_6a", "repeat_1"] = "repeat_2"
    pooling: int = ranged(3, at_least=1)  # averages over a grid of 3×3 fields per channel of the layer; the embedding has none
    components: int = ranged(384, at_least=0)  # principal components, learnt on training records; 0: the outputs as they are
    batch_size: int = ranged(32, at_least=1)

    def __post_init__(self) -> None:
        NetworkConfig.__post_init__(self)
        if self.layer in LAYERS:
            check_range(self, "pooling", at_least=1, at_most=LAYERS[self.layer][1])

    def check_files(self) -> None:
        """Raises a PassError when the engine or the pinned weights are missing; called before a run."""
        self.check_engine()
        if self.weights is not None:
            _checked_digest(Path(self.weights), self.digest)


class FaceNet:
    """The network."""

    def __init__(self, config: FaceNetConfig, device: torch.device) -> None:
        self._config = config
        self.model, self.weights_digest = _load_model(config)
        example = torch.zeros(2, SIDE, SIDE, 3, dtype=torch.uint8)
        self.engine = make_engine(Outputs(self.model, config), example, config, device, setting="extractor.facenet")

    def feature_shape(self, _payload: Payload) -> tuple[int, ...]:
        layer = self._config.layer
        return (EMBEDDING,) if layer == "embedding" else (LAYERS[layer][0] * self._config.pooling**2,)

    def features(self, payloads: Payloads, workers: int, finished: Finished) -> FloatArray:
        step = self._config.batch_size
        batches = [payloads[start : start + step] for start in range(0, len(payloads), step)]
        made = np.empty((len(payloads), *self.feature_shape(Payload("image"))), dtype=np.float32)
        start = 0
        for outputs in self.engine.outputs(batches, self.decoded, workers):
            made[start : start + len(outputs)] = outputs.float().cpu().numpy()
            finished(len(outputs))
            start += len(outputs)
        return made

    def calibrate(self, payloads: Payloads) -> Quantised:
        """Makes the network's int8 form from these images."""
        return self.engine.calibrate(self.decoded([data]) for data in payloads)

    def decoded(self, encoded: Payloads) -> torch.Tensor:
        """The pixels (n, 160, 160, 3) of images."""
        pixels = np.empty((len(encoded), SIDE, SIDE, 3), dtype=np.uint8)
        for row, data in enumerate(encoded):
            pixels[row] = centre_crop(decode_image(bytes(data)), self._config.crop)
        return torch.from_numpy(pixels)


class Outputs(torch.nn.Module):
    """The network from pixels (n, 160, 160, 3) to what an image's features are made of."""

    def __init__(self, model: torch.nn.Module, config: FaceNetConfig) -> None:
        super().__init__()
        names = list(LAYERS)
        self.model, self._embedding, self._pooling = model, config.layer == "embedding", config.pooling
        self._layers = () if self._embedding else (*STEM, *names[: names.index(config.layer) + 1])

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        batch = pixels.permute(0, 3, 1, 2).float().sub_(127.5).div_(128.0)
        if self._embedding:
            return cast("torch.Tensor", self.model(batch))
        for name in self._layers:  # the layers after them are not computed
            batch = getattr(self.model, name)(batch)
        return F.adaptive_avg_pool2d(batch.float(), self._pooling).flatten(1)


def centre_crop(pixels: NDArray[np.uint8], crop: int | None) -> NDArray[np.uint8]:
    """The square around the centre, scaled to 160×160."""
    height, width = pixels.shape[:2]
    side = min(height, width) if crop is None else crop
    if side > min(height, width):
        advice = "set extractor.facenet.crop to a smaller number, or to null for the largest square"
        raise DataError(f"an image has {width}×{height} pixels, fewer than the crop of {side}: {advice}")
    top, left = (height - side) // 2, (width - side) // 2
    cut = pixels[top : top + side, left : left + side]
    if side == SIDE:
        return cut
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
        raise DataError(
            f"{path}: is damaged or no safetensors file, and other formats can run code; get the right file"
        ) from None
    except RuntimeError:
        raise DataError(f"{path}: holds other tensors than InceptionResnetV1's; get the right file") from None
    return model, digest


def _checked_digest(path: Path, pinned: str | None) -> str:
    if not path.is_file():
        raise DataError(f"{path}: expected file is missing; correct extractor.facenet.weights")
    digest = file_digest(path)
    if pinned is None:
        raise ConfigError(f"extractor.facenet.digest: expected the SHA-256 of {path}, found none; if you trust it, set {digest}")
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
        expected = f"expected SHA-256 {config.digest} of the tensors, found {found}"
        raise ChecksumMismatch(f"FaceNet's weights {name!r}: {expected}; correct extractor.facenet.digest if you trust them")
    return model, found


def state_digest(state: Mapping[str, torch.Tensor]) -> str:
    """SHA-256 over names and values of tensors."""
    whole = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        whole.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\0".encode())
        whole.update(tensor.contiguous().numpy().tobytes())
    return whole.hexdigest()


EXTRACTOR = Extractor(
    summary="images: a layer of FaceNet or its embedding of a face (384 numbers; weights downloaded or from a local file)",
    config_type=FaceNetConfig,
    without_effect=("weights", "digest", "pretrained", "batch_size"),
    payloads=("image",),
    load=FaceNet,
)
