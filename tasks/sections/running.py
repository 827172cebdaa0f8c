"""The sections `compute` and `tracking` of params.yaml."""

from dataclasses import dataclass

from pass_core.devices import Device
from pass_core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ComputeConfig:
    """The numerics of a run: the same threads on the same kind of CPU give the same bytes."""

    threads: int = 2
    device: Device = "cpu"
    processes: int = 1  # that train together on parts of each batch, each with `threads` threads

    def __post_init__(self) -> None:
        if not 1 <= self.threads <= 256:
            raise ConfigError(f"threads: expected between 1 and 256, found {self.threads}")
        if not 1 <= self.processes <= 64:
            raise ConfigError(f"processes: expected between 1 and 64, found {self.processes}")


@dataclass(frozen=True, slots=True)
class TrackingConfig:
    """Where MLflow records: a folder relative to params.yaml; the variable MLFLOW_TRACKING_URI takes precedence."""

    enabled: bool = True
    store: str = "data/mlflow"
    experiment: str = "pass-pipeline"
