"""Networks of the paper: encoders f(x) of PASS and the probing attack's classifiers share their trunks."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from pass_core.errors import MethodError

NetworkKind = Literal["auto", "cnn", "mlp", "face_head"]


@dataclass(frozen=True, slots=True)
class Widths:
    """Of the layers: the CNN's four convolutions and its linear layer, the MLP's linear layers."""

    convolutions: tuple[int, int, int, int] = (16, 32, 64, 64)
    after_convolutions: int = 256
    hidden: tuple[int, ...] = (512, 512)


PAPER = Widths()


def signal_cnn(shape: tuple[int, ...], n_outputs: int, widths: Widths = PAPER) -> nn.Module:
    """The six-layer CNN for signal windows (channels, time): four convolutions, two linear layers."""
    channels, time = shape
    if time < 16:
        raise MethodError(f"the signal CNN halves time four times: expected at least 16 points, found {time}")
    layers: list[nn.Module] = []
    for width in widths.convolutions:
        layers += [
            nn.Conv1d(channels, width, kernel_size=3, padding=1),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.MaxPool1d(2),
        ]
        channels = width
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        nn.Linear(channels * (time // 16), widths.after_convolutions),
        nn.BatchNorm1d(widths.after_convolutions),
        nn.ReLU(),
        nn.Linear(widths.after_convolutions, n_outputs),
    )


def vector_mlp(n_inputs: int, hidden: tuple[int, ...], n_outputs: int) -> nn.Module:
    """Linear layers with batch norm and ReLU between: three with two hidden widths, as for HuBERT vectors."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(n_inputs, width), nn.BatchNorm1d(width), nn.ReLU()]
        n_inputs = width
    return nn.Sequential(*layers, nn.Linear(n_inputs, n_outputs))


def face_head(n_inputs: int, n_outputs: int) -> nn.Module:
    """The two-layer MLP that stands on FaceNet's embedding."""
    return nn.Sequential(nn.Linear(n_inputs, 512), nn.ReLU(), nn.Linear(512, n_outputs))


def build_network(
    kind: NetworkKind,
    shape: tuple[int, ...],
    n_outputs: int,
    generator: torch.Generator,
    widths: Widths = PAPER,
) -> nn.Module:
    """A network for records of `shape`, its weights drawn from `generator`; `auto` chooses by the shape."""
    if kind == "auto":
        kind = "cnn" if len(shape) == 2 else "mlp"
    if (kind == "cnn") != (len(shape) == 2):
        expected = "(channels, time)" if kind == "cnn" else "(features,)"
        raise MethodError(f"network {kind!r} takes records of shape {expected}, found {shape}; set encoder: auto")
    # Built without memory first: torch fills new layers from its global generator, which nothing here may touch.
    with torch.device("meta"):
        if kind == "cnn":
            network = signal_cnn(shape, n_outputs, widths)
        elif kind == "mlp":
            network = vector_mlp(shape[0], widths.hidden, n_outputs)
        else:
            network = face_head(shape[0], n_outputs)
    network.to_empty(device="cpu")
    _initialise(network, generator)
    return network


def _initialise(network: nn.Module, generator: torch.Generator) -> None:
    """Torch's own default initialisation, from an explicit generator."""
    for layer in network.modules():
        if isinstance(layer, nn.Linear | nn.Conv1d):
            bound = (layer.weight[0].numel()) ** -0.5  # 1/sqrt(fan in), for weights and biases alike
            nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
            if layer.bias is not None:
                nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
        elif isinstance(layer, nn.BatchNorm1d):
            layer.reset_parameters()
