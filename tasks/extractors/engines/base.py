"""The settings of a network's engine, the interface of engines, and torch."""

import dataclasses
import importlib.util
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal, Protocol

import torch

from pass_core.errors import ConfigError
from tasks.extractors.base import Job, ReducedConfig, in_order
from tasks.extractors.engines.quantised import Quantised

EngineName = Literal["auto", "torch", "openvino"]
Precision = Literal["float32", "bfloat16", "int8"]
DEFAULT = {"engine": "torch", "precision": "float32"}
ARITHMETICS: tuple[tuple[EngineName, Precision], ...] = (
    ("torch", "float32"), ("torch", "bfloat16"), ("openvino", "float32"), ("openvino", "bfloat16"), ("openvino", "int8"),
)  # fmt: skip
PACKAGES = {"float32": ("openvino",), "bfloat16": ("openvino",), "int8": ("openvino", "nncf")}


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConfig(ReducedConfig):
    """What computes the network, and in which numbers: a part of the features' digest."""

    engine: EngineName = "auto"  # openvino needs `pip install '.[fast]'`; auto: torch, but for int8
    # bfloat16 and int8 are faster on processors that have them (`pass-pipeline doctor`); int8 needs openvino
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        ReducedConfig.__post_init__(self)
        if self.engine == "torch" and self.precision == "int8":
            raise ConfigError("precision: expected float32 or bfloat16 with engine: torch, found int8; set engine: openvino")

    @property
    def arithmetic(self) -> dict[str, str]:
        """Engine and precision with `auto` resolved: by the settings alone, so that no result changes with the machine."""
        automatic = "openvino" if self.precision == "int8" else "torch"
        return {"engine": automatic if self.engine == "auto" else self.engine, "precision": self.precision}

    def check_engine(self) -> None:
        """Raises a ConfigError where OpenVINO is asked for and not installed."""
        if self.arithmetic["engine"] == "openvino":
            missing = [name for name in PACKAGES[self.precision] if importlib.util.find_spec(name) is None]
            if missing:
                found = f"found no {' and no '.join(missing)}"
                advice = "run `pip install '.[fast]'`, or set engine: torch" + " and precision: bfloat16" * (
                    self.precision == "int8"
                )
                raise ConfigError(f"expected the packages of the extra `fast` for engine: openvino, {found}; {advice}")


def described(settings: Any) -> dict[str, Any]:
    """An extractor's settings as digests name them: without engine and precision where these are the default."""
    named: dict[str, Any] = dataclasses.asdict(settings)
    if isinstance(settings, NetworkConfig):
        named |= settings.arithmetic
        if settings.arithmetic == DEFAULT:  # digests from before there was a choice stay
            named = {name: value for name, value in named.items() if name not in DEFAULT}
    return named


def engine_libraries(settings: Any) -> dict[str, str]:
    """Versions of the libraries beside torch that an extractor's last bits depend on."""
    uses_openvino = isinstance(settings, NetworkConfig) and settings.arithmetic["engine"] == "openvino"
    return {"openvino": version("openvino")} if uses_openvino else {}


class Engine(Protocol):
    """A network with its weights in memory."""

    quantised: Quantised | None  # its int8 form, once it is known

    def outputs(self, jobs: Iterable[Job], prepare: Callable[[Job], torch.Tensor], workers: int) -> Iterator[torch.Tensor]:
        """The network's outputs for every job's inputs (records, …), in order; `workers` threads prepare ahead."""

    def calibrate(self, inputs: Iterable[torch.Tensor]) -> Quantised:
        """Makes the int8 form from inputs of one record each, and uses it."""


class TorchEngine:
    """The network as it is, on any device."""

    quantised: Quantised | None = None

    def __init__(self, network: torch.nn.Module, device: torch.device, precision: str) -> None:
        self._network, self._device, self._half = network.to(device).eval(), device, precision == "bfloat16"

    def outputs(self, jobs: Iterable[Job], prepare: Callable[[Job], torch.Tensor], workers: int) -> Iterator[torch.Tensor]:
        return map(self._pass, in_order(jobs, prepare, workers))

    def calibrate(self, inputs: Iterable[torch.Tensor]) -> Quantised:
        raise NotImplementedError("torch computes no int8: see NetworkConfig")

    @torch.inference_mode()
    def _pass(self, inputs: torch.Tensor) -> torch.Tensor:
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=self._half):
            outputs: torch.Tensor = self._network(inputs.to(self._device))
        return outputs


def make_engine(
    network: torch.nn.Module, example: torch.Tensor, config: NetworkConfig, device: torch.device, *, setting: str, **options: bool
) -> Engine:
    """The engine that the settings ask for; `example` has inputs of some records, `setting` is the path of the settings."""
    if config.arithmetic["engine"] == "torch":
        return TorchEngine(network, device, config.precision)
    try:
        config.check_engine()
    except ConfigError as error:
        raise ConfigError(f"{setting}: {error}") from None
    if device.type != "cpu":
        expected = f"expected compute.device: cpu with openvino, found {device.type}"
        raise ConfigError(f"{setting}.engine: {expected}; set compute.device: cpu, or engine: torch")
    from tasks.extractors.engines.openvino_engine import OpenVinoEngine

    return OpenVinoEngine(network.eval(), example, config.precision, setting=setting, **options)
