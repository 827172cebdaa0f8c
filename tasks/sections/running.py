"""The sections `compute` and `tracking` of params.yaml."""

from dataclasses import dataclass

from pass_core.checks import check_range
from pass_core.devices import Device


@dataclass(frozen=True, slots=True)
class ComputeConfig:
    """The numerics of a run: the same number of threads on the same kind of CPU gives the same bytes."""

    threads: int = 2  # another number adds in another order and changes the last bits
    device: Device = "cpu"  # auto: CUDA, else MPS, else the CPU
    processes: int = 1  # that train together on parts of every batch, each with this many threads; on CUDA one GPU each

    def __post_init__(self) -> None:
        check_range(self, "threads", at_least=1, at_most=256)
        check_range(self, "processes", at_least=1, at_most=64)


@dataclass(frozen=True, slots=True)
class TrackingConfig:
    """Where MLflow records runs; the environment variable MLFLOW_TRACKING_URI takes precedence."""

    enabled: bool = True  # false: no MLflow run is recorded
    store: str = "data/mlflow"  # folder for SQLite and artifacts, relative to params.yaml
    experiment: str = "pass-pipeline"  # name of the MLflow experiment
