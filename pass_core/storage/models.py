"""Trained protectors on disk: tensors in safetensors, everything else in JSON, never a pickle.

The pipeline and the Python API share this format.
"""

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from pass_core.errors import ConfigError, DataError
from pass_core.methods.base import Fitted, ReleaseContext, find_method
from pass_core.storage.files import read_json, write_json
from pass_core.training.loop import TrainConfig

FORMAT = 1


def save_model(
    folder: Path, method: str, fitted: Fitted, setting: ReleaseContext, *, config: Any, training: TrainConfig, pool_digest: str
) -> None:
    """Writes model.safetensors and model.json."""
    folder.mkdir(parents=True, exist_ok=True)
    save_tensors(folder / "model.safetensors", fitted.state_dict())
    settings = {"config": dataclasses.asdict(config), "training": dataclasses.asdict(training)}
    pool = {"feature_shape": list(setting.pool.feature_shape), "pool_size": len(setting.pool), "pool_digest": pool_digest}
    learnt = {
        "has_channel": fitted.channel is not None,
        "attributes": [{"name": a.name, "classes": a.n_classes, "role": a.role} for a in setting.attributes],
    }
    write_json(folder / "model.json", {"format": FORMAT, "method": method, **settings, **pool, **learnt})


def describe_model(folder: Path) -> dict[str, Any]:
    """The content of model.json."""
    description: dict[str, Any] = read_json(folder / "model.json")
    if description.get("format") != FORMAT:
        raise DataError(f"{folder / 'model.json'}: expected format {FORMAT}, found {description.get('format')}; run train again")
    return description


def restore_model(folder: Path, setting: ReleaseContext) -> Fitted:
    """The protector in `folder`, for this pool; damaged files are DataErrors that name them."""
    description, weights = describe_model(folder), folder / "model.safetensors"
    method = find_method(description["method"])
    try:
        config = TypeAdapter(method.config_type).validate_python(description["config"])
        return method.from_state_dict(load_tensors(weights), setting, config)
    except (ValidationError, KeyError, RuntimeError):
        raise _damaged(weights) from None


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes a safetensors file."""
    save_file({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, path)


def load_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file; a missing or damaged file is a DataError that names it."""
    try:
        return load_file(path)
    except FileNotFoundError:
        raise DataError(f"{path}: expected file is missing; run train again") from None
    except SafetensorError:
        raise _damaged(path) from None


def tensor_digest(tensors: Mapping[str, Tensor]) -> str:
    """Names tensors by their names, types, shapes and bytes."""
    whole = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        array = tensor.detach().cpu().contiguous().numpy()
        whole.update(f"{name}\0{array.dtype}\0{array.shape}\0".encode() + array.tobytes())
    return whole.hexdigest()


def config_of(config_type: type[Any], settings: Mapping[str, Any] | None, parameter: str) -> Any:
    """Settings as their dataclass; an unknown name, a wrong type or a value out of range is a ConfigError."""
    known = [field.name for field in dataclasses.fields(config_type)]
    unknown = [name for name in settings or {} if name not in known]
    if unknown:
        raise ConfigError(f"{parameter}: unknown {', '.join(unknown)}: expected some of {', '.join(known) or 'none'}")
    try:
        return TypeAdapter(config_type).validate_python(dict(settings or {}))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, (parameter, *first["loc"])))
        raise ConfigError(f"{place}: {first['msg'].removeprefix('Value error, ')}") from None


def _damaged(path: Path) -> DataError:
    return DataError(f"{path}: is damaged or not safetensors weights of its method; run train again")
