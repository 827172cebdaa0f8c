"""Trained protectors on disk: tensors in safetensors, everything else in JSON, never a pickle."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

import pass_core.methods
from pass_core import discovery
from pass_core.data import Attribute, Records
from pass_core.errors import ChecksumMismatch, DataError
from pass_core.methods.base import Fitted, ReleaseContext
from pass_core.training.loop import TrainConfig
from tasks.storage.files import digest, read_json, write_json

FORMAT = 1


def save_model(
    folder: Path, method: str, config: Any, training: TrainConfig, fitted: Fitted, setting: ReleaseContext, pool_digest: str
) -> None:
    """Writes model.safetensors and model.json."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.cpu().contiguous() for name, tensor in fitted.state_dict().items()}, folder / "model.safetensors")
    write_json(
        folder / "model.json",
        {
            "format": FORMAT,
            "method": method,
            "config": dataclasses.asdict(config),
            "training": dataclasses.asdict(training),
            "feature_shape": list(setting.pool.feature_shape),
            "pool_size": len(setting.pool),
            "pool_digest": pool_digest,
            "has_channel": fitted.channel is not None,
            "attributes": [{"name": a.name, "classes": a.n_classes, "role": a.role} for a in setting.attributes],
        },
    )


def load_model(folder: Path, setting: ReleaseContext, pool_digest: str) -> Fitted:
    """The protector in `folder`; refused when it was trained for another pool, or is damaged."""
    description = describe_model(folder)
    if description["pool_digest"] != pool_digest:
        raise ChecksumMismatch(f"{folder}: was trained for another pool than the one given; run train again")
    return _restore(folder, description, setting)


def load_channel(folder: Path) -> Fitted:
    """The protector in `folder` without its pool: enough to score P(x'|x), not to release a record."""
    description = describe_model(folder)
    blank = np.zeros((description["pool_size"], *description["feature_shape"]), dtype=np.float32)
    attributes: tuple[Attribute, ...] = ()
    return _restore(folder, description, ReleaseContext(attributes, Records(blank, {}), torch.device("cpu")))


def model_digest(folder: Path) -> str:
    """Names a model by its bytes; the pool's digest is among them."""
    return digest(folder)


def describe_model(folder: Path) -> dict[str, Any]:
    """What model.json says."""
    description: dict[str, Any] = read_json(folder / "model.json")
    if description.get("format") != FORMAT:
        raise DataError(f"{folder / 'model.json'}: expected format {FORMAT}, found {description.get('format')}; run train again")
    return description


def _restore(folder: Path, description: dict[str, Any], setting: ReleaseContext) -> Fitted:
    weights = folder / "model.safetensors"
    method = discovery.load(pass_core.methods, description["method"]).METHOD
    try:
        state = load_file(weights)
        config = TypeAdapter(method.config_type).validate_python(description["config"])
        fitted: Fitted = method.from_state_dict(state, setting, config)
    except FileNotFoundError:
        raise DataError(f"{weights}: expected file is missing; run train again") from None
    except (SafetensorError, ValidationError, KeyError, RuntimeError):
        raise DataError(f"{weights}: is damaged or not safetensors weights of {description['method']}; run train again") from None
    return fitted
