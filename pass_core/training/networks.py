"""Networks of the paper: encoders f(x) of PASS and the probing attack's classifiers share their trunks."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn

from pass_core.errors import MethodError

NetworkT = TypeVar("NetworkT", bound=nn.Module)
NetworkKind = Literal["auto", "cnn", "mlp", "face_head", "image_cnn"]
# Dimensions of the records that a kind takes, and what they are called in messages.
SHAPES = {"cnn": (2, "(channels, time)"), "image_cnn": (3, "(channels, height, width)")}
VECTORS = (1, "(features,)")
BY_DIMENSIONS: dict[int, NetworkKind] = {1: "mlp", 2: "cnn", 3: "image_cnn"}


@dataclass(frozen=True, slots=True)
class Widths:
    """Of the layers: the CNNs' four convolutions and their linear layer, the MLP's linear layers."""

    convolutions: tuple[int, int, int, int] = (16, 32, 64, 64)
    after_convolutions: int = 256
    hidden: tuple[int, ...] = (512, 512)


PAPER = Widths()
CLASSIFIER = Widths(hidden=(512, 256))  # the probing attack's: methods use it to train against its equal


class SelfStarting(nn.Module, ABC):
    """A module whose weights and buffers start at fixed values instead of random ones."""

    @abstractmethod
    def reset_parameters(self) -> None:
        """Sets the initial values."""


def signal_cnn(shape: tuple[int, ...], n_outputs: int, widths: Widths = PAPER) -> nn.Module:
    """The six-layer CNN for signal windows (channels, time): four convolutions, two linear layers."""
    channels, time = shape
    if time < 16:
        raise MethodError(f"network cnn: expected windows of at least 16 points in time, found {time}; make the windows longer")
    layers: list[nn.Module] = []
    for width in widths.convolutions:
        layers += [nn.Conv1d(channels, width, kernel_size=3, padding=1), nn.BatchNorm1d(width), nn.ReLU(), nn.MaxPool1d(2)]
        channels = width
    width = widths.after_convolutions
    layers += [nn.Flatten(), nn.Linear(channels * (time // 16), width), nn.BatchNorm1d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, n_outputs))


def image_cnn(shape: tuple[int, ...], n_outputs: int, widths: Widths = PAPER) -> nn.Module:
    """A small CNN for images (channels, height, width): four convolutions that halve both sides, two linear layers."""
    channels, *sides = shape
    if min(sides) < 16:
        raise MethodError(f"network image_cnn: expected sides of at least 16 pixels, found {min(sides)}; use larger images")
    layers: list[nn.Module] = []
    for width in widths.convolutions:
        # Normalised within each image: neither the rest of the batch nor the number of processes matters.
        layers += [nn.Conv2d(channels, width, kernel_size=3, stride=2, padding=1), nn.GroupNorm(4, width), nn.ReLU()]
        channels = width
    pixels = math.prod(math.ceil(side / 16) for side in sides)
    layers += [nn.Flatten(), nn.Linear(channels * pixels, widths.after_convolutions), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths.after_convolutions, n_outputs))


def vector_mlp(n_inputs: int, hidden: tuple[int, ...], n_outputs: int) -> nn.Module:
    """Linear layers with batch norm and ReLU between: three with two hidden widths, as for HuBERT vectors."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(n_inputs, width), nn.BatchNorm1d(width), nn.ReLU()]
        n_inputs = width
    return nn.Sequential(*layers, nn.Linear(n_inputs, n_outputs))


def build_network(
    kind: NetworkKind, shape: tuple[int, ...], n_outputs: int, generator: torch.Generator, widths: Widths = PAPER
) -> nn.Module:
    """A network for records of `shape`, its weights drawn from `generator`; `auto` chooses by the shape."""
    return drawn_from(generator, lambda: network_for(kind, shape, n_outputs, widths))


def network_for(kind: NetworkKind, shape: tuple[int, ...], n_outputs: int, widths: Widths = PAPER) -> nn.Module:
    """The same network with arbitrary weights; build it within `drawn_from`."""
    if kind == "auto":
        kind = BY_DIMENSIONS.get(len(shape), "mlp")
    dimensions, expected = SHAPES.get(kind, VECTORS)
    if dimensions != len(shape):
        raise MethodError(f"network {kind!r}: expected records of shape {expected}, found {shape}; set encoder: auto")
    if kind in SHAPES:
        return signal_cnn(shape, n_outputs, widths) if kind == "cnn" else image_cnn(shape, n_outputs, widths)
    if kind == "mlp":
        return vector_mlp(shape[0], widths.hidden, n_outputs)
    return nn.Sequential(nn.Linear(shape[0], 512), nn.ReLU(), nn.Linear(512, n_outputs))  # on FaceNet's embedding


class Standardise(SelfStarting):
    """Centres and scales every feature, or every channel of a signal or image, by statistics of the training records."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        for name in ("mean", "deviation"):
            self.register_buffer(name, torch.empty(shape[0], *[1] * (len(shape) - 1)))

    def reset_parameters(self) -> None:
        self.mean.fill_(0)
        self.deviation.fill_(1)

    def learn(self, records: Tensor) -> None:
        """Takes the statistics of these records; what never varies is only centred."""
        over = [axis for axis in range(records.ndim) if axis != 1]
        deviation, mean = torch.std_mean(records, dim=over, correction=0, keepdim=True)
        self.mean.copy_(mean[0])
        self.deviation.copy_(torch.where(deviation > 0, deviation, 1)[0])

    def forward(self, records: Tensor) -> Tensor:
        return (records - self.mean) / self.deviation


def standardised_network(
    kind: NetworkKind, shape: tuple[int, ...], n_outputs: int, generator: torch.Generator, records: Tensor | None = None
) -> nn.Module:
    """`build_network` on records that are standardised as these training records are; None: the statistics are loaded later."""
    standardise = drawn_from(generator, lambda: Standardise(shape))
    if records is not None:
        standardise.learn(records)
    return nn.Sequential(standardise, build_network(kind, shape, n_outputs, generator))


def drawn_from(generator: torch.Generator, build: Callable[[], NetworkT]) -> NetworkT:
    """The network that `build` returns, initialised as torch does by default, but with weights drawn from `generator`."""
    with torch.device("meta"):  # without memory: torch fills new layers from its global generator, which nothing here may touch
        network = build()
    network.to_empty(device="cpu")
    for layer in network.modules():
        if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d):
            bound = (layer.weight[0].numel()) ** -0.5  # 1/sqrt(fan in), for weights and biases alike
            nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
            if layer.bias is not None:
                nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
        elif isinstance(layer, nn.BatchNorm1d | nn.GroupNorm | SelfStarting):
            layer.reset_parameters()
    return network


def restored(build: Callable[[torch.Generator], NetworkT], tensors: Mapping[str, Tensor]) -> NetworkT:
    """The network that `build` returns with these weights, in evaluation mode; they replace what `build` draws."""
    network = build(torch.Generator().manual_seed(0))
    network.load_state_dict(tensors)
    return network.eval()


def with_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, named `prefix.name`."""
    return {f"{prefix}.{name}": value for name, value in tensors.items()}


def below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors that `with_prefix` named, under their own names."""
    return {name.removeprefix(f"{prefix}."): value for name, value in tensors.items() if name.startswith(f"{prefix}.")}
