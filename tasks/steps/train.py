"""Step train: fits an obfuscation method."""

import logging
from typing import Any

import polars as pl
import pyarrow as pa

from pass_core.channel.entanglement import Allowance, what_the_data_allow
from pass_core.channel.pool import Forbidden
from pass_core.devices import Device
from pass_core.training.context import TrainingContext
from pass_core.training.epochs import Epoch
from pass_core.training.held_out import TOTAL
from pass_core.training.loop import TrainConfig, best_epoch
from tasks.running.step_io import StepIO, StepResult
from tasks.sections.dataset import DatasetConfig
from tasks.steps.fitting import Fitting, fit_together
from tasks.storage.checkpoints import FileCheckpoints
from tasks.storage.files import digest, rounded
from tasks.storage.models import model_digest, save_model
from tasks.storage.parquet import RECORD_ID, write_table

logger = logging.getLogger(__name__)

ENTANGLED_BELOW = 0.95  # share of the useful attributes' entropy


def train(
    io: StepIO,
    *,
    dataset: DatasetConfig,
    training: TrainConfig,
    config: Any,
    forbid: Forbidden,
    device: Device,
    processes: int,
) -> StepResult:
    """Learns a protector and writes it with its training curves; one that was stopped goes on from its last checkpoint."""
    fitting = Fitting(dataset=dataset, training=training, config=config, forbid=forbid, device=device, processes=processes, io=io)
    features = fitting.records()
    data = features.subset(fitting.rows(features))
    allowed = what_the_data_allow(data.labels, fitting.attributes())
    _tell(allowed, io)
    epochs: list[Epoch] = []

    def on_epoch(epoch: Epoch) -> None:
        epochs.append(epoch)
        note = f"loss {epoch.terms['total']:.3f}"
        note += f", held out {epoch.terms[TOTAL]:.3f}" if TOTAL in epoch.terms else ""
        io.progress(f"train {io.key}", epoch.number, epoch.total, note)

    checkpoints, setting = FileCheckpoints(fitting.checkpoint(), f"train {io.key}"), fitting.setting()
    alone = processes == 1
    fitted = (
        fitting.fit(TrainingContext(on_epoch, checkpoints)) if alone else fit_together(fitting, setting, checkpoints, on_epoch)
    )
    pool = digest(io.inputs["pool"])
    save_model(io.outputs["model"], str(io.key.method), fitted, setting, config=config, training=training, pool_digest=pool)
    _write_trained_on(fitting.trained_on(features), io)
    curves = [{"epoch": epoch.number} | rounded(dict(epoch.terms)) for epoch in epochs]
    pl.DataFrame(curves, schema=None if curves else {"epoch": pl.Int64, "total": pl.Float64}).write_csv(io.outputs["curves"])
    last = {f"final_{name}": value for name, value in _kept(epochs, training).terms.items()} if epochs else {}
    ceiling = {"useful_entropy": allowed.useful_entropy, "useful_ceiling": allowed.ceiling}
    counts = {"records": len(data), "epochs": len(epochs)}
    return StepResult(counts=counts, metrics=last | ceiling, epochs=tuple(epochs), spent=checkpoints.files)


def _write_trained_on(record_ids: list[str], io: StepIO) -> None:
    """Not in the model's folder: it is pushed and logged, while who was in the training set is secret."""
    model = [model_digest(io.outputs["model"])] * len(record_ids)
    write_table(pa.table({RECORD_ID: record_ids, "model_digest": model}), io.outputs["trained_on"])
    io.outputs["trained_on"].chmod(0o600)


def _kept(epochs: list[Epoch], training: TrainConfig) -> Epoch:
    """The epoch whose weights were kept: the last, or the best one when training watches for it."""
    watched = [epoch.terms[TOTAL] for epoch in epochs if TOTAL in epoch.terms]
    return epochs[best_epoch(watched) - 1] if watched and training.patience else epochs[-1]


def _tell(allowed: Allowance, io: StepIO) -> None:
    """Says before training what no training can exceed; warns when private and useful attributes are entangled."""
    logger.info(
        "train %s: with the private attributes hidden, at most %.0f %% of what the useful ones say can survive "
        "(%.2f of %.2f nats), and at most %.2f of %.2f nats of which record it was", io.key, 100 * allowed.share, allowed.ceiling,
        allowed.useful_entropy, allowed.record_ceiling, allowed.record_entropy,
    )  # fmt: skip
    if allowed.share < ENTANGLED_BELOW:
        logger.warning(
            "train %s: private attribute %r tells %.2f nats of the useful ones: hiding it and keeping them exclude each other "
            "that far; expect a lower NAG of useful attributes, or change the roles", io.key, allowed.most_entangled,
            allowed.shared[allowed.most_entangled],
        )  # fmt: skip
