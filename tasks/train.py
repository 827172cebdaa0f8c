"""Step train: fits an obfuscation method."""

from typing import Any

import polars as pl

import pass_core.methods
from pass_core import discovery
from pass_core.epochs import Epoch
from pass_core.methods.base import Method
from pass_core.training import Device, TrainConfig, resolve_device
from tasks.dataset_config import DatasetConfig
from tasks.lake import TableInfo, read_features
from tasks.models import save_model
from tasks.protection import read_setting
from tasks.step_io import StepIO, StepResult
from tasks.storage import digest, rounded


def train(dataset: DatasetConfig, training: TrainConfig, config: Any, device: Device, io: StepIO) -> StepResult:
    """Learns a protector and writes it with its training curves."""
    method: Method = discovery.load(pass_core.methods, str(io.key.method)).METHOD
    attributes = dataset.attributes(TableInfo.load(io.inputs["features"]).classes)
    features = read_features(io.inputs["features"], attributes)
    data = features.subset(features.rows("train"))
    setting = read_setting(io.inputs["pool"], attributes, resolve_device(device))
    epochs: list[Epoch] = []

    def on_epoch(epoch: Epoch) -> None:
        epochs.append(epoch)
        io.progress(f"train {io.key}", epoch.number, epoch.total, f"loss {epoch.terms['total']:.3f}")

    fitted = method.fit(data, setting, config, training, io.rng("fit"), on_epoch)
    save_model(io.outputs["model"], str(io.key.method), config, training, fitted, setting, digest(io.inputs["pool"]))
    curves = [{"epoch": epoch.number} | rounded(dict(epoch.terms)) for epoch in epochs]
    pl.DataFrame(curves, schema=None if curves else {"epoch": pl.Int64, "total": pl.Float64}).write_csv(io.outputs["curves"])
    last = {f"final_{name}": value for name, value in epochs[-1].terms.items()} if epochs else {}
    return StepResult(counts={"records": len(data), "epochs": len(epochs)}, metrics=last, epochs=tuple(epochs))
