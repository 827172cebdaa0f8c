"""Step train: fits an obfuscation method, in this process or in several that train together."""

import dataclasses
import functools
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import safetensors.torch
import torch

from pass_core.channel.entanglement import Allowance, what_the_data_allow
from pass_core.channel.pool import Forbidden
from pass_core.data import Attribute, IntArray
from pass_core.devices import Device, resolve_device
from pass_core.methods.base import Fitted, FittedChannel, ReleaseContext, find_method, fit_method, known_attributes
from pass_core.methods.transport.notes import not_hidden
from pass_core.randomness import stream
from pass_core.storage.models import save_model
from pass_core.training.context import TrainingContext
from pass_core.training.epochs import Epoch, OnEpoch
from pass_core.training.held_out import TOTAL, learnt_from
from pass_core.training.loop import TrainConfig, best_epoch, check_batch
from pass_core.training.parallel import World
from tasks.release.draw import exclusion_of
from tasks.release.protector import read_setting
from tasks.running.processes import run_ranks
from tasks.running.progress import silent
from tasks.running.step_io import StepIO, StepResult
from tasks.sections.dataset import DatasetConfig
from tasks.storage.checkpoints import FileCheckpoints, checkpoint_path
from tasks.storage.files import digest, rounded
from tasks.storage.parquet import PERSON, RECORD_ID, FeatureTable, TableInfo, read_features, read_folder, write_table

logger = logging.getLogger(__name__)

ENTANGLED_BELOW = 0.95  # share of the useful attributes' entropy


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """What a protector is learnt from and with; small, so that it can be handed to other processes."""

    dataset: DatasetConfig
    training: TrainConfig
    config: Any
    forbid: Forbidden  # how the records will be released
    knows: tuple[str, ...] | None  # attributes that the recipient of the release knows; None: all that are declared
    released: tuple[str, ...]  # useful attributes whose class is released beside the payload
    device: Device
    processes: int
    io: StepIO

    def attributes(self) -> tuple[Attribute, ...]:
        return self.dataset.attributes(TableInfo.load(self.io.inputs["features"]).classes)

    def setting(self, rank: int = 0) -> ReleaseContext:
        """The method's context; on CUDA every process has a GPU of its own."""
        device = resolve_device(self.device)
        own = torch.device(device.type, rank) if self.processes > 1 and device.type == "cuda" else device
        return read_setting(self.io.inputs["pool"], self.attributes(), own)

    def known(self) -> tuple[str, ...]:
        """What the recipient knows of every record, and the protector is to hide from."""
        return known_attributes(self.attributes(), self.knows, self.released)

    def records(self) -> tuple[FeatureTable, IntArray]:
        """The features, and the rows to learn from."""
        TableInfo.same_features(self.io.inputs["features"], self.io.inputs["pool"])
        features = read_features(self.io.inputs["features"], self.attributes())
        train, rng = features.rows("train"), stream(self.io.seed, "share", self.io.key.dataset)
        return features, learnt_from(train, features.blocks[train], self.training.share, rng)

    def fit(self, features: FeatureTable, rows: IntArray, run: TrainingContext) -> tuple[Fitted, "Learning"]:
        """Learns in this process."""
        exclusion = exclusion_of(features, rows, read_folder(self.io.inputs["pool"], [RECORD_ID, PERSON]), self.forbid)
        fitted, learnt = fit_method(
            find_method(str(self.io.key.method)),
            features.subset(rows),
            features.blocks[rows],
            context=dataclasses.replace(self.setting(run.world.rank), exclusion=exclusion, known=self.known()),
            config=self.config,
            training=self.training,
            rng_for=self.io.rng,
            run=run,
        )
        figures, notes = (fitted.figures, fitted.notes) if isinstance(fitted, FittedChannel) else ({}, ())
        return fitted, Learning([features.record_ids[row] for row in rows[learnt]], figures, notes)

    def checkpoint(self) -> Path:
        """The path of its checkpoint."""
        recipe = {
            "method": [self.io.key.method, dataclasses.asdict(self.config), self.forbid, self.known()],
            "training": dataclasses.asdict(self.training),
            "attributes": [dataclasses.asdict(attribute) for attribute in self.attributes()],
            "random": [self.io.seed, *self.io.labels],
            "compute": [str(resolve_device(self.device)), torch.get_num_threads(), self.processes],
        }
        modules = (__name__, f"pass_core.methods.{self.io.key.method}")
        return checkpoint_path(self.io.cache / "training", inputs=self.io.inputs, recipe=recipe, modules=modules)


@dataclass(frozen=True, slots=True)
class Learning:
    """What training leaves beside the protector."""

    records: list[str]  # ids of those that it learnt from: all but those held out
    figures: Mapping[str, float]
    notes: tuple[str, ...]


def train(fitting: Fitting) -> StepResult:
    """Learns a protector and writes it with its training curves; a stopped training resumes from its last checkpoint."""
    io, training = fitting.io, fitting.training
    # First: a device that is not there, or a batch that cannot be divided, is an error before anything is said.
    setting = fitting.setting()
    check_batch(training.batch_size, fitting.processes)
    features, rows = fitting.records()
    allowed = what_the_data_allow(features.subset(rows).labels, fitting.attributes())
    _log_ceiling(allowed, io)
    persons = [features.persons[row] for row in rows]
    notes = not_hidden(features.subset(rows).labels, fitting.attributes(), fitting.known(), persons)
    if beside := TableInfo.load(io.inputs["features"]).pass_through:
        notes += (f"training does not hide from people who read the columns beside the payload: {', '.join(beside)}",)
    _warn(notes, io)
    epochs: list[Epoch] = []

    def on_epoch(epoch: Epoch) -> None:
        epochs.append(epoch)
        note = f"loss {epoch.terms['total']:.3f}"
        note += f", held out {epoch.terms[TOTAL]:.3f}" if TOTAL in epoch.terms else ""
        io.progress(f"train {io.key}", epoch.number, epoch.total, note)

    checkpoints = FileCheckpoints(fitting.checkpoint(), f"train {io.key}")
    if fitting.processes == 1:
        fitted, learnt = fitting.fit(features, rows, TrainingContext(on_epoch, checkpoints))
    else:
        fitted, learnt = _fit_together(fitting, setting, checkpoints, on_epoch)
    _warn(learnt.notes, io)
    model, method, pool = io.outputs["model"], str(io.key.method), digest(io.inputs["pool"])
    save_model(model, method, fitted, setting, config=fitting.config, training=training, pool_digest=pool)
    # Not in the model's folder: that is pushed and logged, while who was in the training set is secret.
    trained_on = pa.table({RECORD_ID: learnt.records, "model_digest": [digest(model)] * len(learnt.records)})
    write_table(trained_on, io.outputs["trained_on"])
    io.outputs["trained_on"].chmod(0o600)
    curves = [{"epoch": epoch.number} | rounded(dict(epoch.terms)) for epoch in epochs]
    pl.DataFrame(curves, schema=None if curves else {"epoch": pl.Int64, "total": pl.Float64}).write_csv(io.outputs["curves"])
    last = {f"final_{name}": value for name, value in _kept(epochs, training).terms.items()} if epochs else {}
    ceiling = {"useful_entropy": allowed.useful_entropy, "useful_ceiling": allowed.ceiling}
    counts = {"records": len(rows), "epochs": len(epochs)}
    metrics = {**last, **ceiling, **learnt.figures}
    return StepResult(counts=counts, metrics=metrics, epochs=tuple(epochs), spent=checkpoints.files, notes=notes + learnt.notes)


def _fit_together(
    fitting: Fitting, setting: ReleaseContext, checkpoints: FileCheckpoints, on_epoch: OnEpoch
) -> tuple[Fitted, Learning]:
    """Learns in several processes; all have the same result."""
    quiet = dataclasses.replace(fitting, io=dataclasses.replace(fitting.io, progress=silent))  # a bar cannot be handed over
    rendezvous = fitting.io.outputs["model"].with_name("rendezvous")
    work = functools.partial(_fit_rank, quiet, checkpoints)
    state, learnt = run_ranks(work, fitting.processes, torch.get_num_threads(), rendezvous, on_epoch)
    method = find_method(str(fitting.io.key.method))
    return method.from_state_dict(safetensors.torch.load(state), setting, fitting.config), learnt


def _fit_rank(fitting: Fitting, checkpoints: FileCheckpoints, world: World, on_epoch: OnEpoch) -> tuple[bytes, Learning]:
    """What one of several processes does."""
    run = TrainingContext(on_epoch, checkpoints if world.rank == 0 else checkpoints.read_only(), world=world)
    fitted, learnt = fitting.fit(*fitting.records(), run)
    return safetensors.torch.save({name: tensor.cpu().contiguous() for name, tensor in fitted.state_dict().items()}), learnt


def _kept(epochs: list[Epoch], training: TrainConfig) -> Epoch:
    """The epoch whose weights were kept: the last, or the best one when training watches for it."""
    watched = [epoch.terms[TOTAL] for epoch in epochs if TOTAL in epoch.terms]
    return epochs[best_epoch(watched) - 1] if watched and training.patience else epochs[-1]


def _warn(notes: tuple[str, ...], io: StepIO) -> None:
    for note in notes:
        logger.warning("train %s: %s", io.key, note)


def _log_ceiling(allowed: Allowance, io: StepIO) -> None:
    """Logs before training what no training can exceed; warns when private and useful attributes are entangled."""
    logger.info(
        "train %s: with the private attributes hidden, at most %.0f %% of what the useful ones say can survive "
        "(%.2f of %.2f nats), and at most %.2f of %.2f nats of which record it was", io.key, 100 * allowed.share, allowed.ceiling,
        allowed.useful_entropy, allowed.record_ceiling, allowed.record_entropy,
    )  # fmt: skip
    if allowed.share < ENTANGLED_BELOW:
        logger.warning(
            "train %s: private attribute %r shares %.2f nats with the useful attributes; hiding it removes that much: expect a "
            "lower NAG of useful attributes, or change the roles", io.key, allowed.most_entangled,
            allowed.shared[allowed.most_entangled],
        )  # fmt: skip
