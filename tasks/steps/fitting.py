"""Learning a protector, in this process or in several that train together."""

import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from pass_core.channel.pool import Forbidden
from pass_core.data import Attribute, IntArray
from pass_core.devices import Device, resolve_device
from pass_core.methods.base import Fitted, Method, ReleaseContext, find_method, fit_method
from pass_core.randomness import stream
from pass_core.training.context import TrainingContext
from pass_core.training.epochs import OnEpoch
from pass_core.training.held_out import hold_out, learnt_from
from pass_core.training.loop import TrainConfig
from pass_core.training.parallel import World
from tasks.release.draw import exclusion_of
from tasks.release.protector import read_setting
from tasks.running.processes import run_ranks
from tasks.running.progress import silent
from tasks.running.step_io import StepIO
from tasks.sections.dataset import DatasetConfig
from tasks.storage.checkpoints import FileCheckpoints, checkpoint_path
from tasks.storage.parquet import PERSON, RECORD_ID, FeatureTable, TableInfo, read_features, read_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """What a protector is learnt from and with; small, so that it can be handed to other processes."""

    dataset: DatasetConfig
    training: TrainConfig
    config: Any
    forbid: Forbidden  # how the records will be released
    device: Device
    processes: int
    io: StepIO

    def attributes(self) -> tuple[Attribute, ...]:
        return self.dataset.attributes(TableInfo.load(self.io.inputs["features"]).classes)

    def setting(self, rank: int = 0) -> ReleaseContext:
        """What the method is told; on CUDA every process has a GPU of its own."""
        device = resolve_device(self.device)
        own = torch.device(device.type, rank) if self.processes > 1 and device.type == "cuda" else device
        return read_setting(self.io.inputs["pool"], self.attributes(), own)

    def records(self) -> FeatureTable:
        return read_features(self.io.inputs["features"], self.attributes())

    def rows(self, features: FeatureTable) -> IntArray:
        """The records to learn from."""
        train = features.rows("train")
        return learnt_from(train, features.blocks[train], self.training.share, stream(self.io.seed, "share", self.io.key.dataset))

    def trained_on(self, features: FeatureTable) -> list[str]:
        """Ids of the records that `fit` learns from: all that it reads but those held out."""
        rows = self.rows(features)
        held_out = hold_out(features.blocks[rows], self.training.validation_share, self.io.rng("validation"))
        return [features.record_ids[row] for row in np.delete(rows, held_out)]

    def fit(self, run: TrainingContext) -> Fitted:
        """Learns in this process."""
        features = self.records()
        rows = self.rows(features)
        exclusion = exclusion_of(features, rows, read_folder(self.io.inputs["pool"], [RECORD_ID, PERSON]), self.forbid)
        fitted, _ = fit_method(
            self.method,
            features.subset(rows),
            features.blocks[rows],
            context=dataclasses.replace(self.setting(run.world.rank), exclusion=exclusion),
            config=self.config,
            training=self.training,
            rng_for=self.io.rng,
            run=run,
        )
        return fitted

    @property
    def method(self) -> Method:
        return find_method(str(self.io.key.method))

    def checkpoint(self) -> Path:
        """Where its checkpoint lies."""
        recipe = {
            "method": [self.io.key.method, dataclasses.asdict(self.config), self.forbid],
            "training": dataclasses.asdict(self.training),
            "attributes": [dataclasses.asdict(attribute) for attribute in self.attributes()],
            "random": [self.io.seed, *self.io.labels],
            "compute": [str(resolve_device(self.device)), torch.get_num_threads(), self.processes],
        }
        modules = (__name__, f"pass_core.methods.{self.io.key.method}")
        return checkpoint_path(self.io.cache / "training", inputs=self.io.inputs, recipe=recipe, modules=modules)


def fit_together(fitting: Fitting, setting: ReleaseContext, checkpoints: FileCheckpoints, on_epoch: OnEpoch) -> Fitted:
    """Learns in several processes; the first one's result is everybody's."""
    folder = fitting.io.outputs["model"].parent
    told_here = dataclasses.replace(fitting, io=dataclasses.replace(fitting.io, progress=silent))  # a bar cannot be handed over
    work = functools.partial(fit_rank, told_here, checkpoints, folder / "fitted")
    run_ranks(work, fitting.processes, torch.get_num_threads(), folder / "rendezvous", on_epoch)
    return fitting.method.from_state_dict(load_file(folder / "fitted"), setting, fitting.config)


def fit_rank(fitting: Fitting, checkpoints: FileCheckpoints, result: Path, world: World, on_epoch: OnEpoch) -> None:
    """What one of several processes does."""
    first = world.rank == 0
    fitted = fitting.fit(TrainingContext(on_epoch, checkpoints if first else checkpoints.read_only(), world=world))
    if first:
        save_file({name: tensor.cpu().contiguous() for name, tensor in fitted.state_dict().items()}, result)
