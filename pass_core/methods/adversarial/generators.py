"""Networks that make a new record of a record: one generator per shape for all adversarial methods, and an autoencoder."""

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pass_core.errors import MethodError
from pass_core.training.networks import SelfStarting, image_cnn, vector_mlp

# Standard deviations below this are of entries that never change: they are left as they are.
CONSTANT = 1e-6
IMAGE_WIDTHS = (16, 32, 64, 128, 256)
IMAGE_NOISE = 32  # channels of noise at the U-Net's bottleneck
IMAGE_HALVINGS = 4


class RecordSpace(SelfStarting):
    """What records look like: mean and deviation of every entry of a vector, every channel of another; range; length."""

    mean: Tensor
    deviation: Tensor
    low: Tensor
    high: Tensor
    unit_length: Tensor

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        per_channel = (shape[0], *(1 for _ in shape[1:]))
        for name, size in (("mean", per_channel), ("deviation", per_channel), ("low", ()), ("high", ())):
            self.register_buffer(name, torch.empty(size))
        self.register_buffer("unit_length", torch.empty((), dtype=torch.bool))

    def reset_parameters(self) -> None:
        """Leaves records as they are."""
        for name, value in (("mean", 0.0), ("deviation", 1.0), ("low", 0.0), ("high", 1.0), ("unit_length", False)):
            self.get_buffer(name).fill_(value)

    def learn(self, records: Tensor) -> None:
        """Takes its constants from these records."""
        over = (0, *range(2, records.ndim))
        self.mean.copy_(records.mean(dim=over).view_as(self.mean))
        deviation = records.std(dim=over, correction=0).view_as(self.deviation)
        self.deviation.copy_(torch.where(deviation > CONSTANT, deviation, torch.ones_like(deviation)))
        self.low.copy_(records.min())
        self.high.copy_(records.max())
        lengths = records.norm(dim=1) if records.ndim == 2 else records.new_zeros(1)
        self.unit_length.copy_((lengths - 1).abs().max() < 1e-3)  # as HuBERT's and FaceNet's vectors are, to rounding

    def standard(self, records: Tensor) -> Tensor:
        """Records with mean 0 and deviation 1."""
        return (records - self.mean) / self.deviation

    def record(self, standard: Tensor) -> Tensor:
        """Back from `standard`; where all records have length 1, so has this."""
        records = standard * self.deviation + self.mean
        return F.normalize(records, dim=1) if self.unit_length else records

    def bounded(self, logits: Tensor) -> Tensor:
        """Any numbers as values within the records' range."""
        return self.low + (self.high - self.low) * torch.sigmoid(logits)


class Classifier(nn.Module):
    """A network that reads standardised records."""

    def __init__(self, shape: tuple[int, ...], network: nn.Module) -> None:
        super().__init__()
        self.space = RecordSpace(shape)
        self.network = network

    def forward(self, records: Tensor) -> Tensor:
        logits: Tensor = self.network(self.space.standard(records))
        return logits


class Generator(nn.Module, ABC):
    """x' = G(x, noise), of the same shape as x."""

    can_repeat: ClassVar[bool] = True  # whether it could learn to give records back

    def __init__(self, shape: tuple[int, ...], noise_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.space = RecordSpace(shape)
        self.noise_shape = noise_shape  # of one record; (0,) for a generator that draws nothing

    @abstractmethod
    def forward(self, records: Tensor, noise: Tensor) -> Tensor:
        """(batch, *shape) new records."""

    def make(self, records: Tensor, random: torch.Generator) -> Tensor:
        """New records, with noise drawn from `random`."""
        made: Tensor = self(records, torch.randn(len(records), *self.noise_shape, generator=random).to(records.device))
        return made


class ResidualGenerator(Generator):
    """Vectors and windows: three linear layers on the record beside as much noise, the record added before the last."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        width = math.prod(shape)
        super().__init__(shape, (width,))
        self.first = nn.Sequential(nn.Linear(2 * width, width), nn.BatchNorm1d(width), nn.ReLU())
        self.second = nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width))
        self.last = nn.Linear(width, width)

    def forward(self, records: Tensor, noise: Tensor) -> Tensor:
        flat = self.space.standard(records).flatten(1)
        hidden = self.second(self.first(torch.cat([flat, noise], dim=1))) + flat
        return self.space.record(self.last(F.relu(hidden)).view_as(records))


class ImageGenerator(Generator):
    """Images: a U-Net with noise at its bottleneck; values stay within the range of the records."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        check_image(shape)
        channels, height, width = shape
        super().__init__(shape, (IMAGE_NOISE, height // 2**IMAGE_HALVINGS, width // 2**IMAGE_HALVINGS))
        inputs = (channels, *IMAGE_WIDTHS[:-1])
        self.down = nn.ModuleList([_convolution(i, o) for i, o in zip(inputs, IMAGE_WIDTHS, strict=True)])
        wide = (IMAGE_WIDTHS[-1] + IMAGE_NOISE, *reversed(IMAGE_WIDTHS[1:-1]))
        narrow = tuple(reversed(IMAGE_WIDTHS[:-1]))
        self.up = nn.ModuleList([_convolution(i + o, o) for i, o in zip(wide, narrow, strict=True)])
        self.last = nn.Conv2d(IMAGE_WIDTHS[0], channels, kernel_size=1)

    def forward(self, records: Tensor, noise: Tensor) -> Tensor:
        hidden, passed = self.space.standard(records), []
        for k, layer in enumerate(self.down):
            hidden = layer(F.max_pool2d(hidden, 2) if k else hidden)
            passed.append(hidden)
        hidden = torch.cat([passed.pop(), noise], dim=1)
        for layer in self.up:
            hidden = layer(torch.cat([F.interpolate(hidden, scale_factor=2.0), passed.pop()], dim=1))
        return self.space.bounded(self.last(hidden))


class Autoencoder(Generator):
    """x → a short vector → x'; draws nothing."""

    def __init__(self, shape: tuple[int, ...], latent: int) -> None:
        super().__init__(shape, (0,))
        self.shape = shape
        self.image = len(shape) == 3
        if self.image:
            check_image(shape)
            self.encoder, self.decoder = image_cnn(shape, latent), _image_decoder(shape, latent)
        else:
            width = math.prod(shape)
            self.encoder, self.decoder = vector_mlp(width, (512,), latent), vector_mlp(latent, (512,), width)

    def encode(self, records: Tensor) -> Tensor:
        """(batch, latent)."""
        standard = self.space.standard(records)
        latent: Tensor = self.encoder(standard if self.image else standard.flatten(1))
        return latent

    def decode(self, latent: Tensor) -> Tensor:
        """(batch, *shape)."""
        decoded = self.decoder(latent).view(-1, *self.shape)
        return self.space.bounded(decoded) if self.image else self.space.record(decoded)

    def forward(self, records: Tensor, noise: Tensor) -> Tensor:
        return self.decode(self.encode(records))


def common_generator(shape: tuple[int, ...]) -> Generator:
    """The generator that all adversarial methods share, so that they differ by their losses."""
    if len(shape) == 3:
        return ImageGenerator(shape)
    if len(shape) > 3:
        raise MethodError(f"expected vectors, windows (channels, time) or images, found shape {shape}; flatten the records")
    return ResidualGenerator(shape)


def check_image(shape: tuple[int, ...]) -> None:
    """Raises MethodError unless both sides can be halved four times."""
    if any(side % 2**IMAGE_HALVINGS for side in shape[1:]):
        raise MethodError(f"images: expected sides that are multiples of 16, found {shape[1:]}; crop or resize them")


def _convolution(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel_size=3, padding=1), nn.GroupNorm(4, outputs), nn.ReLU())


def _image_decoder(shape: tuple[int, ...], latent: int) -> nn.Module:
    channels, height, width = shape
    smallest = (64, height // 2**IMAGE_HALVINGS, width // 2**IMAGE_HALVINGS)
    layers: list[nn.Module] = [nn.Linear(latent, math.prod(smallest)), nn.Unflatten(1, smallest)]
    for inputs, outputs in ((64, 64), (64, 32), (32, 16), (16, 16)):
        layers += [nn.Upsample(scale_factor=2), _convolution(inputs, outputs)]
    return nn.Sequential(*layers, nn.Conv2d(16, channels, kernel_size=1))
