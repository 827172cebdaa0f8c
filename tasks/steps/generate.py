"""Step generate: makes the raw files of a data set that needs no download."""

import tasks.datasets
from pass_core import discovery
from pass_core.errors import ConfigError
from tasks.datasets.base import GeneratedDataset
from tasks.running.step_io import StepIO, StepResult
from tasks.sections.dataset import DatasetConfig


def generate(config: DatasetConfig, io: StepIO) -> StepResult:
    """Writes raw files in the layout their reader expects."""
    dataset = discovery.load(tasks.datasets, io.key.dataset).DATASET
    if not isinstance(dataset, GeneratedDataset):
        raise ConfigError(
            f"data set {io.key.dataset!r} cannot be generated: put its published files under data/raw or PASS_RAW_DATA"
        )
    n_files = dataset.generate(io.outputs["raw"], config, io.rng("files"))
    return StepResult(counts={"files": n_files})
